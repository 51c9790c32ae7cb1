// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title The Merkle rule of the swarm: SHA-256, tagged leaves and nodes, pairs in ascending order.
/// @notice A leaf is `SHA-256(0x00 || account || value)`, a node `SHA-256(0x01 || smaller || larger)`.
///         An odd node is promoted unchanged; nothing at all has the root zero.
/// @dev The tags keep a node from being passed off as a leaf. Ascending pairs make a proof a plain list of
///      siblings, without directions. SHA-256 and not Keccak, so that whoever checks a root off the chain
///      needs nothing beyond a standard library.
///
///      Hashing is in assembly because copying the bytes would cost more than the hash. It works in free memory
///      without claiming it. The precompile at 2 fails only for want of gas.
library MerkleSha256 {
    /// @notice The leaf of one account's value.
    function leaf(address account, uint256 value) internal view returns (bytes32 hash) {
        assembly ("memory-safe") {
            let start := mload(0x40)
            mstore8(start, 0)
            mstore(add(start, 1), shl(96, account))
            mstore(add(start, 21), value)
            if iszero(staticcall(gas(), 2, start, 53, start, 32)) { revert(0, 0) }
            hash := mload(start)
        }
    }

    /// @notice The root that a leaf and its siblings, from the bottom up, lead to.
    function rootOf(bytes32 leafHash, bytes32[] calldata proof) internal view returns (bytes32 node) {
        node = leafHash;
        for (uint256 i = 0; i < proof.length; ++i) {
            node = _parent(node, proof[i]);
        }
    }

    /// @notice The root over all leaves, in the order given.
    /// @dev Two lists with one root hold the same leaves: whoever swaps the halves of a pair changes nothing, and
    ///      everything else would be a collision of SHA-256.
    function rootOfAll(address[] calldata accounts, uint256[] calldata values) internal view returns (bytes32) {
        uint256 count = accounts.length;
        if (count == 0) return 0;
        bytes32[] memory level = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            level[i] = leaf(accounts[i], values[i]);
        }
        while (count > 1) {
            uint256 pairs = count / 2;
            for (uint256 i = 0; i < pairs; ++i) {
                level[i] = _parent(level[2 * i], level[2 * i + 1]);
            }
            if (count % 2 == 1) level[pairs] = level[count - 1];
            count -= pairs;
        }
        return level[0];
    }

    function _parent(bytes32 a, bytes32 b) private view returns (bytes32 node) {
        (bytes32 smaller, bytes32 larger) = a < b ? (a, b) : (b, a);
        assembly ("memory-safe") {
            let start := mload(0x40)
            mstore8(start, 1)
            mstore(add(start, 1), smaller)
            mstore(add(start, 33), larger)
            if iszero(staticcall(gas(), 2, start, 65, start, 32)) { revert(0, 0) }
            node := mload(start)
        }
    }
}
