// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title Holds the auditors' bonds, which fraud proofs slash.
/// @notice A bond leaves in one of two ways: its owner requests an exit and withdraws after a delay, which is longer
///         than any challenge of what the owner signed while bonded; or a fraud proof slashes all of it, including
///         the part in its exit delay.
/// @dev No owner. The slasher is the fraud verifier, which created this contract. The token must not charge fees on
///      transfers.
contract StakeVault {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Stake {
        /// Tokens that count as the account's bond.
        uint96 bonded;
        /// Tokens in the exit delay.
        uint96 exiting;
        /// Unix time in seconds from which `exiting` can be withdrawn.
        uint64 withdrawableAt;
    }

    /// @notice Address to which burned tokens are sent; nobody has its key.
    address public constant BURNED = 0x000000000000000000000000000000000000dEaD;

    /// @notice The token of the bonds.
    IERC20 public immutable token;
    /// @notice The only account that may slash: the fraud verifier.
    address public immutable slasher;
    /// @notice Exit delay: time from the request of an exit to the earliest withdrawal, in seconds.
    uint256 public immutable exitSeconds;

    mapping(address account => Stake) private _stakes;

    event Deposited(address indexed account, uint256 amount);
    event ExitRequested(address indexed account, uint256 amount, uint256 withdrawableAt);
    event Withdrawn(address indexed account, uint256 amount);
    event Slashed(address indexed account, address indexed prover, uint256 burned, uint256 rewarded);

    error NothingDeposited();
    error NotThatMuchBonded(uint256 asked, uint256 bonded);
    error NothingExiting(address account);
    error ExitTooEarly(uint256 withdrawableAt);
    error OnlySlasher(address sender);

    /// @param token_ The token of the bonds.
    /// @param exitSeconds_ Exit delay in seconds.
    constructor(IERC20 token_, uint256 exitSeconds_) {
        token = token_;
        slasher = msg.sender;
        exitSeconds = exitSeconds_;
    }

    /// @notice Bond tokens of the sender for an account, which owns them from then on.
    /// @param account Account whose bond grows.
    /// @param amount Tokens in the smallest unit; the sender must have approved them.
    /// @custom:reverts NothingDeposited if the amount is zero.
    /// @custom:reverts SafeCastOverflowedUintDowncast if the amount has more than 96 bits.
    function deposit(address account, uint256 amount) external {
        if (amount == 0) revert NothingDeposited();
        _stakes[account].bonded += amount.toUint96();
        emit Deposited(account, amount);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @notice Request the exit of a part of the sender's bond. It no longer counts, and can be slashed until it is
    ///         withdrawn.
    /// @dev The exit delay of an earlier request that is not withdrawn begins again.
    /// @param amount Tokens in the smallest unit.
    /// @custom:reverts NotThatMuchBonded if the amount is zero or above the sender's bond.
    function requestExit(uint256 amount) external {
        Stake storage stake = _stakes[msg.sender];
        if (amount == 0 || amount > stake.bonded) revert NotThatMuchBonded(amount, stake.bonded);
        uint256 withdrawableAt = block.timestamp + exitSeconds;
        stake.bonded -= amount.toUint96();
        stake.exiting += amount.toUint96();
        stake.withdrawableAt = withdrawableAt.toUint64();
        emit ExitRequested(msg.sender, amount, withdrawableAt);
    }

    /// @notice Send the sender all its tokens in the exit delay, once the delay is over.
    /// @custom:reverts NothingExiting if it has none.
    /// @custom:reverts ExitTooEarly before the end of the delay.
    function withdraw() external {
        Stake storage stake = _stakes[msg.sender];
        uint256 amount = stake.exiting;
        if (amount == 0) revert NothingExiting(msg.sender);
        if (block.timestamp < stake.withdrawableAt) revert ExitTooEarly(stake.withdrawableAt);
        stake.exiting = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @notice Take all tokens of an account: half is burned, half is paid to the prover of its fraud.
    /// @dev Of an odd amount the larger half is burned. So an account that convicts itself always loses.
    /// @param account The convicted account.
    /// @param prover The account that proved the fraud.
    /// @custom:reverts OnlySlasher if the caller is not the fraud verifier.
    function slash(address account, address prover) external {
        if (msg.sender != slasher) revert OnlySlasher(msg.sender);
        Stake memory stake = _stakes[account];
        uint256 amount = uint256(stake.bonded) + stake.exiting;
        uint256 rewarded = amount / 2;
        delete _stakes[account];
        emit Slashed(account, prover, amount - rewarded, rewarded);
        token.safeTransfer(BURNED, amount - rewarded);
        token.safeTransfer(prover, rewarded);
    }

    /// @notice Return an account's bond, without the part in its exit delay, in the token's smallest unit.
    /// @param account The account.
    function bonded(address account) external view returns (uint256) {
        return _stakes[account].bonded;
    }

    /// @notice Return an account's bond, the part in its exit delay, and the end of the delay.
    /// @param account The account.
    function stakeOf(address account) external view returns (Stake memory) {
        return _stakes[account];
    }
}
