// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {NodeRegistry} from "../src/NodeRegistry.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Which error is reported if a call breaks two rules: clients decide by its name whether to wait, to change
///         the call, or to give up.
contract GuardsTest is Swarm {
    address private constant OWNER = address(0xC0FFEE);
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    function test_the_first_error_of_an_accusation() external {
        AccountBond bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        bonds.deposit(OWNER, 10);
        vm.expectPartialRevert(AccountBond.NotBegun.selector);
        bonds.accuse(OWNER, 1, 0); // by a stranger, and too early
        for (uint256 i = 0; i < QUORUM; ++i) {
            vm.prank(auditors[i]);
            bonds.accuse(OWNER, 0, 0);
        }
        bonds.deposit(OWNER, 10);
        vm.prank(auditors[0]);
        vm.expectPartialRevert(AccountBond.AlreadySlashed.selector);
        bonds.accuse(OWNER, 0, 0); // by one that has accused, and slashed
    }

    function test_the_first_error_of_postings_and_questions() external {
        EpochRoot memory root = statement(0, [uint256(16), 16, 16, 3], none);
        root.baseRoot = bytes32(uint256(1));
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(0));
        vm.expectPartialRevert(EpochLedger.StaleBase.selector);
        ledger.post(root, TURN, signed); // of another base, and over the budget
        root = statement(0, points, none);
        signed = signatures(7, root);
        ledger.post(root, TURN, signed);
        token.approve(address(verifier), type(uint256).max);
        vm.warp(afterEpoch(0) + 1);
        verifier.ask(accounts[0]);
        vm.expectPartialRevert(EpochLedger.StillChallengeable.selector);
        ledger.finalise(); // too early, and with a question
        vm.warp(afterEpoch(0) + WINDOW);
        vm.expectPartialRevert(FraudVerifier.TooLateToAsk.selector);
        verifier.ask(accounts[0]); // too late, and a second time
    }

    /// The order is checked for all signatures, also for those of auditors that have withdrawn their bond.
    function test_signatures_without_a_bond_must_be_in_order() external {
        vm.prank(auditors[0]);
        vault.requestExit(1);
        EpochRoot memory root = statement(0, points, none);
        bytes[] memory signed = signatures(15, root);
        bytes[] memory twice = new bytes[](5);
        (twice[0], twice[1], twice[2], twice[3], twice[4]) = (signed[0], signed[0], signed[1], signed[2], signed[3]);
        vm.warp(afterEpoch(0));
        vm.expectPartialRevert(EpochLedger.SignerOrder.selector);
        ledger.post(root, TURN, twice);
        ledger.post(root, TURN, signed);
        (,, uint64 signers) = ledger.live();
        same(signers, 14, "signers");
    }

    function test_the_first_error_of_an_announcement() external {
        ledger.announceSuccessor(_terms(0), _signed(ledger.successionDigest(_terms(0))));
        vm.warp(GENESIS + EPOCH);
        bytes[] memory signed = _signed(ledger.successionDigest(_terms(1)));
        vm.expectPartialRevert(EpochLedger.SuccessorPending.selector);
        ledger.announceSuccessor(_terms(1), signed); // beside another one, and too soon
    }

    function test_the_first_error_of_an_equivocation_proof() external {
        EpochRoot memory root = statement(0, points, none);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(99, ledger.approvalDigest(root, TURN));
        bytes memory once = abi.encodePacked(r, s, v);
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(TURN, root, root, once, once); // by a stranger, and no contradiction
    }

    function test_the_first_error_of_a_registration() external {
        NodeRegistry registry = new NodeRegistry(distributor);
        vm.expectPartialRevert(NodeRegistry.EmptyNodeKey.selector);
        registry.register(0, uint64(GENESIS)); // on none, and over
    }

    function _terms(uint64 number) private pure returns (EpochLedger.Succession memory) {
        return EpochLedger.Succession(number, 8, keccak256("other terms"), address(0), address(0));
    }

    function _signed(bytes32 digest) private view returns (bytes[] memory signed) {
        signed = new bytes[](QUORUM);
        for (uint256 i = 0; i < QUORUM; ++i) {
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(keys[i], digest);
            signed[i] = abi.encodePacked(r, s, v);
        }
    }
}
