// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {SumTree} from "./SumTree.sol";

/// @title Pays accounts what final epochs grant them.
/// @notice Holds reward tokens only, never bonds: a false root can at worst spend what was set aside for rewards.
///         Anyone funds it by a plain transfer. No owner: tokens leave it only through `claim`.
/// @dev Roots are cumulative, so one claim collects any number of epochs, and an old proof dies with its root.
contract RewardDistributor {
    using SafeERC20 for IERC20;
    using SafeCast for uint256;

    struct Payee {
        /// Points paid so far; never falls.
        uint64 claimed;
        /// The epoch up to which points were granted when the account was enrolled, plus 1. 0: not enrolled.
        uint32 since;
        /// Where claims go; zero: to the account itself.
        address payout;
    }

    struct PayoutChange {
        address payout;
        /// Seconds; 0 if no change is on its way.
        uint64 effectiveAt;
    }

    /// @notice Seconds from the announcement of another payout address to its first payment.
    uint256 public constant PAYOUT_DELAY = 7 days;
    bytes32 private constant NO_ROOT = bytes32(uint256(1));

    /// @notice The epoch ledger, which created this contract.
    address public immutable ledger;
    IERC20 public immutable token;
    /// @notice In the token's smallest unit.
    uint256 public immutable tokensPerPoint;
    /// @notice Most points that an account may earn in one epoch.
    uint256 public immutable pointsCap;

    /// @notice Points that final epochs granted, all accounts together.
    uint96 public grantedPoints;
    /// @notice Points paid so far, all accounts together; never above what was granted.
    uint96 public paidPoints;
    /// @notice The epoch up to which points were granted: the last final one plus 1.
    uint32 public grantedEpochs;
    /// @dev Keeps the counters' slot from being zero: the first grant costs what every other does.
    bool private _isUsed = true;
    /// @dev Not zero before the first, either. No leaf and proof lead to this.
    bytes32 private _cumulativeRoot = NO_ROOT;

    mapping(address account => Payee) private _payees;
    /// @notice Announced payout addresses.
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

    constructor(IERC20 token_, uint256 tokensPerPoint_, uint256 pointsCap_) {
        ledger = msg.sender;
        token = token_;
        tokensPerPoint = tokensPerPoint_;
        pointsCap = pointsCap_;
    }

    /// @notice Take over the root of an epoch that has become final, and the points that it adds.
    /// @dev Without an event of its own: the ledger's `EpochFinal` tells both.
    /// @param epochs The epoch plus 1.
    /// @return base The root that it takes the place of.
    function grant(bytes32 root, uint256 points, uint32 epochs) external returns (bytes32 base) {
        if (msg.sender != ledger) revert OnlyLedger(msg.sender);
        base = cumulativeRoot();
        _cumulativeRoot = root;
        grantedPoints += points.toUint96();
        grantedEpochs = epochs;
    }

    /// @notice Go back to an earlier root: the leaves of the later ones are shown to nobody.
    function goBack(bytes32 root) external {
        if (msg.sender != ledger) revert OnlyLedger(msg.sender);
        _cumulativeRoot = root == 0 ? NO_ROOT : root;
    }

    /// @notice Let an account earn from now on; the registry does it for whoever registers. Changes nothing for one
    ///         that is enrolled.
    /// @dev Anyone may send it: it takes nothing from the account, and pays it nothing.
    function enrol(address account) external {
        if (_payees[account].since == 0) _payees[account].since = grantedEpochs + 1;
    }

    /// @notice Pay `account` the points it has not been paid yet. Anyone may send it; only its payout address is paid.
    /// @param cumulative The account's points of all epochs, as in the last final cumulative root.
    /// @param proof Words beside the path from the leaf upwards; see `SumTree`.
    /// @dev Without an event of its own: the token's tells what went where. Whatever a root says, an account is paid
    ///      no more in all than its cap for each epoch since its enrolment. A claim does not begin the count anew: out of
    ///      a root that is recalled later, anyone could claim a point for an account that has earned many.
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

    /// @notice Have the sender's claims paid to `payout`: at once if none was set before, else after a delay.
    /// @dev The delay gives the owner of a stolen key the time to claim, and to move what is left elsewhere.
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

    /// @notice Put an announced payout address in place once its delay is over. Anyone may send it.
    function applyPayout(address account) external {
        PayoutChange memory change = payoutChange[account];
        if (change.payout == address(0)) revert NoPayoutChange(account);
        if (block.timestamp < change.effectiveAt) revert PayoutTooEarly(change.effectiveAt);
        delete payoutChange[account];
        _payees[account].payout = change.payout;
        emit PayoutSet(account, change.payout);
    }

    /// @notice The cumulative root of the last final epoch; zero before the first, as that of no leaves.
    function cumulativeRoot() public view returns (bytes32) {
        return _cumulativeRoot == NO_ROOT ? bytes32(0) : _cumulativeRoot;
    }

    /// @notice Points that an account was paid so far.
    function claimed(address account) external view returns (uint256) {
        return _payees[account].claimed;
    }

    /// @notice The most points that an account can be paid now, whatever a root says.
    function mostClaimable(address account) external view returns (uint256) {
        return _mostOf(_payees[account].since) - _payees[account].claimed;
    }

    /// @notice Where an account's claims go.
    function payoutOf(address account) external view returns (address) {
        address payout = _payees[account].payout;
        return payout == address(0) ? account : payout;
    }

    /// @notice The root that an account's points and a proof lead to.
    function rootOf(address account, uint256 cumulative, bytes32[] calldata proof) external pure returns (bytes32) {
        return SumTree.rootOf(account, cumulative, proof);
    }

    /// @dev In all; an account is never paid more.
    function _mostOf(uint32 since) private view returns (uint256) {
        return since == 0 ? 0 : pointsCap * (grantedEpochs + 1 - since);
    }
}
