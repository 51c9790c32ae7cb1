// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Attackers who know the defences; each test says what they want.
contract AttackersTest is Swarm {
    address private constant OWNER = address(0xC0FFEE);
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    /// An auditor convicts itself of two signatures in a turn of the future while it has no bond, or less than one.
    /// That must not make it free to sign two roots in this turn later, with its bond.
    function test_nobody_pays_for_an_equivocation_before_it_has_a_bond() external {
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

    /// A bond on its way out is a bond.
    function test_who_is_leaving_pays_once() external {
        (EpochRoot memory a, EpochRoot memory b) = (statement(70, points, none), statement(70, none, none));
        (bytes memory ofA, bytes memory ofB) = (signature(0, a), signature(0, b));
        vm.prank(auditors[0]);
        vault.requestExit(BOND - 1);
        verifier.proveEquivocation(TURN, a, b, ofA, ofB);
        check(verifier.equivocated(auditors[0], 70, TURN), "paid for");
        same(vault.stakeOf(auditors[0]).exiting, 0, "left");
    }

    /// Signatures for one ledger are nothing to another one of the same auditors, nor on another chain.
    function test_signatures_are_not_replayed_elsewhere() external {
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

    /// A lying quorum that sees the proof come gives up one of its own, so that the posting would fall before the proof
    /// and the others keep their bonds. The posting stays live without its quorum, and the proof convicts them.
    function test_a_lying_quorum_saves_nothing_by_giving_up_one_of_its_own() external {
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

    /// Whoever is about to be burned asks for its bond: it stays within reach until the delay is over.
    function test_an_exit_does_not_outrun_the_quorum() external {
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

    /// Small steps must not bring an earlier end: each exit waits for its whole delay with all before it.
    function testFuzz_many_small_exits_are_no_shortcut(uint8[6] memory waits) external {
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

    /// Who pays dust into another account's bond neither delays its exit nor takes part in it.
    function test_dust_of_others_delays_nobody() external {
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

    /// f auditors do not burn anything, however often, for whatever epochs and with whatever proofs they accuse.
    function testFuzz_fewer_than_a_quorum_burn_nothing(uint8[12] memory epochs, bool[12] memory which) external {
        AccountBond bonds = _bonds(10);
        for (uint256 i = 0; i < 12; ++i) {
            vm.prank(auditors[which[i] ? 3 : 1]);
            (bool done,) = address(bonds).call(abi.encodeCall(bonds.accuse, (OWNER, epochs[i] % 3, bytes32(i))));
            done;
        }
        same(bonds.bonded(OWNER), 10, "bonded");
        same(token.balanceOf(BURNED), 0, "burned");
    }

    /// One bond of an auditor does not vote twice: tokens that leave the vault wait, and each auditor has one vote.
    function test_an_auditors_tokens_do_not_vote_for_another() external {
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

    /// The swarm's accounts are apart: nothing of one is burned or paid out with another's.
    function test_one_accounts_bond_is_nothing_to_anothers() external {
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
