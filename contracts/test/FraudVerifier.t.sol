// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochLedger} from "../src/EpochLedger.sol";
import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {Swarm} from "./Swarm.sol";

contract FraudVerifierTest is Swarm {
    uint256[COUNT] private none;

    function testFuzz_an_honest_posting_convicts_nobody(uint256[COUNT] memory points, uint256 i) external {
        for (uint256 j = 0; j < COUNT; ++j) {
            points[j] = bound(points[j], 0, BUDGET / COUNT);
        }
        i = bound(i, 0, COUNT - 1);
        _post(statement(0, points, none));
        bytes32[] memory proof = proofOf(points, i);
        vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
        verifier.proveOverCap(accounts[i], points[i], proof);
        vm.expectPartialRevert(FraudVerifier.SumMatches.selector);
        verifier.proveContributionSum(accounts, listOf(points));
        vm.expectPartialRevert(FraudVerifier.SumMatches.selector);
        verifier.proveCumulativeSum(accounts, listOf(points));
    }

    function testFuzz_forged_leaves_convict_nobody(uint256[COUNT] memory forged, uint256 i) external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        vm.assume(keccak256(abi.encode(forged)) != keccak256(abi.encode(points)));
        i = bound(i, 0, COUNT - 1);
        _post(statement(0, points, none));
        bytes32[] memory proof = proofOf(points, i);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveOverCap(accounts[i], forged[i] > CAP ? forged[i] : CAP + 1, proof);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveContributionSum(accounts, listOf(forged));
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveCumulativeSum(accounts, listOf(forged));
    }

    /// A value without an account is in no tree: it must not enter a sum.
    function testFuzz_surplus_values_and_accounts_convict_nobody(uint256 surplus) external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        _post(statement(0, points, none));
        uint256[] memory more = new uint256[](COUNT + 1);
        address[] memory fewer = new address[](COUNT - 1);
        for (uint256 i = 0; i < COUNT; ++i) {
            more[i] = points[i];
            if (i < COUNT - 1) fewer[i] = accounts[i];
        }
        more[COUNT] = bound(surplus, 1, type(uint256).max);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveContributionSum(accounts, more);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveCumulativeSum(accounts, more);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveContributionSum(fewer, listOf(points));
    }

    function testFuzz_any_account_over_its_cap_convicts(uint256 over, uint256 i) external {
        uint256[COUNT] memory points;
        i = bound(i, 0, COUNT - 1);
        points[i] = bound(over, CAP + 1, BUDGET);
        _post(statement(0, points, none));
        bytes32[] memory proof = proofOf(points, i);
        vm.prank(PROVER);
        verifier.proveOverCap(accounts[i], points[i], proof);
        _isConvicted();
    }

    function testFuzz_any_other_total_convicts(uint256[COUNT] memory points, uint256 total) external {
        EpochRoot memory root = statement(0, none, none);
        root.contributionRoot = treeOf(points); // of any size: sums that overflow are no way out
        root.total = bound(total, 0, BUDGET);
        vm.assume(points[0] > BUDGET || points[1] > BUDGET || points[2] > BUDGET || points[3] > BUDGET);
        _post(root);
        vm.prank(PROVER);
        verifier.proveContributionSum(accounts, listOf(points));
        _isConvicted();
    }

    function testFuzz_an_account_that_is_listed_twice_has_one_cap(uint256 a, uint256 b) external {
        uint256[COUNT] memory points = [bound(a, 1, CAP), bound(b, 1, CAP), 3, 1];
        accounts[1] = accounts[0];
        uint256[COUNT] memory cumulative = [points[0] + points[1], 0, 3, 1];
        EpochRoot memory root = statement(0, points, none);
        root.cumulativeRoot = treeOf(cumulative);
        _post(root);
        bytes32[] memory proof = proofOf(cumulative, 0);
        FraudVerifier.Leaves memory before;
        FraudVerifier.Leaves memory earned = FraudVerifier.Leaves(accounts, listOf(points));
        if (cumulative[0] <= CAP) vm.expectPartialRevert(FraudVerifier.WasEarned.selector);
        vm.prank(PROVER);
        verifier.proveUnearned(accounts[0], cumulative[0], proof, before, earned);
        if (cumulative[0] > CAP) _isConvicted();
    }

    function testFuzz_two_signatures_convict_the_signer_alone(uint64 epoch, bytes32 a, bytes32 b, uint256 i)
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

    /// A proposal of an earlier turn may have come to nothing: whoever signs another one later is honest.
    function testFuzz_two_signatures_of_two_turns_convict_nobody(uint64 epoch, bytes32 a, uint32 turn) external {
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

    /// One who bonded again does not equivocate for nothing in the next turn.
    function test_every_turn_is_punished_by_itself() external {
        bytes32 a = keccak256("a");
        EpochRoot memory one = EpochRoot(7, a, a, a, 1, a);
        EpochRoot memory two = EpochRoot(7, a, a, 0, 1, a);
        for (uint32 turn = 0; turn < 2; ++turn) {
            verifier.proveEquivocation(turn, one, two, signature(0, one, turn), signature(0, two, turn));
            same(vault.bonded(auditors[0]), 0, "bond");
            vault.deposit(auditors[0], BOND);
        }
    }

    function _post(EpochRoot memory root) private {
        vm.warp(afterEpoch(root.epoch));
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
