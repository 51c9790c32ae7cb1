// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The part of forge's cheat codes that these tests use.
interface Vm {
    struct Log {
        bytes32[] topics;
        bytes data;
        address emitter;
    }

    function addr(uint256 key) external pure returns (address);
    function assume(bool condition) external pure;
    function chainId(uint256 id) external;
    function deal(address account, uint256 wei_) external;
    function etch(address account, bytes calldata code) external;
    function expectEmit(address emitter) external;
    function expectPartialRevert(bytes4 selector) external;
    function getRecordedLogs() external returns (Log[] memory logs);
    function prank(address sender) external;
    function recordLogs() external;
    function roll(uint256 block_) external;
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256);
    function warp(uint256 seconds_) external;
}

/// @notice Checks that say what was compared.
abstract contract Checked {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    error NotEqual(string what, uint256 found, uint256 expected);
    error False(string what);

    function check(bool condition, string memory what) internal pure {
        if (!condition) revert False(what);
    }

    function same(uint256 found, uint256 expected, string memory what) internal pure {
        if (found != expected) revert NotEqual(what, found, expected);
    }

    function bound(uint256 value, uint256 least, uint256 most) internal pure returns (uint256) {
        return least + value % (most - least + 1);
    }
}
