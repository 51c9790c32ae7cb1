// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot, FinalEpoch} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";
import {Vm} from "./Vm.sol";

/// @notice After a quorum made roots with hidden leaves final, the ledger continues from the root before them.
contract RecallTest is Swarm {
    uint256[COUNT] private none;
    uint256[COUNT] private had = [uint256(12), 6, 2, 0];

    function setUp() external {
        token.approve(address(verifier), type(uint256).max);
    }

    /// Account 0 loses its points to account 3, any number of roots follow, and then it asks for its leaves.
    function testFuzz_hidden_epochs_are_recalled_with_all_later_ones(uint256 more, bool isLive) external {
        more = bound(more, 0, 3);
        _settle(statement(0, had, none));
        bytes32 explained = distributor.cumulativeRoot();
        uint256[COUNT] memory stolen = [uint256(0), 6, 2, 12];
        FinalEpoch[] memory hidden = new FinalEpoch[](more + 1);
        hidden[more] = _settle(_moved(1, stolen));
        for (uint64 i = 1; i <= more; ++i) {
            hidden[more - i] = _settle(_moved(1 + i, stolen));
        }
        distributor.claim(accounts[3], 12, proofOf(stolen, 3));
        EpochRoot memory next = _moved(uint64(2 + more), stolen);
        if (isLive) _post(next);

        uint256 tokens = token.balanceOf(address(this));
        verifier.askFinal(hidden, accounts[0]);
        vm.expectPartialRevert(FraudVerifier.StillAnswerable.selector);
        verifier.recall(hidden, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        verifier.recall(hidden, accounts[0]);
        same(token.balanceOf(address(this)), tokens, "the bond is returned");
        check(distributor.cumulativeRoot() == explained, "the root before");
        (, uint64 postedAt,) = ledger.live();
        same(postedAt, 0, "nothing is live");
        same(ledger.nextEpoch(), 2 + more, "no epoch twice");

        uint256[COUNT] memory points = [uint256(1), 2, 0, 0];
        next = statement(uint64(2 + more), points, had);
        FinalEpoch memory honest = _settle(next);
        check(honest.previousHistory == hidden[more].previousHistory, "the history goes on from there");
        uint256[COUNT] memory has = [uint256(13), 8, 2, 0];
        check(distributor.cumulativeRoot() == treeOf(has), "what was had and earned");
        Place[3] memory places = [placeOf(had, 0), placeOf(points, 0), placeOf(has, 0)];
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        verifier.proveBalance(accounts[0], places[0], places[1], places[2]);
        distributor.claim(accounts[1], 8, proofOf(has, 1));
        for (uint256 i = 0; i < COUNT; ++i) {
            same(vault.bonded(auditors[i]), BOND, "nobody is slashed");
        }
        check(distributor.paidPoints() <= distributor.grantedPoints(), "paid more than granted");
    }

    /// The honest root on the restored base cannot be proven false, and recalled epochs are never posted again.
    function test_after_a_recall_the_honest_root_is_accepted_and_recalled_epochs_are_not() external {
        _settle(statement(0, had, none));
        EpochRoot memory root = _moved(1, [uint256(0), 6, 2, 12]);
        bytes[] memory signed = signatures(7, root);
        FinalEpoch[] memory hidden = _one(_settle(root));
        verifier.askFinal(hidden, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        verifier.recall(hidden, accounts[0]);
        vm.expectPartialRevert(EpochLedger.EpochNotIncreasing.selector);
        ledger.post(root, TURN, signed);
        uint256[COUNT] memory points = [uint256(1), 2, 0, 0];
        _post(statement(2, points, had));
        uint256[COUNT] memory has = [uint256(13), 8, 2, 0];
        for (uint256 i = 0; i < COUNT; ++i) {
            Place[3] memory places = [placeOf(had, i), placeOf(points, i), placeOf(has, i)];
            vm.expectPartialRevert(FraudVerifier.Balanced.selector);
            verifier.proveBalance(accounts[i], places[0], places[1], places[2]);
        }
        vm.expectPartialRevert(EpochLedger.NotFinal.selector);
        verifier.recall(hidden, accounts[0]);
    }

    /// Whoever shows the leaves gets the bond, and the epoch stays final.
    function testFuzz_leaves_that_are_shown_keep_an_epoch_final(uint256 i, bool isLate) external {
        i = bound(i, 0, COUNT - 1);
        FinalEpoch[] memory last = _one(_settle(statement(0, had, none)));
        verifier.askFinal(last, accounts[i]);
        vm.expectPartialRevert(FraudVerifier.AlreadyAsked.selector);
        verifier.askFinal(last, accounts[i]);
        if (isLate) vm.warp(block.timestamp + WINDOW);
        Place memory nobody = Place(address(0), 0, new bytes32[](0));
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.refund(keccak256(abi.encode(last[0])), accounts[i]);
        Place memory place = placeOf(had, i);
        vm.prank(PROVER);
        verifier.answerFinal(last[0], accounts[i], nobody, place, place);
        same(token.balanceOf(PROVER), CAP * RATE, "earned");
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.answerFinal(last[0], accounts[i], nobody, place, place);
        vm.warp(block.timestamp + WINDOW);
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.recall(last, accounts[i]);
        check(distributor.cumulativeRoot() == treeOf(had), "still final");
    }

    /// Neither leaves with lost points nor places under other roots are an answer.
    function test_false_leaves_do_not_answer_a_question() external {
        _settle(statement(0, had, none));
        uint256[COUNT] memory stolen = [uint256(0), 6, 2, 12];
        FinalEpoch[] memory hidden = _one(_settle(_moved(1, stolen)));
        verifier.askFinal(hidden, accounts[0]);
        Place[3] memory places = [placeOf(had, 0), placeOf(none, 0), placeOf(stolen, 0)];
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.answerFinal(hidden[0], accounts[0], places[0], places[1], places[2]);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.answerFinal(hidden[0], accounts[0], places[0], places[1], places[0]);
        hidden[0].root.cumulativeRoot = treeOf(had); // another record
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.answerFinal(hidden[0], accounts[0], places[0], places[1], places[0]);
    }

    /// Epochs so old that nodes may have deleted their leaves stay final.
    function testFuzz_questions_about_old_epochs_are_refused(uint256 late) external {
        FinalEpoch[] memory last = _one(_settle(statement(0, had, none)));
        uint256 end = last[0].postedAt + verifier.recallSeconds();
        check(verifier.recallSeconds() > 6 * EPOCH && verifier.recallSeconds() < 7 * EPOCH, "some epochs");
        vm.warp(end + bound(late, 0, 1 << 30));
        vm.expectPartialRevert(FraudVerifier.TooLateToAsk.selector);
        verifier.askFinal(last, accounts[0]);
        vm.warp(end - 1);
        verifier.askFinal(last, accounts[0]);
    }

    function test_only_the_last_final_epochs_without_a_gap_are_asked_about() external {
        FinalEpoch memory first = _settle(statement(0, had, none));
        FinalEpoch memory second = _settle(_moved(1, had));
        FinalEpoch[] memory wrong = _one(first);
        vm.expectPartialRevert(EpochLedger.NotFinal.selector);
        verifier.askFinal(wrong, accounts[0]);
        vm.expectPartialRevert(EpochLedger.NotFinal.selector);
        verifier.askFinal(new FinalEpoch[](0), accounts[0]);
        wrong = _one(second);
        wrong[0].signers ^= 1;
        vm.expectPartialRevert(EpochLedger.NotFinal.selector);
        verifier.askFinal(wrong, accounts[0]);
        wrong[0].signers ^= 1; // it is the same memory
        FinalEpoch[] memory both = new FinalEpoch[](2);
        (both[0], both[1]) = (second, first);
        verifier.askFinal(both, accounts[0]);
        vm.expectPartialRevert(EpochLedger.OnlyVerifier.selector);
        ledger.recall(both);
        vm.expectPartialRevert(RewardDistributor.OnlyLedger.selector);
        distributor.goBack(0);
    }

    /// The bond of a question about a recalled epoch is refunded; the first epoch can be recalled, too.
    function test_questions_about_what_was_recalled_are_refunded() external {
        uint256 tokens = token.balanceOf(address(this));
        EpochRoot memory root = statement(0, had, none);
        FinalEpoch memory first = _settle(root);
        FinalEpoch[] memory both = new FinalEpoch[](2);
        (both[0], both[1]) = (_settle(_moved(1, had)), first);
        FinalEpoch[] memory second = _one(both[0]);
        verifier.askFinal(second, accounts[1]);
        verifier.askFinal(both, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        verifier.recall(both, accounts[0]);
        verifier.refund(keccak256(abi.encode(second[0])), accounts[1]);
        same(token.balanceOf(address(this)), tokens, "both bonds are back");
        check(distributor.cumulativeRoot() == 0, "as before the first");
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        check(history == ledger.EMPTY_HISTORY() && finalBlock == 0, "no record");
        _settle(statement(2, had, none));
        check(distributor.cumulativeRoot() == treeOf(had), "it goes on");
    }

    /// The events alone must show that the live posting was dropped with the recalled epochs, and the new base.
    function test_a_recall_emits_events_for_the_dropped_posting_and_epochs() external {
        _settle(statement(0, had, none));
        bytes32 explained = distributor.cumulativeRoot();
        uint256[COUNT] memory stolen = [uint256(0), 6, 2, 12];
        FinalEpoch[] memory hidden = _one(_settle(_moved(1, stolen)));
        EpochRoot memory live = _moved(2, stolen);
        _post(live);
        verifier.askFinal(hidden, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        bytes32 digest = ledger.epochRootDigest(live);
        vm.expectEmit(address(verifier));
        emit FraudVerifier.LeafHidden(1, accounts[0]);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochRejected(2, digest);
        vm.expectEmit(address(ledger));
        emit EpochLedger.EpochsRecalled(1, explained);
        verifier.recall(hidden, accounts[0]);
    }

    function test_a_recall_without_a_live_posting_rejects_nothing() external {
        _settle(statement(0, had, none));
        FinalEpoch[] memory hidden = _one(_settle(_moved(1, [uint256(0), 6, 2, 12])));
        verifier.askFinal(hidden, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        vm.recordLogs();
        verifier.recall(hidden, accounts[0]);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            check(logs[i].topics[0] != EpochLedger.EpochRejected.selector, "nothing was live");
        }
    }

    /// The ledger checks itself that these epochs are final: otherwise a defect of the verifier could change them.
    function test_the_ledger_recalls_only_final_epochs_also_for_the_verifier() external {
        FinalEpoch[] memory forged = _one(_settle(statement(0, had, none)));
        forged[0].signers ^= 1;
        vm.prank(address(verifier));
        vm.expectPartialRevert(EpochLedger.NotFinal.selector);
        ledger.recall(forged);
    }

    /// An epoch without points, with any cumulative tree.
    function _moved(uint64 epoch, uint256[COUNT] memory cumulative) private view returns (EpochRoot memory root) {
        root = statement(epoch, none, none);
        root.cumulativeRoot = treeOf(cumulative);
    }

    function _post(EpochRoot memory root) private {
        if (block.timestamp < afterEpoch(root.epoch)) vm.warp(afterEpoch(root.epoch));
        ledger.post(root, TURN, signatures(7, root));
    }

    function _settle(EpochRoot memory root) private returns (FinalEpoch memory) {
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        _post(root);
        uint64 postedAt = uint64(block.timestamp);
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
        return FinalEpoch(root, 7, postedAt, history, finalBlock);
    }

    function _one(FinalEpoch memory epoch) private pure returns (FinalEpoch[] memory list) {
        list = new FinalEpoch[](1);
        list[0] = epoch;
    }
}
