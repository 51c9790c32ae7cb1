// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot, FinalEpoch} from "../src/EpochRoot.sol";
import {RewardDistributor} from "../src/RewardDistributor.sol";
import {Swarm} from "./Swarm.sol";

/// @notice A claim sent by others for an account that a dishonest quorum wants to harm.
contract DustClaimTest is Swarm {
    uint256[COUNT] private none;
    uint256[COUNT] private points = [uint256(CAP), 0, 0, 0];

    function setUp() external {
        token.approve(address(verifier), type(uint256).max);
    }

    /// Account 0 earned its cap in five epochs and claimed nothing. A dishonest quorum posts a root with hidden leaves,
    /// in which it has one point, and claims this point for it. After the recall it can still claim the earlier points.
    function test_a_claim_from_a_recalled_root_does_not_block_earlier_points() external {
        uint256[COUNT] memory had;
        for (uint64 epoch = 0; epoch < 3; ++epoch) {
            _settle(statement(epoch, points, had));
            had[0] += CAP;
        }
        EpochRoot memory root = statement(3, none, none);
        uint256[COUNT] memory dust = [uint256(1), 0, 0, had[0] - 1];
        root.cumulativeRoot = treeOf(dust);
        FinalEpoch[] memory hidden = new FinalEpoch[](1);
        hidden[0] = _settle(root);
        distributor.claim(accounts[0], 1, proofOf(dust, 0));
        verifier.askFinal(hidden, accounts[0]);
        vm.warp(block.timestamp + WINDOW);
        verifier.recall(hidden, accounts[0]);
        for (uint64 epoch = 4; epoch < 8; ++epoch) {
            _settle(statement(epoch, points, had));
            had[0] += CAP;
            (bool paid, bytes memory why) =
                address(distributor).call(abi.encodeCall(distributor.claim, (accounts[0], had[0], proofOf(had, 0))));
            check(paid, string(abi.encodePacked("not paid ", why)));
        }
        same(token.balanceOf(accounts[0]), had[0] * RATE, "all");
    }

    function _settle(EpochRoot memory root) private returns (FinalEpoch memory) {
        (bytes32 history, uint64 finalBlock) = ledger.lastFinal();
        if (block.timestamp < afterEpoch(root.epoch)) vm.warp(afterEpoch(root.epoch));
        ledger.post(root, TURN, signatures(7, root));
        uint64 postedAt = uint64(block.timestamp);
        vm.warp(block.timestamp + WINDOW);
        ledger.finalise();
        return FinalEpoch(root, 7, postedAt, history, finalBlock);
    }
}
