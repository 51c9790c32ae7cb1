// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The end of an account's path in a tree, with the Merkle proof of it.
struct Place {
    /// The account whose leaf is at the end of the path; zero if the subtree there is empty.
    address holder;
    /// The leaf's value; zero if the subtree is empty.
    uint256 value;
    /// The sibling words of the path, from its end to the root.
    bytes32[] proof;
}

/// @title The points tree: a Merkle sum tree with one place for every account.
/// @notice At the node of depth d, accounts whose bit d is 0 are in the left subtree, those with a 1 in the right one.
///         A subtree with one account is a leaf, an empty subtree is the word zero. A word consists of the first 24
///         bytes of a Keccak-256 hash and, in the last 8 bytes, the sum of all values below it. The hash of a leaf is
///         over account and value (28 bytes), that of a node over its left and right word (64 bytes).
/// @dev The bits of an account determine its path, so an account has exactly one value under a root: zero if the path
///      ends at an empty subtree or at another account's leaf. Each step of a proof adds up the sums, so the values
///      under a root never add up to more than the sum in the root. Leaves and nodes hash inputs of different lengths,
///      so neither can be presented as the other. Sums of more than 64 bits are refused.
///      Keccak-256 is used because the SHA-256 precompile would cost four times as much for each step.
///
///      Hashing is written in assembly and uses the scratch space: copying the input would cost more than the hash.
library SumTree {
    uint256 private constant ACCOUNT_BITS = 160;

    error ValueTooLarge(uint256 value);
    error BadPath();

    /// @notice Return the sum of all values under a root.
    /// @param root Word of the tree's root.
    /// @return Its last 8 bytes.
    function sumOf(bytes32 root) internal pure returns (uint256) {
        return uint64(uint256(root));
    }

    /// @notice Compute the root from an account's value and its proof.
    /// @param account Account whose leaf is proven.
    /// @param value Value of the leaf, less than 2^64.
    /// @param proof Sibling words from the leaf to the root, at most 160.
    /// @return The root in which this leaf is; to be compared with a known one.
    /// @custom:reverts ValueTooLarge if the value has more than 64 bits.
    /// @custom:reverts BadPath if the proof is too long, or a sum has more than 64 bits.
    function rootOf(address account, uint256 value, bytes32[] calldata proof) internal pure returns (bytes32) {
        return _climb(account, _leaf(account, value), proof);
    }

    /// @notice Compute the value of an account, and the root, from the end of the account's path.
    /// @param account Account whose path it is.
    /// @param place End of the path: an empty subtree, the account's leaf or another account's leaf.
    /// @return value The account's value; zero if its leaf is not there.
    /// @return root The root in which this place is; to be compared with a known one.
    /// @custom:reverts ValueTooLarge if the value has more than 64 bits.
    /// @custom:reverts BadPath if the proof is too long, a sum has more than 64 bits, an empty subtree has a value, or
    ///                 the other account does not share the bits of the path.
    function valueAt(address account, Place calldata place) internal pure returns (uint256 value, bytes32 root) {
        bytes32 word = 0;
        if (place.holder == address(0)) {
            if (place.value != 0) revert BadPath();
        } else {
            // Another account's leaf proves that this account has no value only if both share the path to it.
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

    /// @dev A path longer than the bits of an account would allow a leaf at two places.
    function _climb(address account, bytes32 leaf, bytes32[] calldata proof) private pure returns (bytes32 word) {
        uint256 depth = proof.length;
        if (depth > ACCOUNT_BITS) revert BadPath();
        uint256 carry = 0;
        word = leaf;
        assembly ("memory-safe") {
            let low := 0xffffffffffffffff
            // The lowest bit decides at the end of the path, the next ones above it; times 32, the offset of a word.
            let bits := shl(5, shr(sub(160, depth), shr(96, shl(96, account))))
            let end := add(proof.offset, shl(5, depth))
            for { let at := proof.offset } lt(at, end) { at := add(at, 32) } {
                let right := and(bits, 32)
                mstore(right, word)
                let sum := calldataload(at)
                // Slither mistakes the bitwise xor for an exponentiation.
                // slither-disable-next-line incorrect-exp
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
