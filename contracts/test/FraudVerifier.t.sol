// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {Place, SumTree} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

contract FraudVerifierTest is Swarm {
    uint256[COUNT] private none;

    function testFuzz_no_proof_is_accepted_against_an_honest_posting(
        uint256[COUNT] memory before,
        uint256[COUNT] memory points,
        uint256 i
    ) external {
        i = bound(i, 0, COUNT - 1);
        (before, points) = (_small(before), _small(points));
        _settle(before);
        _post(statement(1, points, before));
        Place memory place = placeOf(points, i);
        vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
        verifier.proveOverCap(accounts[i], place);
        (Place memory had, Place memory has) = (placeOf(before, i), placeOf(_added(before, points), i));
        vm.expectPartialRevert(FraudVerifier.Balanced.selector);
        verifier.proveBalance(accounts[i], had, place, has);
    }

    function testFuzz_forged_places_are_refused(
        uint256[COUNT] memory points,
        address holder,
        uint256 value,
        bytes32[] calldata beside,
        uint256 i
    ) external {
        i = bound(i, 0, COUNT - 1);
        points = _small(points);
        _post(statement(0, points, none));
        Place memory genuine = placeOf(points, i);
        Place memory forged = Place(holder, value, genuine.proof);
        vm.assume(holder != genuine.holder || value != genuine.value);
        _isNoProof(i, forged, genuine);
        forged = Place(genuine.holder, genuine.value, beside);
        vm.assume(keccak256(abi.encode(beside)) != keccak256(abi.encode(genuine.proof)));
        _isNoProof(i, forged, genuine);
    }

    /// A place that is not on the account's path does not prove its value.
    function testFuzz_places_of_other_accounts_are_refused(uint256[COUNT] memory points, uint256 i, uint256 other)
        external
    {
        (i, other) = (bound(i, 0, COUNT - 1), bound(other, 0, COUNT - 1));
        points = _small(points);
        points[other] = bound(points[other], 1, 9);
        vm.assume(i != other && points[i] != 0);
        _post(statement(0, points, none));
        Place memory absent = placeOf(points, other);
        Place memory has = placeOf(points, i);
        (bool convicted,) =
            address(verifier).call(abi.encodeCall(verifier.proveBalance, (accounts[i], _nobody(), absent, has)));
        check(!convicted, "convicted");
    }

    function testFuzz_any_account_over_its_cap_is_proven(uint256 over, uint256 i) external {
        uint256[COUNT] memory points;
        i = bound(i, 0, COUNT - 1);
        points[i] = bound(over, CAP + 1, BUDGET);
        _post(statement(0, points, none));
        Place memory place = placeOf(points, i);
        vm.prank(PROVER);
        verifier.proveOverCap(accounts[i], place);
        _isConvicted();
    }

    /// Any cumulative value other than the previous one plus the points costs the signers their bonds.
    function testFuzz_any_wrong_balance_is_proven(
        uint256[COUNT] memory before,
        uint256[COUNT] memory points,
        uint256 from,
        uint256 to,
        uint256 moved
    ) external {
        (from, to) = (bound(from, 0, COUNT - 1), bound(to, 0, COUNT - 1));
        vm.assume(from != to);
        (before, points) = (_small(before), _small(points));
        before[from] = bound(before[from], 1, 12);
        _settle(before);
        uint256[COUNT] memory has = _added(before, points);
        moved = bound(moved, 1, has[from]);
        (has[from], has[to]) = (has[from] - moved, has[to] + moved);
        EpochRoot memory root = statement(1, points, before);
        root.cumulativeRoot = treeOf(has);
        _post(root);
        uint256 who = moved % 2 == 0 ? from : to;
        Place[3] memory places = [placeOf(before, who), placeOf(points, who), placeOf(has, who)];
        vm.prank(PROVER);
        verifier.proveBalance(accounts[who], places[0], places[1], places[2]);
        _isConvicted();
    }

    /// A dishonest quorum can make paths long; a prover may record the values one by one.
    function testFuzz_recorded_values_replace_places(
        uint256[COUNT] memory before,
        uint256[COUNT] memory points,
        uint256 i,
        uint256 which
    ) external {
        i = bound(i, 0, COUNT - 1);
        which = bound(which, 1, 7);
        (before, points) = (_small(before), _small(points));
        before[i] = bound(before[i], 1, 12);
        _settle(before);
        uint256[COUNT] memory has = _added(before, points);
        (has[i], has[(i + 1) % COUNT]) = (has[i] - 1, has[(i + 1) % COUNT] + 1);
        EpochRoot memory root = statement(1, points, before);
        root.cumulativeRoot = treeOf(has);
        _post(root);
        bytes32[3] memory roots = [root.baseRoot, root.contributionRoot, root.cumulativeRoot];
        Place[3] memory places = [placeOf(before, i), placeOf(points, i), placeOf(has, i)];
        for (uint256 tree = 0; tree < 3; ++tree) {
            if (which & (1 << tree) == 0) continue;
            verifier.recordValue(roots[tree], accounts[i], places[tree]);
            places[tree] = _elsewhere();
        }
        vm.prank(PROVER);
        verifier.proveBalance(accounts[i], places[0], places[1], places[2]);
        _isConvicted();
    }

    /// The recorded values of an honest posting prove nothing against it, and answer questions.
    function testFuzz_recorded_values_answer_like_places(uint256[COUNT] memory before, uint256 i) external {
        i = bound(i, 0, COUNT - 1);
        before = _small(before);
        before[(i + 1) % COUNT] = 5; // an empty tree needs no place
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        _settle(before);
        EpochRoot memory root = statement(1, points, before);
        _post(root);
        verifier.recordValue(root.baseRoot, accounts[i], placeOf(before, i));
        verifier.recordValue(root.contributionRoot, accounts[i], placeOf(points, i));
        verifier.recordValue(root.cumulativeRoot, accounts[i], placeOf(_added(before, points), i));
        vm.expectPartialRevert(FraudVerifier.Balanced.selector);
        verifier.proveBalance(accounts[i], _elsewhere(), _elsewhere(), _elsewhere());
        vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
        verifier.proveOverCap(accounts[i], _elsewhere());
        _ask(i);
        vm.prank(PROVER);
        verifier.answer(accounts[i], _elsewhere(), _elsewhere(), _elsewhere());
        same(token.balanceOf(PROVER), CAP * RATE, "earned");
    }

    /// A record counts only for its root and account, and only a value under the root can be recorded.
    function test_only_true_values_are_recorded_each_for_its_root_and_account() external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        uint256[COUNT] memory greedy = [CAP + 1, 3, 1, 0];
        EpochRoot memory root = statement(0, points, none);
        _post(root);
        verifier.recordValue(treeOf(greedy), accounts[0], placeOf(greedy, 0));
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveOverCap(accounts[0], placeOf(greedy, 0));
        verifier.recordValue(root.contributionRoot, accounts[1], placeOf(points, 1));
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveOverCap(accounts[0], placeOf(greedy, 0));
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.recordValue(root.contributionRoot, accounts[0], placeOf(greedy, 0));
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.recordValue(root.contributionRoot, accounts[0], _elsewhere());
        same(verifier.recordedValue(root.contributionRoot, accounts[0]), 0, "not recorded");
        vm.expectPartialRevert(SumTree.BadPath.selector);
        verifier.recordValue(root.contributionRoot, accounts[0], Place(accounts[1], 3, new bytes32[](2)));
        // The same value again, from its place or from the record.
        verifier.recordValue(root.contributionRoot, accounts[1], _elsewhere());
        same(verifier.recordedValue(root.contributionRoot, accounts[1]), 3 + 1, "recorded again");
    }

    function testFuzz_a_root_with_another_sum_is_not_posted(uint256[COUNT] memory points, uint64 sum, bool which)
        external
    {
        points = _small(points);
        EpochRoot memory root = statement(0, points, none);
        vm.assume(sum != root.total);
        bytes32 wrong = bytes32(((uint256(root.contributionRoot) >> 64) << 64) | sum);
        if (which) root.contributionRoot = wrong;
        else root.cumulativeRoot = wrong;
        vm.warp(afterEpoch(0));
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.WrongSum.selector);
        ledger.post(root, TURN, signed);
    }

    /// Sums and values of more than 64 bits cannot be in a tree.
    function testFuzz_sums_that_overflow_have_no_places(uint64 large, uint256 beyond) external {
        uint256[COUNT] memory points;
        points[0] = bound(large, 9, type(uint64).max);
        points[1] = type(uint64).max - points[0] + 8;
        EpochRoot memory root = statement(0, none, none);
        (root.contributionRoot, root.total) = (treeOf(points), 7);
        root.cumulativeRoot = root.contributionRoot;
        _post(root);
        Place memory place = placeOf(points, 0);
        vm.expectPartialRevert(SumTree.BadPath.selector);
        verifier.proveOverCap(accounts[0], place);
        place.value = bound(beyond, 1 << 64, type(uint256).max);
        vm.expectPartialRevert(SumTree.ValueTooLarge.selector);
        verifier.proveOverCap(accounts[0], place);
        place = Place(accounts[0], 1, new bytes32[](161));
        vm.expectPartialRevert(SumTree.BadPath.selector);
        verifier.proveOverCap(accounts[0], place);
    }

    // Availability of leaves

    function testFuzz_leaves_that_nobody_shows_reject_a_posting(uint256 i, uint256 late, uint256 early) external {
        i = bound(i, 0, COUNT - 1);
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        _post(root);
        uint256 askedAt = block.timestamp + bound(late, 1, WINDOW - 1);
        vm.warp(askedAt - 1); // the question is asked in the next second
        uint256 had = token.balanceOf(address(this));
        _ask(i);
        same(had - token.balanceOf(address(this)), CAP * RATE, "the bond");
        vm.warp(askedAt + bound(early, 0, WINDOW - 1));
        vm.expectPartialRevert(FraudVerifier.StillAnswerable.selector);
        verifier.proveHidden(accounts[i]);
        vm.warp(askedAt + WINDOW);
        vm.expectPartialRevert(EpochLedger.QuestionsOpen.selector);
        ledger.finalise();
        verifier.proveHidden(accounts[i]);
        same(token.balanceOf(address(this)), had, "the bond is returned");
        same(vault.bonded(auditors[0]), BOND, "nobody is slashed");
        bytes[] memory signed = signatures(7, root);
        vm.expectPartialRevert(EpochLedger.RootRejected.selector);
        ledger.post(root, TURN, signed);
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        verifier.proveHidden(accounts[i]);
    }

    function testFuzz_the_account_that_shows_the_leaves_gets_the_bond(
        uint256[COUNT] memory before,
        uint256[COUNT] memory points,
        uint256 i
    ) external {
        i = bound(i, 0, COUNT - 1);
        (before, points) = (_small(before), _small(points));
        _settle(before);
        _post(statement(1, points, before));
        _ask(i);
        vm.expectPartialRevert(FraudVerifier.AlreadyAsked.selector);
        verifier.ask(accounts[i]);
        Place[3] memory places =
            [placeOf(before, i), placeOf(points, i), placeOf(_added(before, points), i)];
        vm.prank(PROVER);
        verifier.answer(accounts[i], places[0], places[1], places[2]);
        same(token.balanceOf(PROVER), CAP * RATE, "earned");
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.answer(accounts[i], places[0], places[1], places[2]);
        vm.warp(block.timestamp + WINDOW);
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.proveHidden(accounts[i]);
        ledger.finalise();
        same(ledger.nextEpoch(), 2, "final");
    }

    /// Leaves with lost points, or with points above the cap, are no answer.
    function testFuzz_false_leaves_do_not_answer_a_question(uint256 moved, bool isOver) external {
        uint256[COUNT] memory before = [uint256(7), 3, 1, 0];
        _settle(before);
        uint256[COUNT] memory points = [uint256(1), 2, 0, isOver ? CAP + 1 : 1];
        uint256[COUNT] memory has = _added(before, points);
        uint256 asked = isOver ? 3 : 0;
        moved = isOver ? 0 : bound(moved, 1, 8);
        (has[0], has[3]) = (has[0] - moved, has[3] + moved);
        EpochRoot memory root = statement(1, points, before);
        root.cumulativeRoot = treeOf(has);
        _post(root);
        _ask(asked);
        Place[3] memory places = [placeOf(before, asked), placeOf(points, asked), placeOf(has, asked)];
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.answer(accounts[asked], places[0], places[1], places[2]);
        places[2].value += 1;
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.answer(accounts[asked], places[0], places[1], places[2]);
    }

    function testFuzz_no_question_after_the_window(uint256 late) external {
        uint256 postedAt = _post(statement(0, [uint256(7), 3, 1, 0], none));
        vm.warp(postedAt + WINDOW + bound(late, 0, 1 << 30));
        vm.expectPartialRevert(FraudVerifier.TooLateToAsk.selector);
        verifier.ask(accounts[0]);
    }

    /// A posting's name contains the second of its posting: one that a recall drops and that is posted again in this
    /// second would have the same open question.
    function test_no_question_in_the_second_of_the_posting() external {
        EpochRoot memory root = statement(0, [uint256(7), 3, 1, 0], none);
        uint256 postedAt = _post(root);
        token.approve(address(verifier), type(uint256).max);
        vm.expectPartialRevert(FraudVerifier.TooEarlyToAsk.selector);
        verifier.ask(accounts[0]);
        vm.warp(postedAt + 1);
        verifier.ask(accounts[0]);
    }

    /// A posting waits for the answers to both questions; the bond of a question about a rejected one is refunded.
    function test_questions_are_settled_independently() external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        EpochRoot memory root = statement(0, points, none);
        uint256 postedAt = _post(root);
        bytes32 posting = verifier.postingOf(ledger.epochRootDigest(root), uint64(postedAt));
        uint256 had = token.balanceOf(address(this));
        _ask(0);
        _ask(1);
        _isOpen(posting, 2, 0);
        verifier.answer(accounts[0], _nobody(), placeOf(points, 0), placeOf(points, 0));
        same(verifier.questionOf(posting, accounts[0]).deadline, 0, "answered");
        _isOpen(posting, 1, 1);
        same(verifier.questionOf(posting, accounts[1]).deadline, postedAt + 2 + WINDOW, "not answered");
        vm.expectPartialRevert(FraudVerifier.NoAnswer.selector);
        verifier.refund(posting, accounts[1]);
        vm.prank(address(verifier));
        ledger.reject();
        verifier.refund(posting, accounts[1]);
        vm.expectPartialRevert(FraudVerifier.NotAsked.selector);
        verifier.refund(posting, accounts[1]);
        same(token.balanceOf(address(this)), had, "both bonds are back");
        root.archiveDigest = keccak256("another");
        postedAt = _post(root);
        vm.warp(postedAt + WINDOW);
        ledger.finalise(); // nobody has asked about this posting
    }

    function testFuzz_two_signatures_in_a_turn_slash_only_their_signer(uint64 epoch, bytes32 a, bytes32 b, uint256 i)
        external
    {
        vm.assume(a != b);
        i = bound(i, 0, COUNT - 1);
        EpochRoot memory one = EpochRoot(epoch, a, a, a, 1, a);
        EpochRoot memory two = EpochRoot(epoch, a, a, b, 1, a);
        (bytes memory ofOne, bytes memory ofTwo) = (signature(i, one), signature(i, two));
        vm.prank(PROVER);
        verifier.proveEquivocation(TURN, one, two, ofOne, ofTwo);
        for (uint256 j = 0; j < COUNT; ++j) {
            same(vault.bonded(auditors[j]), i == j ? 0 : BOND, "bond");
        }
        vm.expectPartialRevert(FraudVerifier.AlreadyProven.selector);
        verifier.proveEquivocation(TURN, two, one, ofTwo, ofOne);
    }

    /// An honest auditor may sign another statement in a later turn, because an earlier proposal failed.
    function testFuzz_signatures_of_different_turns_are_no_equivocation(uint64 epoch, bytes32 a, uint32 turn) external {
        vm.assume(turn != TURN && a != 0);
        EpochRoot memory one = EpochRoot(epoch, a, a, a, 1, a);
        EpochRoot memory two = EpochRoot(epoch, a, a, 0, 1, a);
        (bytes memory ofOne, bytes memory ofTwo) = (signature(0, one), signature(0, two, turn));
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(TURN, one, two, ofOne, ofTwo);
        vm.expectPartialRevert(FraudVerifier.NoContradiction.selector);
        verifier.proveEquivocation(turn, one, two, ofOne, ofTwo);
        same(vault.bonded(auditors[0]), BOND, "bond");
    }

    /// An auditor that bonded again is slashed again for an equivocation in another turn.
    function test_equivocations_of_different_turns_are_punished_separately() external {
        bytes32 a = keccak256("a");
        EpochRoot memory one = EpochRoot(7, a, a, a, 1, a);
        EpochRoot memory two = EpochRoot(7, a, a, 0, 1, a);
        for (uint32 turn = 0; turn < 2; ++turn) {
            verifier.proveEquivocation(turn, one, two, signature(0, one, turn), signature(0, two, turn));
            same(vault.bonded(auditors[0]), 0, "bond");
            vault.deposit(auditors[0], BOND);
        }
    }

    function _small(uint256[COUNT] memory values) private pure returns (uint256[COUNT] memory) {
        for (uint256 j = 0; j < COUNT; ++j) {
            values[j] = values[j] % 3 == 0 ? 0 : bound(values[j], 1, BUDGET / COUNT);
        }
        return values;
    }

    function _added(uint256[COUNT] memory a, uint256[COUNT] memory b) private pure returns (uint256[COUNT] memory sum) {
        for (uint256 j = 0; j < COUNT; ++j) {
            sum[j] = a[j] + b[j];
        }
    }

    function _nobody() private pure returns (Place memory) {
        return Place(address(0), 0, new bytes32[](0));
    }

    /// A place that leads to no root of these tests: a tree of one leaf.
    function _elsewhere() private pure returns (Place memory) {
        return Place(address(0xE15E), 1, new bytes32[](0));
    }

    function _isNoProof(uint256 i, Place memory forged, Place memory genuine) private {
        (bool convicted,) =
            address(verifier).call(abi.encodeCall(verifier.proveOverCap, (accounts[i], forged)));
        check(!convicted, "over its cap");
        Place[3] memory places = [forged, genuine, genuine];
        for (uint256 which = 0; which < 3; ++which) {
            Place[3] memory given = [_nobody(), genuine, genuine];
            given[which] = places[0];
            (convicted,) = address(verifier).call(
                abi.encodeCall(verifier.proveBalance, (accounts[i], given[0], given[1], given[2]))
            );
            check(!convicted, "its balance");
        }
    }

    function _isOpen(bytes32 posting, uint256 count, uint256 first) private view {
        (address[] memory about, FraudVerifier.Question[] memory questions) = verifier.openQuestions(posting);
        same(about.length, count, "open");
        same(questions.length, count, "their questions");
        check(about[0] == accounts[first], "about whom");
        check(questions[0].asker == address(this), "by whom");
    }

    function _ask(uint256 i) private {
        token.approve(address(verifier), type(uint256).max);
        vm.warp(block.timestamp + 1);
        verifier.ask(accounts[i]);
    }

    function _settle(uint256[COUNT] memory points) private {
        vm.warp(_post(statement(0, points, none)) + WINDOW);
        ledger.finalise();
    }

    function _post(EpochRoot memory root) private returns (uint256 postedAt) {
        postedAt = afterEpoch(root.epoch);
        vm.warp(postedAt);
        ledger.post(root, TURN, signatures(7, root));
    }

    function _isConvicted() private {
        (, uint64 postedAt,) = ledger.live();
        same(postedAt, 0, "live");
        same(vault.bonded(auditors[0]) + vault.bonded(auditors[1]) + vault.bonded(auditors[2]), 0, "bonds");
        same(vault.bonded(auditors[3]), BOND, "bond of who did not sign");
        same(token.balanceOf(PROVER), QUORUM * (BOND / 2), "the prover's half");
        same(token.balanceOf(BURNED), QUORUM * (BOND - BOND / 2), "the burned half");
        vm.expectPartialRevert(EpochLedger.NothingLive.selector);
        ledger.finalise();
    }
}
