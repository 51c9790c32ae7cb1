// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Attacks by parties that know the contracts; each test states the aim of the attack.
contract AttackersTest is Swarm {
    address private constant OWNER = address(0xC0FFEE);
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    /// An auditor convicts itself of two signatures in a turn of the future while it has no bond, or less than one.
    /// It must not be able to sign two roots in this turn later without losing a bond.
    function test_an_equivocation_without_a_whole_bond_can_be_punished_later() external {
        (EpochRoot memory a, EpochRoot memory b) = (statement(70, points, none), statement(70, none, none));
        (bytes memory ofA, bytes memory ofB) = (signature(0, a), signature(0, b));
        uint256[2] memory stakes = [uint256(0), BOND - 1];
        vm.prank(auditors[0]);
        vault.requestExit(BOND);
        vm.warp(GENESIS + vault.exitSeconds());
        vm.prank(auditors[0]);
        vault.withdraw();
        for (uint256 i = 0; i < 2; ++i) {
            if (stakes[i] != 0) vault.deposit(auditors[0], stakes[i]);
            verifier.proveEquivocation(TURN, a, b, ofA, ofB);
            check(!verifier.equivocated(auditors[0], 70, TURN), "not paid for");
            same(vault.bonded(auditors[0]), 0, "what there was is gone all the same");
        }
        vault.deposit(auditors[0], BOND);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        same(vault.bonded(auditors[0]), 0, "a whole bond");
        check(verifier.equivocated(auditors[0], 70, TURN), "paid for");
        vault.deposit(auditors[0], BOND);
        vm.expectPartialRevert(FraudVerifier.AlreadyProven.selector);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
    }

    /// An exiting bond counts as a bond.
    function test_an_exiting_bond_is_slashed_once() external {
        (EpochRoot memory a, EpochRoot memory b) = (statement(70, points, none), statement(70, none, none));
        (bytes memory ofA, bytes memory ofB) = (signature(0, a), signature(0, b));
        vm.prank(auditors[0]);
        vault.requestExit(BOND - 1);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        check(verifier.equivocated(auditors[0], 70, TURN), "paid for");
        same(vault.stakeOf(auditors[0]).exiting, 0, "left");
    }

    /// Signatures for one ledger are valid neither for another ledger of the same auditors nor on another chain.
    function test_signatures_are_not_valid_for_other_ledgers_or_chains() external {
        EpochLedger other = new EpochLedger(
            EpochLedger.Terms(auditors, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, 0, token, RATE)
        );
        EpochRoot memory root = statement(0, points, none);
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(0));
        (bool accepted,) = address(other).call(abi.encodeCall(other.post, (root, TURN, signed)));
        check(!accepted, "in another ledger");
        vm.chainId(block.chainid + 1);
        (accepted,) = address(ledger).call(abi.encodeCall(ledger.post, (root, TURN, signed)));
        check(!accepted, "on another chain");
    }

    /// A dishonest quorum that sees a fraud proof in the mempool strikes one of its signatures, so that the others keep
    /// their bonds. The posting stays live without a quorum, and the proof convicts the others.
    function test_a_dishonest_quorum_saves_no_bond_by_striking_one_signature() external {
        uint256[COUNT] memory over = [CAP + 1, 3, 1, 0];
        EpochRoot memory root = statement(0, over, none);
        EpochRoot memory other = statement(0, none, none);
        (bytes memory a, bytes memory b) = (signature(0, root), signature(0, other));
        Place memory place = placeOf(over, 0);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        verifier.proveEquivocation(TURN, root, other, a, b);
        bytes[] memory rest = signatures(6, root);
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, TURN, rest);
        verifier.proveOverCap(accounts[0], place);
        for (uint256 i = 0; i < QUORUM; ++i) {
            same(vault.bonded(auditors[i]), 0, "a bond");
        }
        vm.expectPartialRevert(EpochLedger.RootRejected.selector);
        ledger.post(root, TURN, rest);
    }

    // The gate's bonds

    /// An account about to be slashed requests its exit: the bond can be burned until the delay is over.
    function test_an_exiting_bond_can_still_be_burned() external {
        AccountBond bonds = _bonds(10);
        _accuse(bonds, 0, 5);
        _accuse(bonds, 1, 5);
        vm.prank(OWNER);
        bonds.requestExit(10);
        vm.warp(block.timestamp + 49);
        vm.prank(OWNER);
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        bonds.withdraw();
        _accuse(bonds, 2, 5);
        same(token.balanceOf(BURNED), 10, "all of it");
        vm.warp(block.timestamp + 1);
        vm.prank(OWNER);
        vm.expectPartialRevert(AccountBond.NothingExiting.selector);
        bonds.withdraw();
    }

    /// Each further exit restarts the delay of all exiting tokens.
    function testFuzz_many_small_exits_do_not_shorten_the_delay(uint8[6] memory waits) external {
        AccountBond bonds = _bonds(10);
        uint256 last = block.timestamp;
        for (uint256 i = 0; i < waits.length; ++i) {
            last += waits[i] % 49;
            vm.warp(last);
            vm.prank(OWNER);
            bonds.requestExit(1);
        }
        vm.warp(last + 49);
        vm.prank(OWNER);
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        bonds.withdraw();
        vm.warp(last + 50);
        vm.prank(OWNER);
        bonds.withdraw();
        same(token.balanceOf(OWNER), waits.length, "what was asked for");
        same(bonds.bonded(OWNER), 10 - waits.length, "what was not");
    }

    /// Small deposits into another account's bond neither delay its exit nor belong to it.
    function test_deposits_of_others_delay_no_exit() external {
        AccountBond bonds = _bonds(10);
        vm.prank(OWNER);
        bonds.requestExit(10);
        uint256 from = bonds.stakeOf(OWNER).withdrawableAt;
        vm.warp(from - 1);
        bonds.deposit(OWNER, 1);
        same(bonds.stakeOf(OWNER).withdrawableAt, from, "as before");
        vm.warp(from);
        vm.prank(OWNER);
        bonds.withdraw();
        same(token.balanceOf(OWNER), 10, "the exit");
        same(bonds.bonded(OWNER), 1, "the dust");
    }

    /// f auditors burn nothing, for any number of accusations, epochs and proofs.
    function testFuzz_fewer_accusers_than_a_quorum_burn_nothing(uint8[12] memory epochs, bool[12] memory which)
        external
    {
        AccountBond bonds = _bonds(10);
        for (uint256 i = 0; i < 12; ++i) {
            vm.prank(auditors[which[i] ? 3 : 1]);
            (bool done,) = address(bonds).call(abi.encodeCall(bonds.accuse, (OWNER, epochs[i] % 3, bytes32(i))));
            done;
        }
        same(bonds.bonded(OWNER), 10, "bonded");
        same(token.balanceOf(BURNED), 0, "burned");
    }

    /// An auditor's bond does not count for two auditors: tokens leave the vault after a delay, and each has one vote.
    function test_an_auditors_bond_counts_for_no_other_auditor() external {
        AccountBond bonds = _bonds(10);
        vm.prank(auditors[3]);
        vault.requestExit(BOND);
        _accuse(bonds, 0, 5);
        vm.prank(auditors[0]);
        vault.requestExit(BOND);
        vm.prank(auditors[0]);
        vm.expectPartialRevert(StakeVault.ExitTooEarly.selector);
        vault.withdraw();
        vm.prank(auditors[3]);
        vm.expectPartialRevert(AccountBond.AuditorNotBonded.selector);
        bonds.accuse(OWNER, 5, 0);
    }

    /// No account's bond is burned or paid out together with another's.
    function test_bonds_of_accounts_are_independent() external {
        AccountBond bonds = _bonds(10);
        bonds.deposit(PROVER, 20);
        for (uint256 i = 0; i < QUORUM; ++i) {
            _accuse(bonds, i, 5);
        }
        same(bonds.bonded(PROVER), 20, "the other's");
        same(token.balanceOf(address(bonds)), 20, "what is held");
        check(!bonds.accusationOf(PROVER, 5).slashed, "not accused");
        bonds.deposit(OWNER, 4);
        _accuse(bonds, 0, 6);
        same(bonds.accusationOf(OWNER, 6).accusers, 1, "another epoch begins anew");
    }

    function _bonds(uint256 amount) private returns (AccountBond bonds) {
        bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        bonds.deposit(OWNER, amount);
        vm.warp(GENESIS + 6 * EPOCH);
    }

    function _accuse(AccountBond bonds, uint256 auditor, uint64 epoch) private {
        vm.prank(auditors[auditor]);
        bonds.accuse(OWNER, epoch, keccak256("proof"));
    }
}
