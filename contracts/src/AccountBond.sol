// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochLedger} from "./EpochLedger.sol";

/// @title The accounts' bonds: the gate `bond` of a swarm's manifest counts what an account has here.
/// @notice A bond counts until its owner asks for it back, and then stays here for a delay: tokens that counted for
///         one account in an epoch never count for another one in it. A quorum of the ledger's bonded auditors
///         takes all of it from an account that signed two contents for one slot.
///
///         Nodes need the bonds of all accounts as of one block. The state keeps one hash, over the newest
///         `BondChanged` event, which holds the hash and the block of the one before it: whoever trusts the state
///         can read all changes backwards from any endpoint, and sees at once if one was changed or left out.
///
///         Trust, stated plainly: nothing here checks the two signatures, which are Ed25519 over up to 64 KiB each.
///         A dishonest quorum can burn bonds of honest accounts. It earns nothing by that: all of it is burned.
/// @dev No owner. The token is fixed and takes no fee on transfers.
contract AccountBond {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Bond {
        /// What counts.
        uint96 bonded;
        /// What waits to be withdrawn.
        uint96 exiting;
        /// Seconds; when `exiting` may be withdrawn.
        uint64 withdrawableAt;
    }

    /// @notice How many auditors have accused an account of an equivocation in an epoch.
    struct Accusation {
        uint64 accusers;
        bool slashed;
    }

    /// @notice Where burned tokens go: nobody knows a key of it.
    address public constant BURNED = 0x000000000000000000000000000000000000dEaD;
    /// @notice The history before the first change. No event hashes to it.
    bytes32 public constant EMPTY_HISTORY = bytes32(uint256(1));

    IERC20 public immutable token;
    /// @notice Whose auditors slash.
    EpochLedger public immutable ledger;
    /// @notice Seconds from a requested exit to its withdrawal.
    uint256 public immutable exitSeconds;

    mapping(address account => Bond) private _bonds;
    mapping(address account => mapping(uint64 epoch => Accusation)) private _accusations;
    mapping(address account => mapping(uint64 epoch => mapping(address auditor => bool))) private _hasAccused;
    bytes32 private _history = EMPTY_HISTORY;
    uint256 private _lastBlock;

    /// @param bonded What counts for the account from this block on.
    /// @param previousHistory Hash of the data of the change before, of whichever account; `EMPTY_HISTORY` for the
    ///        first.
    /// @param previousBlock Block of that change; 0 for the first.
    event BondChanged(address account, uint256 bonded, bytes32 previousHistory, uint256 previousBlock);
    event ExitRequested(address indexed account, uint256 amount, uint256 withdrawableAt);
    event Withdrawn(address indexed account, uint256 amount);
    /// @param proof Content id of the message that holds both contents.
    event Accused(address indexed account, uint64 indexed epoch, address indexed auditor, bytes32 proof);
    event Slashed(address indexed account, uint64 indexed epoch, uint256 burned);

    error NothingDeposited();
    error NotThatMuchBonded(uint256 asked, uint256 bonded);
    error NothingExiting(address account);
    error ExitTooEarly(uint256 withdrawableAt);
    error NotBegun(uint64 epoch);
    error NotAuditor(address sender);
    error AuditorNotBonded(address auditor);
    error NothingBonded(address account);
    error AlreadyAccused(address account, uint64 epoch, address auditor);
    error AlreadySlashed(address account, uint64 epoch);

    /// @param exitSeconds_ As in the manifest: an epoch longer than proofs of equivocation are accepted.
    constructor(EpochLedger ledger_, uint256 exitSeconds_) {
        ledger = ledger_;
        token = ledger_.distributor().token();
        exitSeconds = exitSeconds_;
    }

    /// @notice Bond `amount` of the sender's tokens for `account`, which owns them from then on.
    function deposit(address account, uint256 amount) external {
        if (amount == 0) revert NothingDeposited();
        uint96 bonded_ = _bonds[account].bonded + amount.toUint96();
        _bonds[account].bonded = bonded_;
        _note(account, bonded_);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @notice Begin to take `amount` out: it no longer counts, and can be slashed until it is withdrawn.
    /// @dev What was already on its way out waits anew, together with it.
    function requestExit(uint256 amount) external {
        Bond storage bond = _bonds[msg.sender];
        if (amount == 0 || amount > bond.bonded) revert NotThatMuchBonded(amount, bond.bonded);
        uint256 withdrawableAt = block.timestamp + exitSeconds;
        bond.bonded -= amount.toUint96();
        bond.exiting += amount.toUint96();
        bond.withdrawableAt = withdrawableAt.toUint64();
        _note(msg.sender, bond.bonded);
        emit ExitRequested(msg.sender, amount, withdrawableAt);
    }

    /// @notice Send the sender what it has asked for, once the delay is over.
    function withdraw() external {
        Bond storage bond = _bonds[msg.sender];
        uint256 amount = bond.exiting;
        if (amount == 0) revert NothingExiting(msg.sender);
        if (block.timestamp < bond.withdrawableAt) revert ExitTooEarly(bond.withdrawableAt);
        bond.exiting = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @notice Say, as a bonded auditor, that this auditor holds a proof of two contents of `account` for one slot of
    ///         `epoch`. The accusation that completes a quorum burns all that the account has here, on its way out too.
    /// @dev Auditors may hold different proofs of one account and epoch; they count together, and once. Those of that
    ///      epoch count, so that who replaces an auditor is not counted beside it.
    function accuse(address account, uint64 epoch, bytes32 proof) external {
        if (epoch > ledger.currentEpoch()) revert NotBegun(epoch);
        if (!ledger.isAuditorIn(msg.sender, epoch)) revert NotAuditor(msg.sender);
        if (ledger.vault().bonded(msg.sender) < ledger.auditorBond()) revert AuditorNotBonded(msg.sender);
        Bond memory bond = _bonds[account];
        uint256 amount = uint256(bond.bonded) + bond.exiting;
        if (amount == 0) revert NothingBonded(account);
        Accusation memory accusation = _accusations[account][epoch];
        if (accusation.slashed) revert AlreadySlashed(account, epoch);
        if (_hasAccused[account][epoch][msg.sender]) revert AlreadyAccused(account, epoch, msg.sender);
        _hasAccused[account][epoch][msg.sender] = true;
        accusation.accusers += 1;
        accusation.slashed = accusation.accusers >= ledger.quorum();
        _accusations[account][epoch] = accusation;
        emit Accused(account, epoch, msg.sender, proof);
        if (!accusation.slashed) return;
        delete _bonds[account];
        if (bond.bonded != 0) _note(account, 0);
        emit Slashed(account, epoch, amount);
        token.safeTransfer(BURNED, amount);
    }

    /// @notice What counts for an account.
    function bonded(address account) external view returns (uint256) {
        return _bonds[account].bonded;
    }

    /// @notice All that an account has here.
    function stakeOf(address account) external view returns (Bond memory) {
        return _bonds[account];
    }

    /// @notice How many auditors have accused an account of an equivocation in an epoch, and whether it was slashed.
    function accusationOf(address account, uint64 epoch) external view returns (Accusation memory) {
        return _accusations[account][epoch];
    }

    /// @notice Whether an auditor has accused an account of an equivocation in an epoch.
    function hasAccused(address auditor, address account, uint64 epoch) external view returns (bool) {
        return _hasAccused[account][epoch][auditor];
    }

    /// @notice Where the changes of bonds begin.
    /// @return history Hash of the data of the newest `BondChanged`; `EMPTY_HISTORY` if there is none.
    /// @return lastBlock Block of that event.
    function lastChange() external view returns (bytes32 history, uint256 lastBlock) {
        return (_history, _lastBlock);
    }

    function _note(address account, uint256 bonded_) private {
        (bytes32 previous, uint256 previousBlock) = (_history, _lastBlock);
        // The event's data, byte by byte.
        _history = keccak256(abi.encode(account, bonded_, previous, previousBlock));
        _lastBlock = block.number;
        emit BondChanged(account, bonded_, previous, previousBlock);
    }
}
