// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A plain ERC-20 for local swarms and test networks.
/// @notice The whole supply exists from the start. Nobody can mint, burn another's tokens, pause or blacklist.
contract SapoToken is ERC20 {
    /// @param holder Receives the whole supply.
    /// @param supply In the smallest unit (18 decimals).
    constructor(address holder, uint256 supply) ERC20("Sapo test token", "SAPO") {
        _mint(holder, supply);
    }
}
