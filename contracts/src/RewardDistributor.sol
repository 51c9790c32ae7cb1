// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {SumTree} from "./SumTree.sol";

/// @title Pays accounts the points that final epochs grant them.
/// @notice It holds reward tokens only, never bonds, so a false root can at worst spend the rewards. Anyone can fund it
///         by a transfer. No owner: tokens leave it only through `claim`.
/// @dev Roots are cumulative: one claim collects the points of any number of epochs, and a proof is valid only as long
///      as its root is the newest one.
contract RewardDistributor {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Payee {
        /// Points paid so far; it never decreases.
        uint64 claimed;
        /// `grantedEpochs` at the time of the enrolment, plus 1; 0 if the account is not enrolled.
        uint32 since;
        /// Address that claims are paid to; zero means the account itself.
        address payout;
    }

    struct PayoutChange {
        address payout;
        /// Unix time in seconds from which the change can be applied; 0 if none is announced.
        uint64 effectiveAt;
    }

    /// @notice Time from the announcement of another payout address until it can be applied.
    uint256 public constant PAYOUT_DELAY = 7 days;
    bytes32 private constant NO_ROOT = bytes32(uint256(1));

    /// @notice The epoch ledger, which created this contract.
    address public immutable ledger;
    /// @notice The token in which points are paid.
    IERC20 public immutable token;
    /// @notice Price of a point in the token's smallest unit.
    uint256 public immutable tokensPerPoint;
    /// @notice Most points that an account can earn in one epoch.
    uint256 public immutable pointsCap;

    /// @notice Points that final epochs granted to all accounts.
    uint96 public grantedPoints;
    /// @notice Points paid to all accounts; never more than `grantedPoints`.
    uint96 public paidPoints;
    /// @notice Number of the last final epoch, plus 1.
    uint32 public grantedEpochs;
    /// @dev Makes the counters' slot non-zero from the beginning, so that the first grant costs as much as others.
    bool private _isUsed = true;
    /// @dev Non-zero from the beginning for the same reason. No leaf and proof lead to `NO_ROOT`.
    bytes32 private _cumulativeRoot = NO_ROOT;

    mapping(address account => Payee) private _payees;
    /// @notice The announced change of an account's payout address.
    mapping(address account => PayoutChange) public payoutChange;

    event PayoutAnnounced(address indexed account, address payout, uint256 effectiveAt);
    event PayoutSet(address indexed account, address payout);

    error OnlyLedger(address sender);
    error WrongProof(address account, uint256 cumulative);
    error NothingToClaim(address account, uint256 cumulative, uint256 claimed);
    error OverGranted(uint256 points, uint256 granted);
    error OverCap(uint256 points, uint256 most);
    error EmptyPayout();
    error NoPayoutChange(address account);
    error PayoutTooEarly(uint256 effectiveAt);

    /// @param token_ The token in which points are paid.
    /// @param tokensPerPoint_ Price of a point in the token's smallest unit.
    /// @param pointsCap_ Most points that an account can earn in one epoch.
    constructor(IERC20 token_, uint256 tokensPerPoint_, uint256 pointsCap_) {
        ledger = msg.sender;
        token = token_;
        tokensPerPoint = tokensPerPoint_;
        pointsCap = pointsCap_;
    }

    /// @notice Store the root of an epoch that has become final, and add its points to those granted.
    /// @dev It emits no event, because the ledger's `EpochFinal` contains both.
    /// @param root Cumulative root of the epoch.
    /// @param points Points of the epoch.
    /// @param epochs Number of the epoch, plus 1.
    /// @return base The root that was stored before.
    /// @custom:reverts OnlyLedger if the caller is not the ledger.
    function grant(bytes32 root, uint256 points, uint32 epochs) external returns (bytes32 base) {
        if (msg.sender != ledger) revert OnlyLedger(msg.sender);
        base = cumulativeRoot();
        _cumulativeRoot = root;
        grantedPoints += points.toUint96();
        grantedEpochs = epochs;
    }

    /// @notice Restore an earlier root after the recall of later epochs. Their points stay granted.
    /// @param root The root to which the oldest recalled epoch added.
    /// @custom:reverts OnlyLedger if the caller is not the ledger.
    function goBack(bytes32 root) external {
        if (msg.sender != ledger) revert OnlyLedger(msg.sender);
        _cumulativeRoot = root == 0 ? NO_ROOT : root;
    }

    /// @notice Enrol an account, so that it can be paid for epochs from now on. The registry enrols every account that
    ///         claims a node key. It has no effect on an account that is enrolled.
    /// @dev Anyone may call it, since an earlier enrolment can only raise what an account can be paid.
    /// @param account The account.
    function enrol(address account) external {
        if (_payees[account].since == 0) _payees[account].since = grantedEpochs + 1;
    }

    /// @notice Pay an account the points that it has not been paid yet, to its payout address. Anyone may call it.
    /// @param account The account that earned the points.
    /// @param cumulative The account's points of all epochs, as in the last final cumulative root.
    /// @param proof Sibling words from the account's leaf to the root; see `SumTree`.
    /// @dev It emits no event, because the token's `Transfer` contains all of it. Whatever the roots say, an account is
    ///      paid at most its cap for each epoch since its enrolment. The bound does not start again at a claim:
    ///      otherwise anyone could claim one point for an account from a root that is recalled later, and the points
    ///      that the account earned before would be above its bound.
    /// @custom:reverts WrongProof if value and proof do not lead to the last final cumulative root.
    /// @custom:reverts NothingToClaim if the account was paid as much already.
    /// @custom:reverts OverCap if the account would be paid more than its cap for each epoch since its enrolment.
    /// @custom:reverts OverGranted if all accounts would be paid more than was granted.
    function claim(address account, uint256 cumulative, bytes32[] calldata proof) external {
        if (SumTree.rootOf(account, cumulative, proof) != _cumulativeRoot) revert WrongProof(account, cumulative);
        Payee memory payee = _payees[account];
        if (cumulative <= payee.claimed) revert NothingToClaim(account, cumulative, payee.claimed);
        uint256 points = cumulative - payee.claimed;
        uint256 most = _mostOf(payee.since);
        if (cumulative > most) revert OverCap(points, most - payee.claimed);
        uint256 paid = paidPoints + points;
        if (paid > grantedPoints) revert OverGranted(paid, grantedPoints);

        paidPoints = paid.toUint96();
        _payees[account].claimed = uint64(cumulative);
        address receiver = payee.payout == address(0) ? account : payee.payout;
        token.safeTransfer(receiver, points * tokensPerPoint);
    }

    /// @notice Set the address that the sender's claims are paid to. The first address takes effect at once. Every
    ///         other one is announced, replaces an earlier announcement, and can be applied after `PAYOUT_DELAY`.
    /// @dev In this time the owner of a stolen key can claim, and can replace a thief's announcement.
    /// @param payout The new address.
    /// @custom:reverts EmptyPayout if the address is zero.
    function setPayout(address payout) external {
        if (payout == address(0)) revert EmptyPayout();
        if (_payees[msg.sender].payout == address(0)) {
            _payees[msg.sender].payout = payout;
            emit PayoutSet(msg.sender, payout);
        } else {
            uint256 effectiveAt = block.timestamp + PAYOUT_DELAY;
            payoutChange[msg.sender] = PayoutChange(payout, effectiveAt.toUint64());
            emit PayoutAnnounced(msg.sender, payout, effectiveAt);
        }
    }

    /// @notice Apply an announced payout address once its delay is over. Anyone may call it.
    /// @param account The account that announced it.
    /// @custom:reverts NoPayoutChange if none is announced.
    /// @custom:reverts PayoutTooEarly before the end of the delay.
    function applyPayout(address account) external {
        PayoutChange memory change = payoutChange[account];
        if (change.payout == address(0)) revert NoPayoutChange(account);
        if (block.timestamp < change.effectiveAt) revert PayoutTooEarly(change.effectiveAt);
        delete payoutChange[account];
        _payees[account].payout = change.payout;
        emit PayoutSet(account, change.payout);
    }

    /// @notice Return the cumulative root of the last final epoch; zero, the root of the empty tree, before the first.
    function cumulativeRoot() public view returns (bytes32) {
        return _cumulativeRoot == NO_ROOT ? bytes32(0) : _cumulativeRoot;
    }

    /// @notice Return the points that an account was paid so far.
    /// @param account The account.
    function claimed(address account) external view returns (uint256) {
        return _payees[account].claimed;
    }

    /// @notice Return the most points that an account could be paid now by any root.
    /// @param account The account.
    function mostClaimable(address account) external view returns (uint256) {
        return _mostOf(_payees[account].since) - _payees[account].claimed;
    }

    /// @notice Return the address that an account's claims are paid to.
    /// @param account The account.
    function payoutOf(address account) external view returns (address) {
        address payout = _payees[account].payout;
        return payout == address(0) ? account : payout;
    }

    /// @notice Compute the root from an account's points and a proof; see `SumTree.rootOf`.
    /// @param account The account.
    /// @param cumulative Its points.
    /// @param proof Sibling words from the account's leaf to the root.
    /// @return The root.
    function rootOf(address account, uint256 cumulative, bytes32[] calldata proof) external pure returns (bytes32) {
        return SumTree.rootOf(account, cumulative, proof);
    }

    /// @dev Return the most points that an account can be paid in total, given its `Payee.since`.
    function _mostOf(uint32 since) private view returns (uint256) {
        return since == 0 ? 0 : pointsCap * (grantedEpochs + 1 - since);
    }
}
