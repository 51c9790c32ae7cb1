// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

import {RewardDistributor} from "./RewardDistributor.sol";

/// @title One posting per epoch: what every account contributed, agreed by a quorum of auditors.
/// @notice Auditors recompute an epoch off the chain and sign the same statement (EIP-712); anyone posts it with
///         their signatures. The cost does not depend on how many rollouts or accounts the epoch had.
///
///         Trust, stated plainly: a dishonest quorum can post a false root. What it can take is bounded by the
///         chain: an epoch is posted once, only after it has ended, and for no more than the epoch budget, and
///         the distributor never pays more points than were posted in all. In this version a posting is final
///         at once; a challenge window with fraud proofs is later work.
/// @dev No owner, no proxy, no setter: auditors, quorum, budget and clock are fixed at deployment. A new set is a
///      new ledger, hence a new manifest and swarm id.
contract EpochLedger is EIP712 {
    struct Record {
        bytes32 contributionRoot;
        bytes32 cumulativeRoot;
        bytes32 archiveDigest;
        /// Points of this epoch, all accounts together.
        uint128 total;
        /// Seconds; 0 if the epoch was never posted.
        uint64 postedAt;
    }

    bytes32 public constant EPOCH_ROOT_TYPEHASH = keccak256(
        "EpochRoot(uint64 epoch,bytes32 contributionRoot,bytes32 cumulativeRoot,uint256 total,bytes32 archiveDigest)"
    );
    /// @notice Bound on the auditor set: it is listed in one view call and checked once in the constructor.
    uint256 public constant MAX_AUDITORS = 64;

    /// @notice Pays what the postings grant. Created here, so that each side is fixed to the other.
    RewardDistributor public immutable distributor;
    /// @notice Auditor signatures that a posting needs.
    uint256 public immutable quorum;
    /// @notice Most points that one epoch may grant.
    uint256 public immutable epochBudget;
    /// @notice Start of epoch 0 and length of every epoch, in seconds, as in the swarm's manifest.
    uint256 public immutable genesisSeconds;
    uint256 public immutable epochSeconds;

    mapping(address account => bool) public isAuditor;
    address[] private _auditors;
    mapping(uint64 epoch => Record) private _records;

    // One slot, written by every posting. The epoch is kept one higher than `nextEpoch`, so that the slot is
    // never zero: the first posting then costs what every other does.
    uint64 private _nextEpochPlusOne = 1;
    uint128 private _cumulativeTotal;

    event EpochPosted(
        uint64 indexed epoch,
        bytes32 contributionRoot,
        bytes32 cumulativeRoot,
        uint256 total,
        bytes32 archiveDigest
    );

    error BadAuditors();
    error BadQuorum(uint256 quorum, uint256 auditors);
    error BadClock();
    error BadBudget(uint256 budget);
    error EpochNotIncreasing(uint64 epoch, uint64 nextEpoch);
    error EpochNotOver(uint64 epoch, uint256 endsAt);
    error OverBudget(uint256 total, uint256 budget);
    error TooFewSignatures(uint256 given, uint256 needed);
    error SignerOrder(address previous, address signer);
    error NotAuditor(address signer);
    error NothingPosted();

    /// @param auditors_ Accounts whose signatures count, strictly ascending.
    /// @param quorum_ At least one, at most all of them.
    /// @param epochBudget_ Points per epoch.
    /// @param token What the distributor pays.
    /// @param tokensPerPoint In the token's smallest unit.
    constructor(
        address[] memory auditors_,
        uint256 quorum_,
        uint256 genesisSeconds_,
        uint256 epochSeconds_,
        uint256 epochBudget_,
        IERC20 token,
        uint256 tokensPerPoint
    ) EIP712("sapo", "1") {
        if (auditors_.length > MAX_AUDITORS) revert BadAuditors();
        if (quorum_ == 0 || quorum_ > auditors_.length) revert BadQuorum(quorum_, auditors_.length);
        if (epochSeconds_ == 0) revert BadClock();
        // Below this, the sum over all 2^64 epochs cannot overflow the counter of points.
        if (epochBudget_ > type(uint64).max) revert BadBudget(epochBudget_);
        address previous = address(0);
        for (uint256 i = 0; i < auditors_.length; ++i) {
            if (auditors_[i] <= previous) revert BadAuditors();
            previous = auditors_[i];
            isAuditor[previous] = true;
        }
        _auditors = auditors_;
        quorum = quorum_;
        genesisSeconds = genesisSeconds_;
        epochSeconds = epochSeconds_;
        epochBudget = epochBudget_;
        distributor = new RewardDistributor(token, tokensPerPoint);
    }

    /// @notice Record an epoch. Anyone may send it: the signatures are what counts.
    /// @dev Epochs strictly increase but may be skipped: one without a payable rollout, or whose auditors never
    ///      agreed, is not posted, and what it would have granted is not granted later.
    /// @param epoch Has ended, and is above every posted one.
    /// @param contributionRoot Merkle root of (account, points of this epoch).
    /// @param cumulativeRoot Merkle root of (account, points of all epochs up to this one).
    /// @param total Sum of the points of this epoch.
    /// @param archiveDigest SHA-256 of the archive from which everyone can recompute the roots.
    /// @param signatures 65 bytes each (r, s, v), by distinct auditors in strictly ascending order of address.
    function post(
        uint64 epoch,
        bytes32 contributionRoot,
        bytes32 cumulativeRoot,
        uint256 total,
        bytes32 archiveDigest,
        bytes[] calldata signatures
    ) external {
        if (epoch < nextEpoch()) revert EpochNotIncreasing(epoch, nextEpoch());
        uint256 endsAt = genesisSeconds + (uint256(epoch) + 1) * epochSeconds;
        if (block.timestamp < endsAt) revert EpochNotOver(epoch, endsAt);
        if (total > epochBudget) revert OverBudget(total, epochBudget);
        _checkSignatures(epochRootDigest(epoch, contributionRoot, cumulativeRoot, total, archiveDigest), signatures);

        // Overflows, and so refuses, for the last two epoch numbers only.
        _nextEpochPlusOne = epoch + 2;
        _cumulativeTotal += uint128(total);
        _records[epoch] =
            Record(contributionRoot, cumulativeRoot, archiveDigest, uint128(total), uint64(block.timestamp));
        emit EpochPosted(epoch, contributionRoot, cumulativeRoot, total, archiveDigest);
    }

    /// @notice The accounts whose signatures count, ascending.
    function auditors() external view returns (address[] memory) {
        return _auditors;
    }

    /// @notice The last posted epoch; reverts before the first.
    function lastEpoch() public view returns (uint64) {
        if (nextEpoch() == 0) revert NothingPosted();
        return nextEpoch() - 1;
    }

    /// @notice The lowest epoch that can still be posted: 0 before the first posting, else the last one plus 1.
    function nextEpoch() public view returns (uint64) {
        return _nextEpochPlusOne - 1;
    }

    /// @notice What was posted for `epoch`; all zero (`postedAt` too) if nothing was.
    function record(uint64 epoch) external view returns (Record memory) {
        return _records[epoch];
    }

    /// @notice What claims are paid against: the latest cumulative root and the points posted in all.
    function claimable() external view returns (bytes32 cumulativeRoot, uint256 cumulativeTotal) {
        return (_records[lastEpoch()].cumulativeRoot, _cumulativeTotal);
    }

    /// @notice What an auditor signs (EIP-712), bound to this chain and this contract.
    function epochRootDigest(
        uint64 epoch,
        bytes32 contributionRoot,
        bytes32 cumulativeRoot,
        uint256 total,
        bytes32 archiveDigest
    ) public view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(
                abi.encode(EPOCH_ROOT_TYPEHASH, epoch, contributionRoot, cumulativeRoot, total, archiveDigest)
            )
        );
    }

    /// @dev Ascending signers make a repeated one impossible without any bookkeeping.
    function _checkSignatures(bytes32 digest, bytes[] calldata signatures) private view {
        if (signatures.length < quorum) revert TooFewSignatures(signatures.length, quorum);
        address previous = address(0);
        for (uint256 i = 0; i < signatures.length; ++i) {
            address signer = ECDSA.recover(digest, signatures[i]);
            if (signer <= previous) revert SignerOrder(previous, signer);
            if (!isAuditor[signer]) revert NotAuditor(signer);
            previous = signer;
        }
    }
}
