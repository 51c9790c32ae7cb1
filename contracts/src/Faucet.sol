// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Gives newcomers of a test network a few tokens and the coin to pay their first transactions.
/// @notice Anyone may call it for anyone: a newcomer without coin cannot call it for itself.
///         It serves no contracts, which could make whoever calls it pay for any amount of gas.
///         It runs dry rather than being refilled by a privileged role: whoever likes sends it more.
contract Faucet {
    using SafeERC20 for IERC20;

    /// @notice Pause between two drips to one address.
    uint256 public constant INTERVAL = 1 days;

    IERC20 public immutable token;
    /// @notice Tokens per drip, in the smallest unit; less when the faucet holds less.
    uint256 public immutable tokensPerDrip;
    /// @notice Wei per drip; less when the faucet holds less.
    uint256 public immutable weiPerDrip;

    /// @notice When an address may be served next, in seconds; 0 if it never was.
    mapping(address account => uint256 seconds_) public nextDripAt;

    event Dripped(address indexed account, uint256 tokens, uint256 weiAmount);

    error TooEarly(address account, uint256 nextAt);
    error Empty();
    error HasCode(address account);

    constructor(IERC20 token_, uint256 tokensPerDrip_, uint256 weiPerDrip_) payable {
        token = token_;
        tokensPerDrip = tokensPerDrip_;
        weiPerDrip = weiPerDrip_;
    }

    receive() external payable {}

    /// @notice Send `account` one drip.
    function drip(address payable account) external {
        if (account.code.length != 0) revert HasCode(account);
        uint256 nextAt = nextDripAt[account];
        if (block.timestamp < nextAt) revert TooEarly(account, nextAt);
        uint256 tokens = Math.min(tokensPerDrip, token.balanceOf(address(this)));
        uint256 coin = Math.min(weiPerDrip, address(this).balance);
        bool holdsSome = tokens != 0 || coin != 0;
        if (!holdsSome) revert Empty();
        // Written before anything is sent: a receiver that calls back is refused.
        nextDripAt[account] = block.timestamp + INTERVAL;
        emit Dripped(account, tokens, coin);
        if (tokens != 0) token.safeTransfer(account, tokens);
        Address.sendValue(account, coin);
    }
}
