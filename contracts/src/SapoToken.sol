// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A plain ERC-20 for local swarms and test networks.
/// @notice The whole supply is created at deployment. Nobody can mint, burn others' tokens, pause or block transfers.
contract SapoToken is ERC20 {
    /// @param holder Account that receives the whole supply.
    /// @param supply Number of tokens in the smallest unit (18 decimals).
    constructor(address holder, uint256 supply) ERC20("Sapo test token", "SAPO") {
        _mint(holder, supply);
    }
}
