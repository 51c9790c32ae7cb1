// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {AccountBond} from "../src/AccountBond.sol";
import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {StakeVault} from "../src/StakeVault.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice Values on both sides of every bound: seconds, points and signatures.
contract BoundariesTest is Swarm {
    address private constant OWNER = address(0xC0FFEE);
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(7), 3, 1, 0];

    // Postings

    function test_a_posting_in_the_first_second_with_the_whole_budget() external {
        uint256[COUNT] memory most = [uint256(16), 16, 16, 2];
        EpochRoot memory root = statement(0, most, none);
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(0) - 1);
        vm.expectPartialRevert(EpochLedger.EpochNotOver.selector);
        ledger.post(root, TURN, signed);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signed);
        vm.expectPartialRevert(EpochLedger.OtherPostingLive.selector);
        ledger.post(root, TURN, signed);
        vm.warp(afterEpoch(0) + WINDOW - 1);
        vm.expectPartialRevert(EpochLedger.StillChallengeable.selector);
        ledger.finalise();
        vm.warp(afterEpoch(0) + WINDOW);
        ledger.finalise();
        same(distributor.grantedPoints(), BUDGET, "the whole budget");
        same(distributor.grantedEpochs(), 1, "epochs");
        (EpochRoot memory last, uint64 postedAt,) = ledger.live();
        check(postedAt == 0 && last.cumulativeRoot == root.cumulativeRoot, "nothing is live");
    }

    function test_a_total_above_the_budget_is_refused() external {
        EpochRoot memory root = statement(0, [uint256(16), 16, 16, 3], none);
        vm.warp(afterEpoch(0));
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.OverBudget.selector);
        ledger.post(root, TURN, signed);
    }

    function test_a_posting_can_be_replaced_from_an_exact_second_on() external {
        uint256 postedAt = _post(statement(0, points, none));
        EpochRoot memory other = statement(1, points, none);
        bytes[] memory signed = signatures(7, other);
        vm.warp(postedAt + WINDOW + EPOCH - 1);
        vm.expectPartialRevert(EpochLedger.OtherPostingLive.selector);
        ledger.post(other, TURN, signed);
        vm.warp(postedAt + WINDOW + EPOCH);
        ledger.post(other, TURN, signed);
        (, uint64 since,) = ledger.live();
        same(since, postedAt + WINDOW + EPOCH, "posted anew");
    }

    function test_skipped_epochs_cannot_be_posted_later() external {
        vm.warp(_post(statement(5, points, none)) + WINDOW);
        ledger.finalise();
        same(ledger.nextEpoch(), 6, "next");
        same(distributor.grantedEpochs(), 6, "epochs for claims");
        EpochRoot memory again = statement(5, points, points);
        bytes[] memory signed = signatures(7, again);
        vm.expectPartialRevert(EpochLedger.EpochNotIncreasing.selector);
        ledger.post(again, TURN, signed);
        _post(statement(6, points, points));
    }

    function test_an_epoch_of_more_than_32_bits_is_refused() external {
        uint64 epoch = 1 << 32;
        EpochRoot memory root = statement(epoch, points, none);
        vm.warp(afterEpoch(epoch));
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        ledger.post(root, TURN, signed);
    }

    function test_signatures_of_strangers_or_in_wrong_order_are_refused() external {
        EpochRoot memory root = statement(0, points, none);
        vm.warp(afterEpoch(0));
        bytes[] memory signed = signatures(7, root);
        (signed[0], signed[1]) = (signed[1], signed[0]);
        vm.expectPartialRevert(EpochLedger.SignerOrder.selector);
        ledger.post(root, TURN, signed);
        signed = new bytes[](1);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(99, ledger.approvalDigest(root, TURN));
        signed[0] = abi.encodePacked(r, s, v);
        vm.expectPartialRevert(EpochLedger.NotAuditor.selector);
        ledger.post(root, TURN, signed);
        signed = new bytes[](0);
        vm.expectPartialRevert(EpochLedger.TooFewSignatures.selector);
        ledger.post(root, TURN, signed);
    }

    /// Each of the two sums of a statement is checked, the cumulative one on a base that is not empty.
    function test_each_sum_is_checked() external {
        vm.warp(_post(statement(0, points, none)) + WINDOW);
        ledger.finalise();
        for (uint256 which = 0; which < 2; ++which) {
            EpochRoot memory root = statement(1, points, points);
            if (which == 0) root.contributionRoot = bytes32(uint256(root.contributionRoot) + 1);
            else root.cumulativeRoot = bytes32(uint256(root.cumulativeRoot) - 1);
            vm.warp(afterEpoch(1));
            bytes[] memory signed = signatures(7, root);
            vm.expectPartialRevert(EpochLedger.WrongSum.selector);
            ledger.post(root, TURN, signed);
        }
    }

    /// An epoch without points as the first epoch.
    function test_an_epoch_without_points() external {
        EpochRoot memory root = statement(0, none, none);
        check(root.cumulativeRoot == 0, "the root of nothing");
        vm.warp(_post(root) + WINDOW);
        ledger.finalise();
        check(distributor.cumulativeRoot() == 0, "still nothing");
        _post(statement(1, points, none));
        vm.prank(address(verifier));
        ledger.reject();
        (EpochRoot memory last,,) = ledger.live();
        check(last.baseRoot == 0, "base");
        EpochRoot memory next = statement(2, points, none);
        vm.warp(_post(next) + WINDOW);
        ledger.finalise();
        check(distributor.cumulativeRoot() == next.cumulativeRoot, "something at last");
    }

    // Strikes and rejections

    function test_a_strike_removes_one_signature_of_one_epoch() external {
        EpochRoot memory root = statement(4, points, none);
        vm.warp(afterEpoch(4));
        ledger.post(root, TURN, signatures(15, root));
        _strike(0, 3);
        _signed(15);
        _strike(0, 4);
        _signed(14);
        _strike(0, 4);
        _signed(14);
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
        _strike(1, 4);
        same(ledger.nextEpoch(), 5, "final with three");
        (EpochRoot memory last,, uint64 signers) = ledger.live();
        check(last.cumulativeRoot == root.cumulativeRoot && signers == 14, "nothing to strike");
    }

    function test_only_signers_lose_their_bonds_for_a_false_posting() external {
        EpochRoot memory root = statement(0, [CAP + 1, 3, 1, 0], none);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(11, root));
        verifier.proveOverCap(accounts[0], placeOf([CAP + 1, 3, 1, 0], 0));
        for (uint256 i = 0; i < COUNT; ++i) {
            same(vault.bonded(auditors[i]), i == 2 ? BOND : 0, "bond");
        }
    }

    function test_only_the_verifier_holds_and_releases_and_only_the_ledger_grants() external {
        vm.warp(_post(statement(0, points, none)));
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        ledger.hold();
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        ledger.release();
        vm.expectPartialRevert(RewardDistributor.OnlyLedger.selector);
        distributor.grant(bytes32(uint256(7)), 1, 1);
        vm.prank(address(ledger));
        bytes32 base = distributor.grant(bytes32(uint256(7)), 1, 1);
        check(base == 0 && distributor.cumulativeRoot() == bytes32(uint256(7)), "what is taken over");
    }

    function test_without_a_live_posting_nothing_is_held() external {
        vm.prank(address(verifier));
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        ledger.hold();
    }

    // Proofs and questions

    function test_exactly_the_cap_is_no_fraud() external {
        uint256[COUNT] memory full = [CAP, 3, 1, 0];
        _post(statement(0, full, none));
        Place memory place = placeOf(full, 0);
        vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
        verifier.proveOverCap(accounts[0], place);
        _ask(0);
        verifier.answer(accounts[0], _nobody(), place, place);
        vm.warp(afterEpoch(0) + WINDOW);
        ledger.finalise();
    }

    function test_two_signatures_of_a_stranger_are_refused() external {
        (EpochRoot memory a, EpochRoot memory b) = (statement(0, points, none), statement(0, none, none));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(99, ledger.approvalDigest(a, TURN));
        bytes memory ofA = abi.encodePacked(r, s, v);
        (v, r, s) = vm.sign(99, ledger.approvalDigest(b, TURN));
        vm.expectPartialRevert(FraudVerifier.NotAuditor.selector);
        verifier.proveEquivocation(TURN, a, b, ofA, abi.encodePacked(r, s, v));
    }

    /// Different epochs, one statement twice, or different auditors.
    function test_statements_that_do_not_contradict_are_no_equivocation() external {
        EpochRoot memory a = statement(0, points, none);
        EpochRoot memory later = statement(1, none, none);
        EpochRoot memory other = statement(0, none, none);
        bytes[4] memory signed = [signature(0, a), signature(0, later), signature(1, other), signature(0, a)];
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(TURN, a, later, signed[0], signed[1]);
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(TURN, a, other, signed[0], signed[2]);
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(TURN, a, a, signed[0], signed[3]);
        same(vault.bonded(auditors[0]), BOND, "bond");
    }

    function test_an_equivocation_strikes_only_the_posting_of_its_epoch() external {
        EpochRoot memory live = statement(0, points, none);
        vm.warp(afterEpoch(0));
        ledger.post(live, TURN, signatures(15, live));
        (EpochRoot memory a, EpochRoot memory b) = (statement(9, points, none), statement(9, none, none));
        verifier.proveEquivocation(TURN, a, b, signature(1, a), signature(1, b));
        _signed(15);
        b = statement(0, none, none);
        verifier.proveEquivocation(TURN, live, b, signature(2, live), signature(2, b));
        _signed(11);
    }

    function test_deadlines_of_questions_and_answers_to_the_second() external {
        uint256 postedAt = _post(statement(0, points, none));
        token.approve(address(verifier), type(uint256).max);
        vm.warp(postedAt + WINDOW);
        vm.expectPartialRevert(FraudVerifier.TooLateToAsk.selector);
        verifier.ask(accounts[0]);
        vm.warp(postedAt + WINDOW - 1);
        verifier.ask(accounts[0]);
        vm.warp(postedAt + 2 * WINDOW - 2);
        vm.expectPartialRevert(FraudVerifier.StillAnswerable.selector);
        verifier.proveHidden(accounts[0]);
        vm.warp(postedAt + 2 * WINDOW - 1);
        vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
        ledger.finalise();
        verifier.answer(accounts[0], _nobody(), placeOf(points, 0), placeOf(points, 0));
        ledger.finalise();
        same(ledger.nextEpoch(), 1, "an answer after its time is in time while nobody has rejected");
    }

    function test_each_question_needs_its_own_answer() external {
        _post(statement(0, points, none));
        _ask(0);
        _ask(1);
        verifier.answer(accounts[0], _nobody(), placeOf(points, 0), placeOf(points, 0));
        vm.warp(afterEpoch(0) + WINDOW);
        vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
        ledger.finalise();
        verifier.answer(accounts[1], _nobody(), placeOf(points, 1), placeOf(points, 1));
        ledger.finalise();
    }

    /// Consistent leaves above the cap are no answer: they prove that the posting is false.
    function test_leaves_above_the_cap_do_not_answer_a_question() external {
        uint256[COUNT] memory over = [CAP + 1, 3, 1, 0];
        _post(statement(0, over, none));
        _ask(0);
        Place memory place = placeOf(over, 0);
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.answer(accounts[0], _nobody(), place, place);
    }

    /// The bond of a question is returned once, by the rejection or by a refund.
    function test_a_question_that_rejected_a_posting_is_not_refunded_again() external {
        EpochRoot memory root = statement(0, points, none);
        bytes32 posting = verifier.postingOf(ledger.epochRootDigest(root), uint64(_post(root)));
        _ask(0);
        _ask(1);
        vm.warp(block.timestamp + WINDOW);
        verifier.proveHidden(accounts[0]);
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.refund(posting, accounts[0]);
        verifier.refund(posting, accounts[1]);
        same(token.balanceOf(address(verifier)), 0, "nothing is left");
    }

    /// The bond of a question about a posting that another proof rejected is refunded, also while another one is live.
    function test_a_refund_while_another_posting_is_live() external {
        EpochRoot memory root = statement(0, points, none);
        uint256 postedAt = _post(root);
        bytes32 posting = verifier.postingOf(ledger.epochRootDigest(root), uint64(postedAt));
        check(posting == keccak256(abi.encode(ledger.epochRootDigest(root), uint64(postedAt))), "its name");
        _ask(0);
        (address[] memory asked,) = verifier.openQuestions(posting);
        check(asked[0] == accounts[0], "who was asked about");
        vm.prank(address(verifier));
        ledger.reject();
        root.archiveDigest = keccak256("another");
        ledger.post(root, TURN, signatures(7, root));
        uint256 before = token.balanceOf(address(this));
        vm.prank(PROVER);
        verifier.refund(posting, accounts[0]);
        same(token.balanceOf(address(this)) - before, CAP * RATE, "to who asked, whoever sends it");
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
    }

    // Claims

    function test_a_claim_pays_only_new_points() external {
        _settle(points);
        distributor.claim(accounts[0], 7, proofOf(points, 0));
        bytes32[] memory proof = proofOf(points, 0);
        vm.expectPartialRevert(RewardDistributor.NothingToClaim.selector);
        distributor.claim(accounts[0], 7, proof);
        _settle([uint256(9), 3, 1, 0]);
        distributor.claim(accounts[0], 9, proofOf([uint256(9), 3, 1, 0], 0));
        same(token.balanceOf(accounts[0]), 9 * RATE, "tokens");
        same(distributor.paidPoints(), 9, "paid");
        same(distributor.grantedPoints(), 13, "granted");
    }

    function test_no_claim_above_the_granted_points() external {
        _settle([uint256(7), 0, 0, 0]);
        distributor.claim(accounts[0], 7, new bytes32[](0));
        _settle([uint256(0), 8, 0, 0]); // one granted, and seven that were paid before
        vm.expectPartialRevert(RewardDistributor.OverGranted.selector);
        distributor.claim(accounts[1], 8, new bytes32[](0));
        _settle([uint256(0), 0, 1, 7]);
        bytes32[] memory proof = proofOf([uint256(0), 0, 1, 7], 2);
        distributor.claim(accounts[2], 1, proof);
        same(distributor.paidPoints(), distributor.grantedPoints(), "the last granted point");
    }

    function test_no_claim_above_the_cap_of_all_epochs_since_the_enrolment() external {
        _settle([CAP, 0, 0, 0]);
        distributor.claim(accounts[0], CAP, new bytes32[](0));
        _settle([CAP, 1, 0, 0]);
        _settle([3 * CAP, 1, 0, 0]);
        distributor.claim(accounts[0], 3 * CAP, proofOf([3 * CAP, 1, 0, 0], 0));
        _settle([4 * CAP + 1, 1, 0, 0]);
        bytes32[] memory proof = proofOf([4 * CAP + 1, 1, 0, 0], 0);
        vm.expectPartialRevert(RewardDistributor.OverCap.selector);
        distributor.claim(accounts[0], 4 * CAP + 1, proof);
    }

    function test_the_life_of_a_payout_address() external {
        address first = address(0xF1);
        check(distributor.payoutOf(OWNER) == OWNER, "to itself");
        vm.prank(OWNER);
        vm.expectPartialRevert(RewardDistributor.EmptyPayout.selector);
        distributor.setPayout(address(0));
        vm.expectPartialRevert(RewardDistributor.NoPayoutChange.selector);
        distributor.applyPayout(OWNER);
        _setPayout(accounts[0], first);
        check(distributor.payoutOf(accounts[0]) == first, "at once");
        _settle(points);
        distributor.claim(accounts[0], 7, proofOf(points, 0));
        check(distributor.payoutOf(accounts[0]) == first, "it outlasts a claim");
        same(token.balanceOf(first), 7 * RATE, "paid");
        _setPayout(accounts[0], OWNER);
        (address payout, uint64 effectiveAt) = distributor.payoutChange(accounts[0]);
        check(payout == OWNER && effectiveAt == block.timestamp + 7 days, "announced");
        vm.warp(effectiveAt - 1);
        vm.expectPartialRevert(RewardDistributor.PayoutTooEarly.selector);
        distributor.applyPayout(accounts[0]);
        vm.warp(effectiveAt);
        distributor.applyPayout(accounts[0]);
        check(distributor.payoutOf(accounts[0]) == OWNER, "changed");
        vm.expectPartialRevert(RewardDistributor.NoPayoutChange.selector);
        distributor.applyPayout(accounts[0]);
        same(distributor.claimed(accounts[0]), 7, "and nothing else");
    }

    function test_a_delay_that_does_not_fit_is_refused() external {
        _setPayout(accounts[0], OWNER);
        vault.deposit(address(this), 1);
        vm.warp(type(uint64).max);
        vm.prank(accounts[0]);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        distributor.setPayout(PROVER);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        vault.requestExit(1);
    }

    // Bonds

    function test_bonds_of_the_vault_that_do_not_fit_or_do_not_exist() external {
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        vault.deposit(OWNER, (1 << 96) + 1);
        vm.expectPartialRevert(StakeVault.NothingDeposited.selector);
        vault.deposit(OWNER, 0);
        vault.deposit(OWNER, 10);
        uint256[2] memory wrong = [uint256(0), 11];
        for (uint256 i = 0; i < 2; ++i) {
            vm.prank(OWNER);
            vm.expectPartialRevert(StakeVault.NotThatMuchBonded.selector);
            vault.requestExit(wrong[i]);
        }
        vm.prank(OWNER);
        vm.expectPartialRevert(StakeVault.NothingExiting.selector);
        vault.withdraw();
        vm.prank(OWNER);
        vault.requestExit(10);
        same(vault.bonded(OWNER), 0, "all of it");
        same(vault.stakeOf(OWNER).exiting, 10, "on its way");
        same(vault.stakeOf(OWNER).withdrawableAt, GENESIS + vault.exitSeconds(), "from when");
    }

    function test_bonds_of_accounts_that_do_not_fit() external {
        AccountBond bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        bonds.deposit(OWNER, (1 << 96) + 1);
        bonds.deposit(address(this), 10);
        same(bonds.bonded(address(this)), 10, "bonded");
        bonds.requestExit(10);
        same(bonds.stakeOf(address(this)).withdrawableAt, GENESIS + 50, "from when");
        vm.warp(GENESIS + 49);
        vm.expectPartialRevert(AccountBond.ExitTooEarly.selector);
        bonds.withdraw();
        bonds.deposit(address(this), 1);
        vm.warp(type(uint64).max);
        vm.expectPartialRevert(SafeCast.SafeCastOverflowedUintDowncast.selector);
        bonds.requestExit(1);
    }

    /// A bond that is one unit too small counts neither in a posting nor in an accusation.
    function test_a_bond_counts_once_it_is_complete() external {
        AccountBond bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        bonds.deposit(OWNER, 10);
        vm.prank(auditors[0]);
        vault.requestExit(1);
        vm.prank(auditors[0]);
        vm.expectPartialRevert(AccountBond.AuditorNotBonded.selector);
        bonds.accuse(OWNER, 0, 0);
        vault.deposit(auditors[0], 1);
        vm.prank(auditors[0]);
        bonds.accuse(OWNER, 0, 0);
        check(bonds.BURNED() == BURNED && bonds.EMPTY_HISTORY() == bytes32(uint256(1)), "constants");
        vm.expectPartialRevert(AccountBond.NotAuditor.selector);
        bonds.accuse(OWNER, 0, 0);
    }

    /// Burning is a change in the history if any unit counted, and none if nothing did.
    function test_what_a_burned_bond_changes() external {
        AccountBond bonds = new AccountBond(ledger, 50);
        token.approve(address(bonds), type(uint256).max);
        bonds.deposit(OWNER, 5);
        vm.prank(OWNER);
        bonds.requestExit(4);
        (bytes32 before,) = bonds.lastChange();
        _burn(bonds, OWNER);
        (bytes32 history,) = bonds.lastChange();
        check(history == keccak256(abi.encode(OWNER, uint256(0), before, block.number)), "one unit counted");
        bonds.deposit(PROVER, 5);
        vm.prank(PROVER);
        bonds.requestExit(5);
        (before,) = bonds.lastChange();
        _burn(bonds, PROVER);
        (history,) = bonds.lastChange();
        check(history == before, "nothing counted");
        same(token.balanceOf(address(bonds)), 0, "all is burned");
    }

    function _burn(AccountBond bonds, address account) private {
        for (uint256 i = 0; i < QUORUM; ++i) {
            vm.prank(auditors[i]);
            bonds.accuse(account, 0, 0);
        }
    }

    function _settle(uint256[COUNT] memory cumulative) private {
        uint64 epoch = ledger.nextEpoch();
        EpochRoot memory root = statement(epoch, none, none);
        uint256 total = sumOf(cumulative) - distributor.grantedPoints();
        root.contributionRoot = bytes32((uint256(keccak256("hidden")) << 64) | total);
        (root.cumulativeRoot, root.total) = (treeOf(cumulative), total);
        vm.warp(_post(root) + WINDOW);
        ledger.finalise();
    }

    function _setPayout(address account, address payout) private {
        vm.prank(account);
        distributor.setPayout(payout);
    }

    function _strike(uint256 auditor, uint64 epoch) private {
        vm.prank(address(verifier));
        ledger.strike(auditors[auditor], epoch);
    }

    function _signed(uint64 expected) private view {
        (,, uint64 signers) = ledger.live();
        same(signers, expected, "signers");
    }

    function _ask(uint256 i) private {
        token.approve(address(verifier), type(uint256).max);
        vm.warp(block.timestamp + 1);
        verifier.ask(accounts[i]);
    }

    function _nobody() private pure returns (Place memory) {
        return Place(address(0), 0, new bytes32[](0));
    }

    function _post(EpochRoot memory root) private returns (uint256 postedAt) {
        postedAt = afterEpoch(root.epoch) > block.timestamp ? afterEpoch(root.epoch) : block.timestamp;
        vm.warp(postedAt);
        ledger.post(root, TURN, signatures(7, root));
    }
}
