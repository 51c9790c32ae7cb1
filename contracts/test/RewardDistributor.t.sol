// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot} from "../src/EpochRoot.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {Swarm} from "./Swarm.sol";

contract RewardDistributorTest is Swarm {
    uint256[COUNT] private none;

    function _settle(uint256[COUNT] memory cumulative, uint256 total) private {
        uint64 epoch = ledger.nextEpoch();
        EpochRoot memory root = EpochRoot(
            epoch,
            distributor.cumulativeRoot(),
            treeOf(none),
            treeOf(cumulative),
            total,
            bytes32(uint256(epoch))
        );
        vm.warp(afterEpoch(epoch));
        ledger.post(root, TURN, signatures(7, root));
        vm.warp(afterEpoch(epoch) + WINDOW);
        ledger.finalise();
    }

    function testFuzz_no_more_than_was_granted_whatever_the_tree_says(uint256[COUNT] memory lies, uint256 total)
        external
    {
        total = bound(total, 0, BUDGET);
        for (uint256 i = 0; i < COUNT; ++i) {
            lies[i] = bound(lies[i], 0, 100);
        }
        _settle(lies, total);
        for (uint256 i = 0; i < COUNT; ++i) {
            bytes memory call = abi.encodeCall(distributor.claim, (accounts[i], lies[i], proofOf(lies, i)));
            (bool paid,) = address(distributor).call(call);
            same(token.balanceOf(accounts[i]), paid ? lies[i] * RATE : 0, "tokens");
        }
        check(distributor.paidPoints() <= total, "paid more than granted");
        same(token.balanceOf(address(distributor)), REWARDS - distributor.paidPoints() * RATE, "rewards left");
    }

    function testFuzz_wrong_values_and_proofs_pay_nothing(uint256 i, uint256 value, bytes32[] calldata proof) external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        _settle(points, 11);
        i = bound(i, 0, COUNT - 1);
        vm.assume(value != points[i]);
        bytes32[] memory genuine = proofOf(points, i);
        vm.assume(keccak256(abi.encode(proof)) != keccak256(abi.encode(genuine)));
        vm.expectPartialRevert(RewardDistributor.WrongProof.selector);
        distributor.claim(accounts[i], value, genuine);
        vm.expectPartialRevert(RewardDistributor.WrongProof.selector);
        distributor.claim(accounts[i], points[i], proof);
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
