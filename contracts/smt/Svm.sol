// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The part of halmos's and forge's cheat codes that these checks use.
interface Svm {
    function enableSymbolicStorage(address contract_) external;
    function createBytes32(string memory name) external returns (bytes32 value);
    function createBytes(uint256 length, string memory name) external returns (bytes memory value);
}

interface Cheats {
    function assume(bool condition) external pure;
    function prank(address sender) external;
    function store(address account, bytes32 slot, bytes32 value) external;
}

abstract contract Symbolic {
    Svm internal constant svm = Svm(0xF3993A62377BCd56AE39D773740A5390411E8BC9);
    Cheats internal constant vm = Cheats(address(uint160(uint256(keccak256("hevm cheat code")))));
}
