// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochLedger} from "./EpochLedger.sol";

/// @title Holds the accounts' bonds, which the gate `bond` of a swarm's manifest requires.
/// @notice A bond counts until its owner requests an exit; then it is locked for a delay. So tokens that counted for
///         one account in an epoch cannot count for another account in the same epoch. A quorum of the ledger's bonded
///         auditors burns the bond of an account that signed two contents for one slot.
///
///         Nodes need the bonds of all accounts as of a block. The state stores one hash, over the data of the newest
///         `BondChanged` event; each event contains the hash and the block of the one before it. A client that reads
///         this hash from the state can read all changes backwards from any endpoint, and detects every event that was
///         changed or left out.
///
///         Trust assumption: the contract does not verify the two signatures, which are Ed25519 signatures over up to
///         64 KiB each. A dishonest quorum can burn the bonds of honest accounts. It gains nothing, since everything is
///         burned.
/// @dev No owner. The token must not charge fees on transfers.
contract AccountBond {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Bond {
        /// Tokens that count.
        uint96 bonded;
        /// Tokens in the exit delay.
        uint96 exiting;
        /// Unix time in seconds from which `exiting` can be withdrawn.
        uint64 withdrawableAt;
    }

    /// @notice The accusations of an account of an equivocation in an epoch: their number, and whether it was slashed.
    struct Accusation {
        uint64 accusers;
        bool slashed;
    }

    /// @notice Address to which burned tokens are sent; nobody has its key.
    address public constant BURNED = 0x000000000000000000000000000000000000dEaD;
    /// @notice Value of the history before the first change. No event has this hash.
    bytes32 public constant EMPTY_HISTORY = bytes32(uint256(1));

    /// @notice The token of the bonds.
    IERC20 public immutable token;
    /// @notice The ledger whose auditors may accuse.
    EpochLedger public immutable ledger;
    /// @notice Exit delay: time from the request of an exit to the earliest withdrawal, in seconds.
    uint256 public immutable exitSeconds;

    mapping(address account => Bond) private _bonds;
    mapping(address account => mapping(uint64 epoch => Accusation)) private _accusations;
    mapping(address account => mapping(uint64 epoch => mapping(address auditor => bool))) private _hasAccused;
    bytes32 private _history = EMPTY_HISTORY;
    uint256 private _lastBlock;

    /// @param bonded The account's bond from this block on, in the token's smallest unit.
    /// @param previousHistory Hash of the data of the previous change, of any account; `EMPTY_HISTORY` for the first.
    /// @param previousBlock Block of the previous change; 0 for the first.
    event BondChanged(address account, uint256 bonded, bytes32 previousHistory, uint256 previousBlock);
    event ExitRequested(address indexed account, uint256 amount, uint256 withdrawableAt);
    event Withdrawn(address indexed account, uint256 amount);
    /// @param proof Content id of the message that contains both contents.
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

    /// @param ledger_ The ledger whose auditors may accuse.
    /// @param exitSeconds_ Exit delay in seconds, as in the manifest: one epoch longer than proofs are accepted.
    constructor(EpochLedger ledger_, uint256 exitSeconds_) {
        ledger = ledger_;
        token = ledger_.distributor().token();
        exitSeconds = exitSeconds_;
    }

    /// @notice Bond tokens of the sender for an account, which owns them from then on.
    /// @param account Account whose bond grows.
    /// @param amount Tokens in the smallest unit; the sender must have approved them.
    /// @custom:reverts NothingDeposited if the amount is zero.
    /// @custom:reverts SafeCastOverflowedUintDowncast if the amount has more than 96 bits.
    function deposit(address account, uint256 amount) external {
        if (amount == 0) revert NothingDeposited();
        uint96 bonded_ = _bonds[account].bonded + amount.toUint96();
        _bonds[account].bonded = bonded_;
        _note(account, bonded_);
        token.safeTransferFrom(msg.sender, address(this), amount);
    }

    /// @notice Request the exit of a part of the sender's bond. It no longer counts, and can be slashed until it is
    ///         withdrawn.
    /// @dev The exit delay of an earlier request that is not withdrawn begins again.
    /// @param amount Tokens in the smallest unit.
    /// @custom:reverts NotThatMuchBonded if the amount is zero or above the sender's bond.
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

    /// @notice Send the sender all its tokens in the exit delay, once the delay is over.
    /// @custom:reverts NothingExiting if it has none.
    /// @custom:reverts ExitTooEarly before the end of the delay.
    function withdraw() external {
        Bond storage bond = _bonds[msg.sender];
        uint256 amount = bond.exiting;
        if (amount == 0) revert NothingExiting(msg.sender);
        if (block.timestamp < bond.withdrawableAt) revert ExitTooEarly(bond.withdrawableAt);
        bond.exiting = 0;
        emit Withdrawn(msg.sender, amount);
        token.safeTransfer(msg.sender, amount);
    }

    /// @notice Accuse an account, as a bonded auditor that has a proof of two contents of the account for one slot. The
    ///         accusation that completes a quorum burns all tokens of the account, including those in the exit delay.
    /// @dev Accusations of one account and epoch are counted together, also if the auditors have different proofs. Only
    ///      the auditors of that epoch can accuse, so an auditor and its successor are not both counted.
    /// @param account The accused account.
    /// @param epoch The epoch of the slot.
    /// @param proof Content id of the message that contains both contents; only reported in the event.
    /// @custom:reverts NotBegun if the epoch is in the future.
    /// @custom:reverts NotAuditor if the sender is not an auditor of this epoch.
    /// @custom:reverts AuditorNotBonded if the sender does not have an auditor's bond.
    /// @custom:reverts NothingBonded if the account has no tokens here.
    /// @custom:reverts AlreadySlashed if the account was slashed for this epoch.
    /// @custom:reverts AlreadyAccused if the sender has accused the account of this epoch.
    function accuse(address account, uint64 epoch, bytes32 proof) external {
        if (epoch > ledger.currentEpoch()) revert NotBegun(epoch);
        if (!ledger.isAuditorIn(msg.sender, epoch)) revert NotAuditor(msg.sender);
        if (ledger.vault().bonded(msg.sender) < ledger.auditorBond()) revert AuditorNotBonded(msg.sender);
        Bond memory bond = _bonds[account];
        uint256 amount = uint256(bond.bonded) + bond.exiting;
        // A sum of own counters, which nobody can change by a transfer.
        // slither-disable-next-line incorrect-equality
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

    /// @notice Return an account's bond, without the part in its exit delay, in the token's smallest unit.
    /// @param account The account.
    function bonded(address account) external view returns (uint256) {
        return _bonds[account].bonded;
    }

    /// @notice Return an account's bond, the part in its exit delay, and the end of the delay.
    /// @param account The account.
    function stakeOf(address account) external view returns (Bond memory) {
        return _bonds[account];
    }

    /// @notice Return how many auditors accused an account of an equivocation in an epoch, and whether it was slashed.
    /// @param account The account.
    /// @param epoch The epoch.
    function accusationOf(address account, uint64 epoch) external view returns (Accusation memory) {
        return _accusations[account][epoch];
    }

    /// @notice Whether an auditor has accused an account of an equivocation in an epoch.
    /// @param auditor The auditor.
    /// @param account The account.
    /// @param epoch The epoch.
    function hasAccused(address auditor, address account, uint64 epoch) external view returns (bool) {
        return _hasAccused[account][epoch][auditor];
    }

    /// @notice Return the newest change of a bond, from which all changes can be read backwards.
    /// @return history Hash of the data of the newest `BondChanged`; `EMPTY_HISTORY` if there is none.
    /// @return lastBlock Block of that event.
    function lastChange() external view returns (bytes32 history, uint256 lastBlock) {
        return (_history, _lastBlock);
    }

    function _note(address account, uint256 bonded_) private {
        (bytes32 previous, uint256 previousBlock) = (_history, _lastBlock);
        // These bytes are the data of the event.
        _history = keccak256(abi.encode(account, bonded_, previous, previousBlock));
        _lastBlock = block.number;
        emit BondChanged(account, bonded_, previous, previousBlock);
    }
}
