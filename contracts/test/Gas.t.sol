// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot} from "../src/EpochRoot.sol";
import {Place} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice The gas of each call, without that of its transaction; stored in `snapshots/`.
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
        verifier.proveOverCap(accounts[0], placeOf(points, 0));
        vm.snapshotGasLastCall("fraud", "over_cap");
        EpochRoot memory other = statement(1, points, none);
        other.total = 1;
        root = statement(1, points, none);
        (bytes memory a, bytes memory b) = (signature(3, root), signature(3, other));
        verifier.proveEquivocation(TURN, root, other, a, b);
        vm.snapshotGasLastCall("fraud", "equivocation");
    }

    /// A hundred thousand accounts are about nineteen steps deep.
    function test_gas_of_a_balance_of_nineteen_steps() external {
        Place memory points = Place(accounts[0], 1, _beside(1, 19)); // another account has the other point
        Place memory afterwards = Place(accounts[0], 2, _beside(0, 19));
        EpochRoot memory root = statement(0, none, none);
        root.contributionRoot = distributor.rootOf(accounts[0], 1, points.proof);
        root.cumulativeRoot = distributor.rootOf(accounts[0], 2, afterwards.proof);
        root.total = 2;
        vm.warp(afterEpoch(0));
        ledger.post(root, TURN, signatures(7, root));
        verifier.proveBalance(accounts[0], Place(address(0), 0, new bytes32[](0)), points, afterwards);
        vm.snapshotGasLastCall("fraud", "balance_of_19_steps");
    }

    /// The longest possible path: at each bit another account branches off.
    function test_gas_of_recording_the_longest_path() external {
        Place memory place = Place(accounts[0], 1, _beside(1, 160));
        bytes32 root = distributor.rootOf(accounts[0], 1, place.proof);
        verifier.recordValue(root, accounts[0], place);
        vm.snapshotGasLastCall("fraud", "record_of_160_steps");
    }

    function _beside(uint256 sum, uint256 count) private pure returns (bytes32[] memory words) {
        words = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            words[i] = bytes32((uint256(keccak256(abi.encode(i, sum))) >> 64) << 64);
        }
        words[count - 1] = bytes32(uint256(words[count - 1]) | sum);
    }
}
