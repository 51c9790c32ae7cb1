// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochLedger} from "../src/EpochLedger.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Announcements of successors: signatures, notice, numbers and withdrawal.
contract SuccessionTest is Swarm {
    bytes32 private constant TERMS = keccak256("other terms");

    function signed(uint256 signers, bytes32 digest) private view returns (bytes[] memory found) {
        uint256 count = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (signers & (1 << i) != 0) ++count;
        }
        found = new bytes[](count);
        uint256 next = 0;
        for (uint256 i = 0; next < count; ++i) {
            if (signers & (1 << i) == 0) continue;
            (uint8 v, bytes32 r, bytes32 s) = vm.sign(keys[i], digest);
            found[next++] = abi.encodePacked(r, s, v);
        }
    }

    function terms(uint64 number, uint256 activation) private pure returns (EpochLedger.Succession memory) {
        return EpochLedger.Succession(number, uint64(activation), TERMS, address(0), address(0));
    }

    function announce(EpochLedger.Succession memory succession, uint256 signers) private {
        ledger.announceSuccessor(succession, signed(signers, ledger.successionDigest(succession)));
    }

    function inEpoch(uint256 epoch) private {
        vm.warp(GENESIS + epoch * EPOCH);
    }

    function testFuzz_a_quorum_announces_with_notice(uint256 now_, uint256 notice, uint256 seconds_) external {
        now_ = bound(now_, 0, 1e9);
        notice = bound(notice, ledger.NOTICE_EPOCHS(), 1e9);
        vm.warp(GENESIS + now_ * EPOCH + bound(seconds_, 0, EPOCH - 1));
        same(ledger.currentEpoch(), now_, "epoch");
        announce(terms(0, now_ + notice), 7);
        EpochLedger.Succession[] memory found = ledger.successions();
        same(found.length, 1, "announcements");
        same(found[0].number, 0, "number");
        same(found[0].activationEpoch, now_ + notice, "activation");
        check(found[0].successor == TERMS, "successor");
        same(ledger.nextSuccession(), 1, "next");
    }

    function testFuzz_an_announcement_without_notice_is_refused(uint256 now_, uint256 notice) external {
        now_ = bound(now_, 0, 1e9);
        inEpoch(now_);
        EpochLedger.Succession memory early = terms(0, now_ + bound(notice, 0, ledger.NOTICE_EPOCHS() - 1));
        bytes[] memory signatures_ = signed(7, ledger.successionDigest(early));
        vm.expectPartialRevert(EpochLedger.TooSoon.selector);
        ledger.announceSuccessor(early, signatures_);
    }

    function test_before_the_first_epoch_the_clock_shows_zero() external {
        vm.warp(GENESIS - 1);
        same(ledger.currentEpoch(), 0, "epoch");
        announce(terms(0, ledger.NOTICE_EPOCHS()), 7);
    }

    /// Epochs have 64 bits. A later time is refused, and does not start again with the first auditors.
    function test_an_epoch_above_64_bits_is_refused() external {
        inEpoch(1 << 64);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        ledger.auditors();
    }

    function testFuzz_fewer_than_a_quorum_announce_nothing(uint256 signers) external {
        signers = bound(signers, 0, 15);
        uint256 count = 0;
        for (uint256 rest = signers; rest != 0; rest &= rest - 1) ++count;
        if (count >= QUORUM) return;
        EpochLedger.Succession memory wanted = terms(0, 20);
        bytes[] memory signatures_ = signed(signers, ledger.successionDigest(wanted));
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.announceSuccessor(wanted, signatures_);
    }

    function test_an_auditor_without_its_bond_does_not_count() external {
        vm.prank(auditors[0]);
        vault.requestExit(1);
        EpochLedger.Succession memory wanted = terms(0, 20);
        bytes[] memory signatures_ = signed(7, ledger.successionDigest(wanted));
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.announceSuccessor(wanted, signatures_);
    }

    function test_signatures_for_other_terms_or_another_purpose_do_not_count() external {
        EpochLedger.Succession memory wanted = terms(0, 20);
        bytes[] memory signatures_ = signed(7, ledger.successionDigest(terms(0, 21)));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.announceSuccessor(wanted, signatures_);
        signatures_ = signed(7, ledger.withdrawalDigest(0));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.announceSuccessor(wanted, signatures_);
    }

    function test_signatures_for_another_ledger_do_not_count() external {
        EpochLedger other = new EpochLedger(
            EpochLedger.Terms(auditors, QUORUM, GENESIS, EPOCH, WINDOW, BUDGET, CAP, BOND, token, RATE)
        );
        EpochLedger.Succession memory wanted = terms(0, 20);
        bytes[] memory signatures_ = signed(7, other.successionDigest(wanted));
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.announceSuccessor(wanted, signatures_);
    }

    function test_an_announcement_needs_a_successor() external {
        EpochLedger.Succession memory empty = EpochLedger.Succession(0, 20, 0, address(0), address(0));
        bytes[] memory signatures_ = signed(7, ledger.successionDigest(empty));
        vm.expectPartialRevert(EpochLedger.NothingChanges.selector);
        ledger.announceSuccessor(empty, signatures_);
    }

    function test_only_one_announcement_is_pending_and_each_has_its_number() external {
        announce(terms(0, 8), 7);
        bytes[] memory again = signed(7, ledger.successionDigest(terms(0, 8)));
        vm.expectPartialRevert(EpochLedger.WrongNumber.selector);
        ledger.announceSuccessor(terms(0, 8), again);
        inEpoch(7);
        bytes[] memory second = signed(7, ledger.successionDigest(terms(1, 40)));
        vm.expectPartialRevert(EpochLedger.SuccessorPending.selector);
        ledger.announceSuccessor(terms(1, 40), second);
        inEpoch(8);
        ledger.announceSuccessor(terms(1, 40), second);
        same(ledger.successions().length, 2, "announcements");
    }

    function test_a_quorum_withdraws_a_pending_announcement() external {
        announce(terms(0, 8), 7);
        inEpoch(3);
        bytes[] memory few = signed(3, ledger.withdrawalDigest(0));
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.withdrawSuccessor(few);
        bytes[] memory enough = signed(7, ledger.withdrawalDigest(0));
        ledger.withdrawSuccessor(enough);
        same(ledger.successions().length, 0, "announcements");
        vm.expectPartialRevert(EpochLedger.NothingPending.selector);
        ledger.withdrawSuccessor(enough);
        announce(terms(1, 20), 14);
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.withdrawSuccessor(enough); // these are for announcement 0
    }

    function test_an_announcement_cannot_be_withdrawn_shortly_before_its_activation() external {
        announce(terms(0, 8), 7);
        bytes[] memory enough = signed(7, ledger.withdrawalDigest(0));
        inEpoch(4);
        vm.expectPartialRevert(EpochLedger.TooLateToWithdraw.selector);
        ledger.withdrawSuccessor(enough);
        inEpoch(8);
        vm.expectPartialRevert(EpochLedger.NothingPending.selector);
        ledger.withdrawSuccessor(enough);
    }

    /// Nodes read announcements and withdrawals from the events' fields.
    function test_announcements_and_withdrawals_emit_events() external {
        announce(terms(0, 8), 7);
        inEpoch(8);
        EpochLedger.Succession memory both = EpochLedger.Succession(1, 16, TERMS, auditors[3], PROVER);
        bytes[] memory signatures_ = signed(7, ledger.successionDigest(both));
        vm.expectEmit(address(ledger));
        emit EpochLedger.SuccessorAnnounced(1, 16, TERMS, auditors[3], PROVER);
        ledger.announceSuccessor(both, signatures_);
        signatures_ = signed(7, ledger.withdrawalDigest(1));
        vm.expectEmit(address(ledger));
        emit EpochLedger.SuccessorWithdrawn(1);
        ledger.withdrawSuccessor(signatures_);
    }

    /// With a shorter notice a dishonest quorum could replace the others before users can leave.
    function test_the_time_lock_is_eight_epochs_of_which_four_are_settled() external view {
        same(ledger.NOTICE_EPOCHS(), 8, "notice");
        same(ledger.SETTLED_EPOCHS(), 4, "settled");
    }

    function test_nothing_is_pending_after_deployment() external {
        vm.expectPartialRevert(EpochLedger.NothingPending.selector);
        ledger.withdrawSuccessor(new bytes[](0));
    }
}
