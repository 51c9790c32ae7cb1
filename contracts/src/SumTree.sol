// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice Where the path of an account ends in a tree.
struct Place {
    /// Whose leaf is there; zero where none is.
    address holder;
    /// The leaf's value; zero where none is.
    uint256 value;
    /// The words beside the path, from its end upwards.
    bytes32[] proof;
}

/// @title The tree of the swarm's points: every account has one place in it, and every word of it ends with its sum.
/// @notice At the root and at every node below it, accounts with a 0 in the next bit are on the left, those with a 1
///         on the right. A part of one account is a leaf, a part of none the word zero. Each word holds the first 24
///         bytes of a Keccak-256 and the sum of all values below it in 8: a leaf's hash is over the account and its
///         value (28 bytes), a node's over the words on its left and right (64 bytes).
/// @dev An account's bits are the way to its place, so under one root it has one value: zero if another leaf or none
///      is there. Whoever climbs from a place adds up the sums, so under a root with the right sum no leaves add up to
///      more. The two lengths keep a node from being passed off as a leaf. A sum of more than 64 bits is no sum.
///      Keccak and not SHA-256, whose precompile costs four times as much for each step of every claim.
///
///      Hashing is in assembly because copying the bytes would cost more than the hash. It works in the scratch space.
library SumTree {
    uint256 private constant ACCOUNT_BITS = 160;

    error ValueTooLarge(uint256 value);
    error BadPath();

    /// @notice The sum of all values under a root.
    function sumOf(bytes32 root) internal pure returns (uint256) {
        return uint64(uint256(root));
    }

    /// @notice The root that an account's value leads to.
    function rootOf(address account, uint256 value, bytes32[] calldata proof) internal pure returns (bytes32) {
        return _climb(account, _leaf(account, value), proof);
    }

    /// @notice The value of an account, and the root that its place leads to.
    function valueAt(address account, Place calldata place) internal pure returns (uint256 value, bytes32 root) {
        bytes32 word = 0;
        if (place.holder == address(0)) {
            if (place.value != 0) revert BadPath();
        } else {
            // A leaf of another account says nothing of this one unless both share the way to it.
            uint256 apart = uint256(uint160(place.holder) ^ uint160(account));
            uint256 depth = place.proof.length;
            if (depth > ACCOUNT_BITS || apart >> (ACCOUNT_BITS - depth) != 0) revert BadPath();
            word = _leaf(place.holder, place.value);
            if (apart == 0) value = place.value;
        }
        root = _climb(account, word, place.proof);
    }

    function _leaf(address account, uint256 value) private pure returns (bytes32 word) {
        if (value > type(uint64).max) revert ValueTooLarge(value);
        assembly ("memory-safe") {
            mstore(0x00, shl(96, account))
            mstore(0x14, shl(192, value))
            word := or(shl(64, shr(64, keccak256(0x00, 28))), value)
        }
    }

    /// @dev A way longer than an account's bits would let one leaf have two places.
    function _climb(address account, bytes32 leaf, bytes32[] calldata proof) private pure returns (bytes32 word) {
        uint256 depth = proof.length;
        if (depth > ACCOUNT_BITS) revert BadPath();
        uint256 carry = 0;
        word = leaf;
        assembly ("memory-safe") {
            let low := 0xffffffffffffffff
            // The bit that decides at the end of the way, then those before it, times 32.
            let bits := shl(5, shr(sub(160, depth), shr(96, shl(96, account))))
            let end := add(proof.offset, shl(5, depth))
            for { let at := proof.offset } lt(at, end) { at := add(at, 32) } {
                let right := and(bits, 32)
                mstore(right, word)
                let sum := calldataload(at)
                mstore(xor(right, 32), sum)
                sum := add(and(word, low), and(sum, low))
                carry := or(carry, sum)
                word := or(and(keccak256(0x00, 64), not(low)), and(sum, low))
                bits := shr(1, bits)
            }
        }
        if (carry > type(uint64).max) revert BadPath();
    }
}
