// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title The Merkle rule of the swarm: SHA-256, tagged leaves and nodes, pairs in ascending order.
/// @notice A leaf is `SHA-256(0x00 || account || value)`, a node `SHA-256(0x01 || smaller || larger)`.
/// @dev The tags keep a node from being passed off as a leaf. Ascending pairs make a proof a plain list of
///      siblings, without directions. SHA-256 and not Keccak, so that whoever checks a root off the chain
///      needs nothing beyond a standard library.
library MerkleSha256 {
    bytes1 private constant LEAF_TAG = 0x00;

    /// @notice The leaf of one account's value.
    function leaf(address account, uint256 value) internal pure returns (bytes32) {
        return sha256(abi.encodePacked(LEAF_TAG, account, value));
    }

    /// @notice The root that a leaf and its siblings, from the bottom up, lead to.
    function rootOf(bytes32 leafHash, bytes32[] calldata proof) internal view returns (bytes32 node) {
        node = leafHash;
        for (uint256 i = 0; i < proof.length; ++i) {
            bytes32 sibling = proof[i];
            node = node < sibling ? _parent(node, sibling) : _parent(sibling, node);
        }
    }

    /// @dev `sha256(abi.encodePacked(bytes1(0x01), smaller, larger))`, whose copies would cost more than the hash.
    ///      Works in free memory without claiming it. The precompile at 2 fails only for want of gas.
    function _parent(bytes32 smaller, bytes32 larger) private view returns (bytes32 node) {
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
