// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @notice The part of halmos's and forge's cheat codes that these checks use.
interface Svm {
    function enableSymbolicStorage(address contract_) external;
    function createBytes(uint256 length, string memory name) external returns (bytes memory value);
}

interface Assume {
    function assume(bool condition) external pure;
}

abstract contract Symbolic {
    Svm internal constant svm = Svm(0xF3993A62377BCd56AE39D773740A5390411E8BC9);
    Assume internal constant vm = Assume(address(uint160(uint256(keccak256("hevm cheat code")))));
}
