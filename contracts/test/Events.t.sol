// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {NodeRegistry} from "../src/NodeRegistry.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Nodes follow the contracts by their events: each contains the change, the account and the amount.
contract EventsTest is Swarm {
    address private constant OWNER = address(0xC0FFEE);
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    function test_the_vault_emits_an_event_for_each_change() external {
        uint256 exit = GENESIS + vault.exitSeconds();
        vm.expectEmit(address(vault));
        emit StakeVault.Deposited(OWNER, 12);
        vault.deposit(OWNER, 12);
        vm.expectEmit(address(vault));
        emit StakeVault.ExitRequested(OWNER, 3, exit);
        vm.prank(OWNER);
        vault.requestExit(3);
        vm.warp(exit);
        vm.expectEmit(address(vault));
        emit StakeVault.Withdrawn(OWNER, 3);
        vm.prank(OWNER);
        vault.withdraw();
        vm.expectEmit(address(vault));
        emit StakeVault.Slashed(OWNER, PROVER, 5, 4);
        vm.prank(address(verifier));
        vault.slash(OWNER, PROVER);
    }

    function test_the_gate_emits_an_event_for_each_change() external {
        AccountBond bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        bytes32 proof = keccak256("proof");
        vm.roll(77);
        vm.expectEmit(address(bonds));
        emit AccountBond.BondChanged(OWNER, 12, bytes32(uint256(1)), 0);
        bonds.deposit(OWNER, 12);
        (bytes32 history,) = bonds.lastChange();
        vm.roll(80);
        vm.expectEmit(address(bonds));
        emit AccountBond.BondChanged(OWNER, 7, history, 77);
        vm.expectEmit(address(bonds));
        emit AccountBond.ExitRequested(OWNER, 5, GENESIS + 50);
        vm.prank(OWNER);
        bonds.requestExit(5);
        vm.warp(GENESIS + 9 * EPOCH);
        vm.expectEmit(address(bonds));
        emit AccountBond.Withdrawn(OWNER, 5);
        vm.prank(OWNER);
        bonds.withdraw();
        for (uint256 i = 0; i < QUORUM; ++i) {
            vm.expectEmit(address(bonds));
            emit AccountBond.Accused(OWNER, 9, auditors[i], proof);
            if (i == 2) vm.expectEmit(address(bonds));
            if (i == 2) emit AccountBond.Slashed(OWNER, 9, 7);
            vm.prank(auditors[i]);
            bonds.accuse(OWNER, 9, proof);
        }
    }

    function test_the_ledger_emits_events_for_postings_and_their_end() external {
        EpochRoot memory root = statement(3, points, none);
        bytes[] memory signed = signatures(15, root);
        bytes32 digest = ledger.epochRootDigest(root);
        vm.warp(afterEpoch(3));
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochPosted(root, 15, afterEpoch(3) + WINDOW);
        ledger.post(root, TURN, signed);
        vm.expectEmit(address(ledger));
        emit EpochLedger.SignatureStruck(3, auditors[1]);
        vm.prank(address(verifier));
        ledger.strike(auditors[1], 3);
        vm.expectEmit(address(ledger));
        emit EpochLedger.SignatureStruck(3, auditors[2]);
        vm.prank(address(verifier));
        ledger.strike(auditors[2], 3);
        vm.warp(afterEpoch(3) + 1);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochPosted(root, 15, afterEpoch(3) + WINDOW);
        ledger.post(root, TURN, signed);
        EpochRoot memory other = statement(4, points, none);
        vm.warp(afterEpoch(4) + WINDOW);
        bytes[] memory later = signatures(7, other);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochExpired(3, digest);
        ledger.post(other, TURN, later);
        digest = ledger.epochRootDigest(other);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochRejected(4, digest);
        vm.prank(address(verifier));
        ledger.reject();
    }

    /// Calls without an effect emit no event.
    function test_the_ledger_emits_no_other_events() external {
        EpochRoot memory root = statement(3, points, none);
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(3));
        vm.recordLogs();
        ledger.post(root, TURN, signed);
        same(vm.getRecordedLogs().length, 1, "nothing has expired");
        vm.prank(address(verifier));
        ledger.strike(auditors[3], 3);
        same(vm.getRecordedLogs().length, 0, "it has not signed");
    }

    function test_the_verifier_emits_an_event_for_each_proof() external {
        EpochRoot memory root = statement(3, [CAP + 1, 3, 1, 0], none);
        _post(root);
        Place memory place = placeOf([CAP + 1, 3, 1, 0], 0);
        vm.expectEmit(address(verifier));
        emit FraudVerifier.FraudProven(FraudVerifier.Rule.OverCap, 3, PROVER);
        vm.prank(PROVER);
        verifier.proveOverCap(accounts[0], place);
        _bondAgain();
        root = statement(4, points, none);
        root.cumulativeRoot = treeOf([uint256(8), 2, 1, 0]);
        _post(root);
        Place[3] memory places = [Place(address(0), 0, new bytes32[](0)), placeOf(points, 1), placeOf([uint256(8), 2, 1, 0], 1)];
        vm.expectEmit(address(verifier));
        emit FraudVerifier.FraudProven(FraudVerifier.Rule.Balance, 4, PROVER);
        vm.prank(PROVER);
        verifier.proveBalance(accounts[1], places[0], places[1], places[2]);
        EpochRoot memory a = statement(5, points, none);
        EpochRoot memory b = statement(5, none, none);
        (bytes memory ofA, bytes memory ofB) = (signature(3, a), signature(3, b));
        vm.expectEmit(address(verifier));
        emit FraudVerifier.FraudProven(FraudVerifier.Rule.Equivocation, 5, PROVER);
        vm.prank(PROVER);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
    }

    function test_the_verifier_emits_events_for_questions_and_answers() external {
        _settleFirst();
        EpochRoot memory root = statement(1, [uint256(2), 0, 4, 0], points);
        _post(root);
        token.approve(address(verifier), type(uint256).max);
        vm.warp(block.timestamp + 1);
        vm.expectEmit(address(verifier));
        emit FraudVerifier.LeafAsked(1, accounts[2], address(this), block.timestamp + WINDOW);
        verifier.ask(accounts[2]);
        verifier.ask(accounts[0]);
        uint256[COUNT] memory earned = [uint256(2), 0, 4, 0];
        uint256[COUNT] memory has = [uint256(9), 3, 5, 0];
        Place[3] memory places = [placeOf(points, 2), placeOf(earned, 2), placeOf(has, 2)];
        vm.expectEmit(address(verifier));
        emit FraudVerifier.LeafShown(1, accounts[2], 4, 5);
        verifier.answer(accounts[2], places[0], places[1], places[2]);
        vm.warp(block.timestamp + WINDOW);
        bytes32 digest = ledger.epochRootDigest(root);
        vm.expectEmit(address(verifier));
        emit FraudVerifier.LeafHidden(1, accounts[0]);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochRejected(1, digest);
        verifier.proveHidden(accounts[0]);
    }

    function test_events_for_payout_addresses_and_payments() external {
        _settleFirst();
        vm.expectEmit(address(distributor));
        emit RewardDistributor.PayoutSet(accounts[0], OWNER);
        vm.prank(accounts[0]);
        distributor.setPayout(OWNER);
        uint256 effectiveAt = block.timestamp + 7 days;
        vm.expectEmit(address(distributor));
        emit RewardDistributor.PayoutAnnounced(accounts[0], PROVER, effectiveAt);
        vm.prank(accounts[0]);
        distributor.setPayout(PROVER);
        vm.warp(effectiveAt);
        vm.expectEmit(address(distributor));
        emit RewardDistributor.PayoutSet(accounts[0], PROVER);
        distributor.applyPayout(accounts[0]);
        distributor.claim(accounts[0], 7, proofOf(points, 0));
        same(token.balanceOf(PROVER), 7 * RATE, "paid to the payout address");
    }

    function test_the_registry_emits_an_event_for_each_claim() external {
        NodeRegistry registry = new NodeRegistry(distributor);
        bytes32 key = keccak256("key");
        vm.expectEmit(address(registry));
        emit NodeRegistry.NodeRegistered(OWNER, key, uint64(GENESIS + 9));
        vm.prank(OWNER);
        registry.register(key, uint64(GENESIS + 9));
        vm.expectEmit(address(registry));
        emit NodeRegistry.NodeRevoked(OWNER, key);
        vm.prank(OWNER);
        registry.revoke(key);
    }

    function _bondAgain() private {
        for (uint256 i = 0; i < COUNT; ++i) {
            vault.deposit(auditors[i], BOND);
        }
    }

    function _settleFirst() private {
        _post(statement(0, points, none));
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
    }

    function _post(EpochRoot memory root) private {
        vm.warp(afterEpoch(root.epoch));
        ledger.post(root, TURN, signatures(7, root));
    }
}
