// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {EpochRoot} from "../src/EpochRoot.sol";
import {FraudVerifier} from "../src/FraudVerifier.sol";
import {Place, SumTree} from "../src/SumTree.sol";
import {Swarm} from "./Swarm.sol";

/// @notice The points tree compared with a second implementation, at every depth, through the contracts that use it.
contract SumTreeTest is Swarm {
    uint256[COUNT] private none;

    function test_paths_of_every_depth() external view {
        address account = address(uint160(uint256(keccak256("account"))));
        for (uint256 depth = 0; depth <= 160; depth = depth < 4 ? depth + 1 : depth + 39) {
            bytes32[] memory beside = _beside(depth, depth);
            check(distributor.rootOf(account, 5, beside) == _climb(account, _leaf(account, 5), beside), "root");
        }
        check(distributor.rootOf(account, 5, _beside(160, 3)) == _climb(account, _leaf(account, 5), _beside(160, 3)), "longest");
    }

    function testFuzz_roots_of_random_paths(address account, uint64 value, uint256 seed, uint256 depth) external view {
        bytes32[] memory beside = _beside(bound(depth, 0, 160), seed);
        value = uint64(bound(value, 0, type(uint32).max));
        check(distributor.rootOf(account, value, beside) == _climb(account, _leaf(account, value), beside), "root");
    }

    function test_a_path_has_at_most_160_siblings() external {
        bytes32[] memory beside = new bytes32[](161);
        vm.expectPartialRevert(SumTree.BadPath.selector);
        distributor.rootOf(accounts[1], 1, beside);
    }

    function test_sums_have_64_bits() external {
        uint256 largest = type(uint64).max;
        bytes32[] memory beside = new bytes32[](1);
        beside[0] = bytes32(uint256(1));
        check(distributor.rootOf(accounts[1], largest, new bytes32[](0)) == _leaf(accounts[1], largest), "the largest leaf");
        check(uint64(uint256(distributor.rootOf(accounts[1], largest - 1, beside))) == largest, "the largest sum");
        vm.expectPartialRevert(SumTree.BadPath.selector);
        distributor.rootOf(accounts[1], largest, beside);
        vm.expectPartialRevert(SumTree.ValueTooLarge.selector);
        distributor.rootOf(accounts[1], largest + 1, beside);
        // One sibling too many is detected at the end, at any depth.
        beside = new bytes32[](3);
        beside[0] = bytes32(largest);
        vm.expectPartialRevert(SumTree.BadPath.selector);
        distributor.rootOf(accounts[1], 1, beside);
    }

    /// If an account's path ends at another account's leaf, its value is 0: at that depth, and not one level deeper.
    function test_another_accounts_leaf_proves_zero_only_at_the_right_depth() external {
        address holder = address(uint160(0xA0) << 152); // 1010 0000 ...
        address parted = address(uint160(0xB0) << 152); // 1011: three bits in common
        for (uint256 depth = 0; depth <= 4; ++depth) {
            Place memory place = Place(holder, 9, _beside(depth, 0));
            _postUnder(_climb(holder, _leaf(holder, 9), place.proof), uint64(depth));
            if (depth == 4) vm.expectPartialRevert(SumTree.BadPath.selector);
            else vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
            verifier.proveOverCap(parted, place);
            _drop();
        }
    }

    /// An account that differs from the holder only in its last bit, at the maximum depth.
    function test_a_place_at_maximum_depth() external {
        (address holder, address other) = (address(uint160(2)), address(uint160(3)));
        uint256 epoch = 0;
        for (uint256 depth = 159; depth <= 160; ++depth) {
            Place memory place = Place(holder, CAP + 1, _beside(depth, 0));
            _postUnder(_climb(holder, _leaf(holder, CAP + 1), place.proof), uint64(epoch++));
            if (depth == 160) vm.expectPartialRevert(SumTree.BadPath.selector);
            else vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
            verifier.proveOverCap(other, place);
            Place memory beyond = Place(holder, CAP + 1, new bytes32[](161));
            vm.expectPartialRevert(SumTree.BadPath.selector);
            verifier.proveOverCap(holder, beyond);
            verifier.proveOverCap(holder, place);
            for (uint256 i = 0; i < QUORUM; ++i) {
                vault.deposit(auditors[i], BOND);
            }
        }
    }

    function test_the_empty_node_proves_zero() external {
        bytes32[] memory beside = _beside(2, 0);
        beside[1] = bytes32(uint256(beside[1]) | 9); // all points belong to another account
        _postUnder(_climb(accounts[1], 0, beside), 0);
        Place memory empty = Place(address(0), 1, beside);
        vm.expectPartialRevert(SumTree.BadPath.selector);
        verifier.proveOverCap(accounts[1], empty);
        empty.value = 0;
        vm.expectPartialRevert(FraudVerifier.WithinCap.selector);
        verifier.proveOverCap(accounts[1], empty);
        vm.expectPartialRevert(FraudVerifier.WrongLeaves.selector);
        verifier.proveOverCap(accounts[2], empty);
    }

    function _postUnder(bytes32 root, uint64 epoch) private {
        EpochRoot memory posted = statement(epoch, none, none);
        (posted.contributionRoot, posted.cumulativeRoot, posted.total) = (root, root, uint64(uint256(root)));
        vm.warp(afterEpoch(epoch));
        ledger.post(posted, TURN, signatures(7, posted));
    }

    function _drop() private {
        vm.prank(address(verifier));
        ledger.reject();
    }

    /// Nodes whose sum is 0.
    function _beside(uint256 depth, uint256 seed) private pure returns (bytes32[] memory words) {
        words = new bytes32[](depth);
        for (uint256 i = 0; i < depth; ++i) {
            uint256 sum = seed == 0 ? 0 : i + 1;
            words[i] = bytes32(((uint256(keccak256(abi.encode(i, seed))) >> 64) << 64) | sum);
        }
    }

    function _leaf(address account, uint256 value) private pure returns (bytes32) {
        return _word(abi.encodePacked(account, uint64(value)), value);
    }

    function _climb(address account, bytes32 word, bytes32[] memory beside) private pure returns (bytes32) {
        for (uint256 i = 0; i < beside.length; ++i) {
            uint256 fromTop = beside.length - 1 - i;
            bool isRight = (uint160(account) >> (159 - fromTop)) & 1 == 1;
            uint256 sum = uint64(uint256(word)) + uint256(uint64(uint256(beside[i])));
            word = _word(isRight ? abi.encodePacked(beside[i], word) : abi.encodePacked(word, beside[i]), sum);
        }
        return word;
    }

    function _word(bytes memory content, uint256 sum) private pure returns (bytes32) {
        return bytes32(((uint256(keccak256(content)) >> 64) << 64) | sum);
    }
}
