// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title The auditors' bonds: what an account loses if it is proven to have signed a falsehood.
/// @notice A bond leaves by its owner's wish alone and only after a delay that outlasts every challenge of what
///         the owner signed while bonded; or by a fraud proof, which takes it all, on its way out too.
/// @dev No owner. The slasher is the verifier of fraud proofs, which created this contract and decides by its
///      inputs alone. The token is fixed and takes no fee on transfers.
contract StakeVault {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Stake {
        /// What makes the account's signatures count.
        uint96 bonded;
        /// What waits to be withdrawn.
        uint96 exiting;
        /// Seconds; when `exiting` may be withdrawn.
        uint64 withdrawableAt;
    }

    /// @notice Where burned tokens go: nobody knows a key of it.
    address public constant BURNED = 0x000000000000000000000000000000000000dEaD;

    IERC20 public immutable token;
    /// @notice The verifier of fraud proofs.
    address public immutable slasher;
    /// @notice Seconds from a requested exit to its withdrawal.
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

    constructor(IERC20 token_, uint256 exitSeconds_) {
        token = token_;
        slasher = msg.sender;
        exitSeconds = exitSeconds_;
    }

    /// @notice Bond `amount` of the sender's tokens for `account`, which owns them from then on.
    function deposit(address account, uint256 amount) external {
        if (amount == 0) revert NothingDeposited();
        _stakes[account].bonded += amount.toUint96();
        emit Deposited(account, amount);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @notice Begin to take `amount` out: it no longer counts as a bond, and can be slashed until it is withdrawn.
    /// @dev What was already on its way out waits anew, together with it.
    function requestExit(uint256 amount) external {
        Stake storage stake = _stakes[msg.sender];
        if (amount == 0 || amount > stake.bonded) revert NotThatMuchBonded(amount, stake.bonded);
        uint256 withdrawableAt = block.timestamp + exitSeconds;
        stake.bonded -= amount.toUint96();
        stake.exiting += amount.toUint96();
        stake.withdrawableAt = withdrawableAt.toUint64();
        emit ExitRequested(msg.sender, amount, withdrawableAt);
    }

    /// @notice Send the sender what it has asked for, once the delay is over.
    function withdraw() external {
        Stake storage stake = _stakes[msg.sender];
        uint256 amount = stake.exiting;
        if (amount == 0) revert NothingExiting(msg.sender);
        if (block.timestamp < stake.withdrawableAt) revert ExitTooEarly(stake.withdrawableAt);
        stake.exiting = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @notice Take all that an account has here: half is burned, half goes to whoever proved its fraud.
    /// @dev Of an odd amount the larger half is burned, so that nobody gains by convicting himself.
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

    /// @notice What makes an account's signatures count.
    function bonded(address account) external view returns (uint256) {
        return _stakes[account].bonded;
    }

    /// @notice All that an account has here.
    function stakeOf(address account) external view returns (Stake memory) {
        return _stakes[account];
    }
}
