// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {EpochRoot, IDisputedLedger} from "./EpochRoot.sol";
import {MerkleSha256} from "./MerkleSha256.sol";
import {RewardDistributor} from "./RewardDistributor.sol";
import {StakeVault} from "./StakeVault.sol";

/// @title Judges proofs that an auditor or a posting is false.
/// @notice Anyone may prove; nobody decides. What a proof shows follows from its inputs, from the live posting and
///         from the last final root. A posting proven false is rejected, and the bonds of all who signed it are
///         slashed; of two roots signed in one turn of an epoch, only the bond of whoever signed both.
///
///         Together the rules leave a posting whose leaves are known no freedom but in who earned how much of the
///         epoch, within the cap: no account may have more than it had and earned, and all together must have it.
/// @dev Each proof counts once: a rejected posting is no longer live, and two signatures of one auditor in one
///      turn are remembered. No owner.
contract FraudVerifier {
    enum Rule {
        Equivocation,
        OverCap,
        ContributionSum,
        CumulativeSum,
        CumulativeDecrease,
        Unearned
    }

    /// @notice All leaves of a tree, in its order.
    struct Leaves {
        address[] accounts;
        uint256[] values;
    }

    /// @notice The epoch ledger, which created this contract.
    IDisputedLedger public immutable ledger;
    RewardDistributor public immutable distributor;
    /// @notice The bonds, created here, so that nobody else can slash them.
    StakeVault public immutable vault;
    /// @notice Most points that an account may earn in one epoch.
    uint256 public immutable pointsCap;

    /// @notice Whose second signature in a turn of an epoch was already punished.
    mapping(address auditor => mapping(uint64 epoch => mapping(uint32 turn => bool))) public equivocated;

    event FraudProven(Rule indexed rule, uint64 indexed epoch, address indexed prover);

    error NoContradiction();
    error NotAuditor(address signer);
    error AlreadyProven(address auditor, uint64 epoch, uint32 turn);
    error WithinCap(uint256 points, uint256 cap);
    error WrongLeaves();
    error SumMatches(uint256 sum);
    error NoDecrease(uint256 before, uint256 afterwards);
    error WasEarned(uint256 cumulative, uint256 earned);

    constructor(RewardDistributor distributor_, uint256 pointsCap_, IERC20 token, uint256 exitSeconds) {
        ledger = IDisputedLedger(msg.sender);
        distributor = distributor_;
        pointsCap = pointsCap_;
        vault = new StakeVault(token, exitSeconds);
    }

    /// @notice One auditor signed two different roots in one turn of an epoch. Counts whether or not either was posted.
    ///         In a later turn an auditor may sign another root: the earlier proposal came to nothing.
    function proveEquivocation(
        uint32 turn,
        EpochRoot calldata a,
        EpochRoot calldata b,
        bytes calldata signatureOfA,
        bytes calldata signatureOfB
    ) external {
        (bytes32 digestOfA, bytes32 digestOfB) = (ledger.approvalDigest(a, turn), ledger.approvalDigest(b, turn));
        address signer = ECDSA.recover(digestOfA, signatureOfA);
        if (a.epoch != b.epoch || digestOfA == digestOfB || signer != ECDSA.recover(digestOfB, signatureOfB)) {
            revert NoContradiction();
        }
        if (!ledger.isAuditor(signer)) revert NotAuditor(signer);
        if (equivocated[signer][a.epoch][turn]) revert AlreadyProven(signer, a.epoch, turn);
        equivocated[signer][a.epoch][turn] = true;
        emit FraudProven(Rule.Equivocation, a.epoch, msg.sender);
        ledger.strike(signer, a.epoch);
        vault.slash(signer, msg.sender);
    }

    /// @notice The live posting grants an account more than an epoch allows.
    function proveOverCap(address account, uint256 points, bytes32[] calldata proof) external {
        EpochRoot memory root = ledger.liveRoot();
        if (points <= pointsCap) revert WithinCap(points, pointsCap);
        _requireLeaf(root.contributionRoot, account, points, proof);
        _convict(Rule.OverCap, root.epoch);
    }

    /// @notice The points of the live posting do not add up to its total. Takes all leaves, in the tree's order.
    function proveContributionSum(address[] calldata accounts, uint256[] calldata points) external {
        EpochRoot memory root = ledger.liveRoot();
        _requireOtherSum(root.contributionRoot, accounts, points, root.total);
        _convict(Rule.ContributionSum, root.epoch);
    }

    /// @notice The cumulative points of the live posting do not add up to all that was granted before and its total.
    ///         Takes all leaves, in the tree's order.
    function proveCumulativeSum(address[] calldata accounts, uint256[] calldata cumulative) external {
        EpochRoot memory root = ledger.liveRoot();
        _requireOtherSum(root.cumulativeRoot, accounts, cumulative, distributor.grantedPoints() + root.total);
        _convict(Rule.CumulativeSum, root.epoch);
    }

    /// @notice The live posting takes points from an account that the last final root granted.
    function proveCumulativeDecrease(
        address account,
        uint256 before,
        bytes32[] calldata proofBefore,
        uint256 afterwards,
        bytes32[] calldata proofAfterwards
    ) external {
        EpochRoot memory root = ledger.liveRoot();
        if (afterwards >= before) revert NoDecrease(before, afterwards);
        _requireLeaf(distributor.cumulativeRoot(), account, before, proofBefore);
        _requireLeaf(root.cumulativeRoot, account, afterwards, proofAfterwards);
        _convict(Rule.CumulativeDecrease, root.epoch);
    }

    /// @notice The live posting gives an account more than the last final root and its points of this epoch do.
    /// @param before All leaves under the last final cumulative root.
    /// @param points All leaves under the live contribution root; an account that is listed twice has one cap.
    function proveUnearned(
        address account,
        uint256 cumulative,
        bytes32[] calldata proof,
        Leaves calldata before,
        Leaves calldata points
    ) external {
        EpochRoot memory root = ledger.liveRoot();
        uint256 earned = Math.saturatingAdd(_valueOf(before, account), Math.min(_valueOf(points, account), pointsCap));
        if (cumulative <= earned) revert WasEarned(cumulative, earned);
        _requireLeaf(root.cumulativeRoot, account, cumulative, proof);
        _requireLeaves(distributor.cumulativeRoot(), before.accounts, before.values);
        _requireLeaves(root.contributionRoot, points.accounts, points.values);
        _convict(Rule.Unearned, root.epoch);
    }

    function _requireLeaf(bytes32 root, address account, uint256 value, bytes32[] calldata proof) private view {
        if (MerkleSha256.rootOf(MerkleSha256.leaf(account, value), proof) != root) revert WrongLeaves();
    }

    function _requireLeaves(bytes32 root, address[] calldata accounts, uint256[] calldata values) private view {
        if (accounts.length != values.length) revert WrongLeaves();
        if (MerkleSha256.rootOfAll(accounts, values) != root) revert WrongLeaves();
    }

    function _valueOf(Leaves calldata leaves, address account) private pure returns (uint256 value) {
        if (leaves.accounts.length != leaves.values.length) revert WrongLeaves();
        for (uint256 i = 0; i < leaves.values.length; ++i) {
            if (leaves.accounts[i] == account) value = Math.saturatingAdd(value, leaves.values[i]);
        }
    }

    /// @dev A sum that overflows stays at the largest number: leaves too large to add up are no way out.
    function _requireOtherSum(
        bytes32 root,
        address[] calldata accounts,
        uint256[] calldata values,
        uint256 expected
    ) private view {
        _requireLeaves(root, accounts, values);
        uint256 sum = 0;
        for (uint256 i = 0; i < values.length; ++i) {
            sum = Math.saturatingAdd(sum, values[i]);
        }
        if (sum == expected) revert SumMatches(sum);
    }

    function _convict(Rule rule, uint64 epoch) private {
        emit FraudProven(rule, epoch, msg.sender);
        address[] memory signers = ledger.reject();
        for (uint256 i = 0; i < signers.length; ++i) {
            vault.slash(signers[i], msg.sender);
        }
    }
}
