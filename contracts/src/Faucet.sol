// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title Gives newcomers of a test network tokens, and coins for the gas of their first transactions.
/// @notice Anyone may call it for any account, because a newcomer without coins cannot call it. It does not serve
///         contracts: a receiving contract could consume all gas of the caller. No account has a special role; anyone
///         can refill it by a transfer, and it refuses calls while it is empty.
contract Faucet {
    using SafeERC20 for IERC20;

    /// @notice Shortest time between two drips to one account, in seconds.
    uint256 public constant INTERVAL = 1 days;

    /// @notice The token that is given.
    IERC20 public immutable token;
    /// @notice Tokens per drip, in the smallest unit; fewer if the faucet holds fewer.
    uint256 public immutable tokensPerDrip;
    /// @notice Wei per drip; fewer if the faucet holds fewer.
    uint256 public immutable weiPerDrip;

    /// @notice Unix time in seconds from which an account may be served again; 0 if it never was.
    mapping(address account => uint256 seconds_) public nextDripAt;

    event Dripped(address indexed account, uint256 tokens, uint256 weiAmount);

    error TooEarly(address account, uint256 nextAt);
    error Empty();
    error HasCode(address account);

    /// @param token_ The token that is given.
    /// @param tokensPerDrip_ Tokens per drip, in the smallest unit.
    /// @param weiPerDrip_ Wei per drip.
    constructor(IERC20 token_, uint256 tokensPerDrip_, uint256 weiPerDrip_) payable {
        token = token_;
        tokensPerDrip = tokensPerDrip_;
        weiPerDrip = weiPerDrip_;
    }

    /// @notice Accept coins from anyone.
    receive() external payable {}

    /// @notice Send an account one drip.
    /// @param account Receiver, an account without code.
    /// @custom:reverts HasCode if the receiver is a contract.
    /// @custom:reverts TooEarly if it was served less than `INTERVAL` ago.
    /// @custom:reverts Empty if the faucet holds neither tokens nor coins.
    function drip(address payable account) external {
        if (account.code.length != 0) revert HasCode(account);
        uint256 nextAt = nextDripAt[account];
        if (block.timestamp < nextAt) revert TooEarly(account, nextAt);
        uint256 tokens = Math.min(tokensPerDrip, token.balanceOf(address(this)));
        uint256 coin = Math.min(weiPerDrip, address(this).balance);
        bool holdsSome = tokens != 0 || coin != 0;
        if (!holdsSome) revert Empty();
        // Written before the transfers, so that a call back from a receiver is refused.
        nextDripAt[account] = block.timestamp + INTERVAL;
        emit Dripped(account, tokens, coin);
        if (tokens != 0) token.safeTransfer(account, tokens);
        Address.sendValue(account, coin);
    }
}
