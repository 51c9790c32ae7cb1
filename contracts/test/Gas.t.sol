// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot} from "../src/EpochRoot.sol";
import {Swarm} from "./Swarm.sol";

/// @notice What each call costs by itself, without the transaction around it; kept in `snapshots/`.
contract GasTest is Swarm {
    uint256[COUNT] private none;

    function test_gas_of_an_epochs_life() external {
        uint256[COUNT] memory points = [uint256(7), 3, 1, 0];
        EpochRoot memory root = statement(0, points, none);
        bytes[] memory signed = signatures(7, root);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signed);
        vm.snapshotGasLastCall("ledger", "post");
        vm.warp(afterEpoch(0) + WINDOW);
        ledger.finalise();
        vm.snapshotGasLastCall("ledger", "finalise");
        distributor.claim(accounts[0], 7, proofOf(points, 0));
        vm.snapshotGasLastCall("ledger", "claim");
    }

    function test_gas_of_fraud_proofs() external {
        uint256[COUNT] memory points = [CAP + 1, 3, 1, 0];
        EpochRoot memory root = statement(0, points, none);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        verifier.proveOverCap(accounts[0], CAP + 1, proofOf(points, 0));
        vm.snapshotGasLastCall("fraud", "over_cap");
        EpochRoot memory other = statement(1, points, none);
        other.total = 1;
        root = statement(1, points, none);
        (bytes memory a, bytes memory b) = (signature(3, root), signature(3, other));
        verifier.proveEquivocation(TURN, root, other, a, b);
        vm.snapshotGasLastCall("fraud", "equivocation");
    }

    function test_gas_of_a_sum_over_1024_accounts() external {
        (address[] memory many, uint256[] memory points) = (new address[](1024), new uint256[](1024));
        for (uint160 i = 0; i < 1024; ++i) {
            (many[i], points[i]) = (address((1 << 159) + i), 1);
        }
        EpochRoot memory root = statement(0, none, none);
        root.contributionRoot = _root(many, points);
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        verifier.proveContributionSum(many, points);
        vm.snapshotGasLastCall("fraud", "sum_of_1024");
    }

    function _root(address[] memory many, uint256[] memory points) private pure returns (bytes32) {
        bytes32[] memory level = new bytes32[](many.length);
        for (uint256 i = 0; i < many.length; ++i) {
            level[i] = sha256(abi.encodePacked(bytes1(0x00), many[i], points[i]));
        }
        for (uint256 count = level.length; count > 1; count /= 2) {
            for (uint256 i = 0; i < count / 2; ++i) {
                (bytes32 a, bytes32 b) = (level[2 * i], level[2 * i + 1]);
                level[i] = a < b ? sha256(abi.encodePacked(bytes1(0x01), a, b)) : sha256(abi.encodePacked(bytes1(0x01), b, a));
            }
        }
        return level[0];
    }
}
