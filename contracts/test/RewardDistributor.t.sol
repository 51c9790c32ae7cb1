// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot} from "../src/EpochRoot.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {Swarm} from "./Swarm.sol";

contract RewardDistributorTest is Swarm {
    uint256[COUNT] private none;

    function _settle(uint256[COUNT] memory cumulative) private {
        uint64 epoch = ledger.nextEpoch();
        EpochRoot memory root = statement(epoch, none, none);
        uint256 total = sumOf(cumulative) - distributor.grantedPoints();
        root.contributionRoot = bytes32((uint256(keccak256("hidden")) << 64) | total);
        (root.cumulativeRoot, root.total) = (treeOf(cumulative), total);
        vm.warp(afterEpoch(epoch));
        ledger.post(root, TURN, signatures(7, root));
        vm.warp(afterEpoch(epoch) + WINDOW);
        ledger.finalise();
    }

    /// A sequence of roots with hidden leaves that give each account what the others had.
    function testFuzz_no_more_is_paid_than_was_granted_for_any_trees(uint256[COUNT] memory first, uint256 moved)
        external
    {
        for (uint256 i = 0; i < COUNT; ++i) {
            first[i] = bound(first[i], 0, BUDGET / COUNT);
        }
        _settle(first);
        _claimAll(first);
        for (uint256 round = 0; round < 3; ++round) {
            uint256 from = (moved >> round) % COUNT;
            uint256 to = (from + 1 + (moved >> (8 + round)) % 3) % COUNT;
            (first[from], first[to]) = (0, first[to] + first[from]);
            _settle(first);
            _claimAll(first);
        }
        check(distributor.paidPoints() <= distributor.grantedPoints(), "paid more than granted");
        same(token.balanceOf(address(distributor)), REWARDS - distributor.paidPoints() * RATE, "rewards left");
    }

    function _claimAll(uint256[COUNT] memory points) private {
        for (uint256 i = 0; i < COUNT; ++i) {
            bytes32[] memory proof = proofOf(points, i);
            (bool paid,) = address(distributor).call(abi.encodeCall(distributor.claim, (accounts[i], points[i], proof)));
            if (paid) same(token.balanceOf(accounts[i]), points[i] * RATE, "tokens");
        }
    }

    /// With hidden leaves an account gets at most what it could have been granted, less what it has claimed.
    function testFuzz_no_more_than_the_cap_per_epoch_after_a_claim(uint256 waited, uint256 more) external {
        uint256[COUNT] memory points = [uint256(5), 0, 0, 0];
        _settle(points);
        distributor.claim(accounts[0], 5, proofOf(points, 0));
        waited = bound(waited, 1, 3);
        for (uint256 i = 0; i < waited; ++i) {
            points[1] += 20;
            if (i + 1 == waited) points[0] = bound(more, (waited + 1) * CAP - 2, (waited + 1) * CAP + 2);
            if (i + 1 == waited) points[1] = points[1] > 20 ? points[1] - 20 : 0;
            if (sumOf(points) - distributor.grantedPoints() > BUDGET) return;
            _settle(points);
        }
        same(distributor.mostClaimable(accounts[0]), (waited + 1) * CAP - 5, "the most");
        bool isOver = points[0] > (waited + 1) * CAP;
        bytes32[] memory proof = proofOf(points, 0);
        if (isOver) vm.expectPartialRevert(RewardDistributor.OverCap.selector);
        distributor.claim(accounts[0], points[0], proof);
        same(distributor.claimed(accounts[0]), isOver ? 5 : points[0], "claimed");
    }

    /// With hidden leaves a newcomer gets at most its cap for each epoch since its enrolment, others nothing.
    function testFuzz_no_more_than_the_cap_per_epoch_since_the_enrolment(uint256 old, uint256 waited, uint256 more)
        external
    {
        address newcomer = address((uint160(3) << 158) + 0xB000);
        accounts[3] = newcomer;
        uint256[COUNT] memory points = [uint256(40), 0, 0, 0];
        for (old = bound(old, 1, 3); old > 0; --old) {
            _settle(points);
            points[0] += 40;
        }
        points = [uint256(distributor.grantedPoints()) - 1, 0, 0, 1];
        _settle(points);
        bytes32[] memory proof = proofOf(points, 3);
        vm.expectPartialRevert(RewardDistributor.OverCap.selector);
        distributor.claim(newcomer, 1, proof);
        distributor.enrol(newcomer);
        waited = bound(waited, 1, 2);
        for (uint256 i = 1; i < waited; ++i) {
            _settle(points);
            distributor.enrol(newcomer);
        }
        points[3] = bound(more, waited * CAP - 2, waited * CAP + 2);
        points[0] = distributor.grantedPoints() - points[3];
        _settle(points);
        same(distributor.mostClaimable(newcomer), waited * CAP, "the most");
        proof = proofOf(points, 3);
        bool isOver = points[3] > waited * CAP;
        if (isOver) vm.expectPartialRevert(RewardDistributor.OverCap.selector);
        distributor.claim(newcomer, points[3], proof);
        same(distributor.claimed(newcomer), isOver ? 0 : points[3], "claimed");
        same(distributor.mostClaimable(newcomer), waited * CAP - (isOver ? 0 : points[3]), "the most afterwards");
    }

    function testFuzz_wrong_values_and_proofs_pay_nothing(uint256 i, uint256 value, bytes32[] calldata proof) external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        _settle(points);
        i = bound(i, 0, COUNT - 1);
        value = bound(value, 0, type(uint64).max);
        vm.assume(value != points[i]);
        bytes32[] memory genuine = proofOf(points, i);
        vm.assume(keccak256(abi.encode(proof)) != keccak256(abi.encode(genuine)));
        // Arbitrary values and proofs may overflow or be too long.
        (bool paid,) = address(distributor).call(abi.encodeCall(distributor.claim, (accounts[i], value, genuine)));
        check(!paid, "paid another value");
        (paid,) = address(distributor).call(abi.encodeCall(distributor.claim, (accounts[i], points[i], proof)));
        check(!paid, "paid on another proof");
    }

    function testFuzz_the_payout_address_changes_with_delay_only(address first, address second, uint256 wait)
        external
    {
        vm.assume(first != address(0) && second != address(0));
        wait = bound(wait, 0, distributor.PAYOUT_DELAY() - 1);
        vm.prank(accounts[0]);
        distributor.setPayout(first);
        check(distributor.payoutOf(accounts[0]) == first, "the first one counts at once");
        vm.prank(accounts[0]);
        distributor.setPayout(second);
        vm.warp(GENESIS + wait);
        vm.expectPartialRevert(RewardDistributor.PayoutTooEarly.selector);
        distributor.applyPayout(accounts[0]);
        check(distributor.payoutOf(accounts[0]) == first, "still the first one");
        vm.warp(GENESIS + distributor.PAYOUT_DELAY());
        distributor.applyPayout(accounts[0]);
        check(distributor.payoutOf(accounts[0]) == second, "now the second one");
    }
}
