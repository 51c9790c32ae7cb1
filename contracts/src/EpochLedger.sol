// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochRoot, FinalEpoch, IDisputedLedger} from "./EpochRoot.sol";
import {FraudVerifier} from "./FraudVerifier.sol";
import {RewardDistributor} from "./RewardDistributor.sol";
import {StakeVault} from "./StakeVault.sol";
import {SumTree} from "./SumTree.sol";

/// @title Records one statement per epoch: how many points each account earned, signed by a quorum of bonded auditors.
/// @notice Auditors compute an epoch's points off the chain and sign the same statement (EIP-712). Anyone can post it
///         with their signatures. During the challenge window the posting is live: a fraud proof rejects it and slashes
///         its signers. After that anyone can make it final, and only then its points can be claimed. The cost does
///         not depend on the number of rollouts or accounts.
///
///         For all final epochs the state stores one hash, over the data of the newest `EpochFinal` event. Each of
///         these events contains the record of an epoch, and the hash and the block of the previous event. A client
///         that reads this hash from the state can read all records backwards from any endpoint, and detects every
///         record that was changed or left out.
///
///         Trust assumption: a dishonest quorum can post a false statement that satisfies all rules that the contracts
///         check. What it can take is bounded: an epoch becomes final once, after its end, with at most the epoch
///         budget, and the distributor never pays more points than were granted. Undisclosed leaves can be asked for;
///         see `FraudVerifier`.
/// @dev No owner, no proxy, no setter: number of auditors, quorum, budget and clock are fixed at deployment. The terms
///      of the swarm and the auditors change only by an announcement, with the signatures of a quorum and a time lock.
///      The ledger creates distributor and verifier, and the verifier creates the vault, so none of these four can be
///      exchanged.
contract EpochLedger is IDisputedLedger, EIP712 {
    using SafeCast for uint256;

    /// @notice The terms that a ledger is deployed with.
    struct Terms {
        /// Accounts whose signatures count, strictly ascending.
        address[] auditors;
        /// Number of signatures that a posting needs: from one to the number of auditors.
        uint256 quorum;
        /// Start of epoch 0 (Unix time) and length of an epoch, both in seconds, as in the swarm's manifest.
        uint256 genesisSeconds;
        uint256 epochSeconds;
        /// Length of the challenge window in seconds; shorter than an epoch, so that each epoch can be final in time.
        uint256 challengeSeconds;
        /// Most points of an epoch: of all accounts, and of one account.
        uint256 epochBudget;
        uint256 pointsCap;
        /// Bond that an auditor needs for its signatures to count, in the token's smallest unit.
        uint256 auditorBond;
        /// Token of bonds and rewards, and the price of a point in its smallest unit.
        IERC20 token;
        uint256 tokensPerPoint;
    }

    /// @notice The live posting, and the end of the final epochs.
    /// @dev All fields that are not hashes share one slot. 40 bits suffice for every second until the year 36,812, and
    ///      32 bits for the number of every epoch for centuries, even if an epoch took two seconds.
    struct Posting {
        bytes32 contributionRoot;
        /// If nothing is live: the root of the last final epoch, to which the next posting must add.
        bytes32 cumulativeRoot;
        bytes32 archiveDigest;
        uint32 epoch;
        /// Unix time in seconds; 0 if nothing is live.
        uint40 postedAt;
        /// Bit i is set if the auditor at place i of `auditorsIn(epoch)` signed it.
        uint64 signers;
        uint32 total;
        /// The lowest epoch that can still become final: the last final one plus 1, 0 before the first.
        uint32 nextEpoch;
        /// Number of reasons that prevent it from becoming final: open questions, and a lost quorum counts one.
        uint16 open;
        /// Block of the newest `EpochFinal`; 0 before the first.
        uint40 finalBlock;
    }

    /// @notice An announced change from an epoch on: of the terms of the swarm, of an auditor, or of both.
    struct Succession {
        /// Number of the announcement, counted from 0; withdrawn announcements count.
        uint64 number;
        /// First epoch in which the change is in force.
        uint64 activationEpoch;
        /// Digest of the document with the new terms, which only nodes read; 0 if the terms stay.
        bytes32 successor;
        /// The auditor that is replaced, and its replacement; both 0 if the auditors stay.
        address leaving;
        address entering;
    }

    /// @dev An auditor's place and epochs, in one slot.
    struct Tenure {
        /// The auditor that had the place before; 0 if there was none.
        address predecessor;
        /// Index in `_auditors`, plus 1; 0 for an account that never was an auditor.
        uint8 place;
        /// First epoch in which its signatures count, and the first epoch after them.
        uint40 fromEpoch;
        uint40 untilEpoch;
    }

    /// @notice EIP-712 type hash of an announcement.
    bytes32 public constant SUCCESSION_TYPEHASH = keccak256(
        "Succession(uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering)"
    );
    /// @notice EIP-712 type hash of the withdrawal of an announcement.
    bytes32 public constant WITHDRAWAL_TYPEHASH = keccak256("Withdrawal(uint64 number)");
    /// @notice The time lock: least number of epochs between an announcement and its activation.
    uint256 public constant NOTICE_EPOCHS = 8;
    /// @notice Number of epochs before its activation from which an announcement cannot be withdrawn. A client that
    ///         has read the announcements knows what is in force for so many epochs, whatever follows.
    uint256 public constant SETTLED_EPOCHS = 4;

    /// @notice EIP-712 type hash of a statement.
    bytes32 public constant EPOCH_ROOT_TYPEHASH = keccak256(
        "EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,uint256 total,"
        "bytes32 archiveDigest)"
    );
    /// @notice EIP-712 type hash of an auditor's approval of a statement in a turn.
    bytes32 public constant EPOCH_APPROVAL_TYPEHASH = keccak256(
        "EpochApproval(uint32 turn,EpochRoot root)EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,"
        "bytes32 cumulativeRoot,uint256 total,bytes32 archiveDigest)"
    );
    /// @notice Most auditors of a ledger: each one has a bit in the live posting.
    uint256 public constant MAX_AUDITORS = 64;
    /// @notice Value of the history before the first final epoch. No event has this hash.
    bytes32 public constant EMPTY_HISTORY = bytes32(uint256(1));
    uint40 private constant NO_END = type(uint40).max;
    /// @dev Represents the root zero in a slot, so that the slot is never zero.
    bytes32 private constant NO_ROOT = bytes32(uint256(1));

    /// @notice The contract that pays claims.
    RewardDistributor public immutable distributor;
    /// @notice The contract that verifies fraud proofs.
    FraudVerifier public immutable verifier;
    /// @notice The contract that holds the auditors' bonds.
    StakeVault public immutable vault;
    /// @notice Number of signatures that a posting needs.
    uint256 public immutable quorum;
    /// @notice Unix time of the start of epoch 0, in seconds.
    uint256 public immutable genesisSeconds;
    /// @notice Length of an epoch in seconds.
    uint256 public immutable epochSeconds;
    /// @inheritdoc IDisputedLedger
    uint256 public immutable override challengeSeconds;
    /// @notice Most points of all accounts in one epoch.
    uint256 public immutable epochBudget;
    /// @inheritdoc IDisputedLedger
    uint256 public immutable override auditorBond;

    /// @dev The newest auditor of each place, including an announced one.
    address[] private _auditors;
    mapping(address account => Tenure) private _tenures;
    /// @dev Every posting uses the same slots, which are never zero, so that the first costs as much as others.
    Posting private _live;
    /// @dev Never zero, for the same reason.
    bytes32 private _history = EMPTY_HISTORY;
    mapping(bytes32 digest => bool) private _isRejected;
    /// @dev Ascending by number and activation. Only the last one can be not in force yet.
    Succession[] private _successions;
    /// @notice The number that the next announcement must have.
    uint64 public nextSuccession;

    event SuccessorAnnounced(
        uint64 indexed number, uint64 indexed activationEpoch, bytes32 successor, address leaving, address entering
    );
    event SuccessorWithdrawn(uint64 indexed number);
    event EpochPosted(EpochRoot root, uint64 signers, uint256 finalAt);
    /// @param previousHistory Hash of the data of the previous `EpochFinal`; `EMPTY_HISTORY` for the first.
    /// @param previousBlock Block of the previous `EpochFinal`; 0 for the first.
    event EpochFinal(
        uint64 indexed epoch,
        EpochRoot root,
        uint64 signers,
        uint64 postedAt,
        bytes32 previousHistory,
        uint64 previousBlock
    );
    event EpochRejected(uint64 indexed epoch, bytes32 digest);
    event EpochExpired(uint64 indexed epoch, bytes32 digest);
    /// @param firstEpoch The oldest recalled epoch; all later final epochs are recalled, too.
    /// @param baseRoot The root from which the ledger continues.
    event EpochsRecalled(uint64 indexed firstEpoch, bytes32 baseRoot);
    event SignatureStruck(uint64 indexed epoch, address indexed auditor);

    error BadAuditors();
    error BadQuorum(uint256 quorum, uint256 auditors);
    error BadClock();
    error BadBudget(uint256 budget);
    error EpochNotIncreasing(uint64 epoch, uint64 nextEpoch);
    error EpochNotOver(uint64 epoch, uint256 endsAt);
    error OtherPostingLive(uint64 epoch);
    error StaleBase(bytes32 baseRoot, bytes32 cumulativeRoot);
    error OverBudget(uint256 total, uint256 budget);
    error WrongSum();
    error RootRejected(bytes32 digest);
    error TooFewSignatures(uint256 given, uint256 needed);
    error SignerOrder(address previous, address signer);
    error NotAuditor(address signer);
    error NothingLive();
    error StillChallengeable(uint256 finalAt);
    error QuestionsOpen(uint256 open);
    error NotFinal();
    error OnlyVerifier(address sender);
    error WrongNumber(uint64 number, uint64 next);
    error SuccessorPending(uint64 activationEpoch);
    error TooSoon(uint64 activationEpoch, uint256 earliest);
    error NothingChanges();
    error BadReplacement(address leaving, address entering);
    error NothingPending();
    error TooLateToWithdraw(uint64 activationEpoch);

    /// @param terms The terms.
    /// @custom:reverts BadAuditors if there are more than `MAX_AUDITORS`, or they do not strictly ascend.
    /// @custom:reverts BadQuorum if the quorum is zero or above the number of auditors.
    /// @custom:reverts BadClock if the challenge window is zero or not shorter than an epoch.
    /// @custom:reverts BadBudget if the budget has more than 32 bits.
    constructor(Terms memory terms) EIP712("sapo", "1") {
        uint256 count = terms.auditors.length;
        if (count > MAX_AUDITORS) revert BadAuditors();
        if (terms.quorum == 0 || terms.quorum > count) revert BadQuorum(terms.quorum, count);
        if (terms.challengeSeconds == 0 || terms.challengeSeconds >= terms.epochSeconds) revert BadClock();
        // With at most 32 bits per epoch, the sum over 2^32 epochs fits into the counters of points.
        if (terms.epochBudget > type(uint32).max) revert BadBudget(terms.epochBudget);
        address previous = address(0);
        for (uint256 i = 0; i < count; ++i) {
            address auditor = terms.auditors[i];
            if (auditor <= previous) revert BadAuditors();
            _tenures[auditor] = Tenure(address(0), uint8(i + 1), 0, NO_END);
            previous = auditor;
        }
        _auditors = terms.auditors;
        quorum = terms.quorum;
        genesisSeconds = terms.genesisSeconds;
        epochSeconds = terms.epochSeconds;
        challengeSeconds = terms.challengeSeconds;
        epochBudget = terms.epochBudget;
        auditorBond = terms.auditorBond;
        _live = Posting(bytes32(uint256(1)), NO_ROOT, bytes32(uint256(1)), 0, 0, 1, 0, 0, 0, 0);
        distributor = new RewardDistributor(terms.token, terms.tokensPerPoint, terms.pointsCap);
        // A bond stays for more than an epoch after the window of everything that was signed while it was bonded.
        uint256 exitSeconds = terms.challengeSeconds + 2 * terms.epochSeconds;
        verifier = new FraudVerifier(distributor, terms.pointsCap, terms.challengeSeconds, exitSeconds);
        vault = verifier.vault();
    }

    /// @notice Post the statement of an epoch with its auditors' signatures, or add signatures to the live posting of
    ///         the same statement. Anyone can call it.
    /// @dev Epochs strictly increase and can be skipped. An epoch is skipped if it had no payable rollout, if its
    ///      auditors did not agree, or if its statement was signed before an earlier epoch became final and therefore
    ///      adds to an older root; its points are not granted later. A posting that nobody makes final for one epoch
    ///      after its window can be replaced by another one. Additional signatures do not restart the window: the
    ///      poster chooses the signatures, and one of them may be struck later.
    /// @param root Statement about an epoch that has ended and is after the last final one.
    /// @param turn Turn in which it was proposed, which the auditors signed. The contract only verifies the signatures.
    /// @param signatures 65 bytes each (r, s, v), by different auditors of the epoch, in strictly ascending order of
    ///        address. Signatures of auditors without a bond are not counted; they are not refused either, because
    ///        otherwise one auditor could stop every posting by an exit.
    /// @custom:reverts EpochNotIncreasing if the epoch is not after the last final one.
    /// @custom:reverts EpochNotOver if the epoch has not ended.
    /// @custom:reverts OtherPostingLive if another statement is live and cannot be replaced yet, or if the same one is
    ///                 live and no signature is new.
    /// @custom:reverts StaleBase if the statement does not add to the last final cumulative root.
    /// @custom:reverts OverBudget if the total is above the epoch budget.
    /// @custom:reverts WrongSum if the sums in the roots do not match the total.
    /// @custom:reverts RootRejected if the statement was rejected before.
    /// @custom:reverts SignerOrder if the signers do not strictly ascend.
    /// @custom:reverts NotAuditor if a signer is not an auditor of the epoch.
    /// @custom:reverts TooFewSignatures if fewer than a quorum of bonded auditors signed.
    /// @custom:reverts ECDSAInvalidSignature if a signature is malformed; similarly `ECDSAInvalidSignatureLength` and
    ///                 `ECDSAInvalidSignatureS`.
    function post(EpochRoot calldata root, uint32 turn, bytes[] calldata signatures) external {
        (uint32 next, uint40 finalBlock) = (_live.nextEpoch, _live.finalBlock);
        if (root.epoch < next) revert EpochNotIncreasing(root.epoch, next);
        uint256 endsAt = genesisSeconds + (uint256(root.epoch) + 1) * epochSeconds;
        if (block.timestamp < endsAt) revert EpochNotOver(root.epoch, endsAt);
        if (_live.postedAt != 0) {
            // Digests, not timestamps.
            // slither-disable-next-line incorrect-equality
            if (epochRootDigest(root) == epochRootDigest(_rootOf(_live))) {
                _addSigners(root, turn, signatures);
                return;
            }
            _dropExpired();
        }
        // Slither mistakes this root for the timestamp that is stored in the same struct.
        bytes32 base = _live.cumulativeRoot;
        // slither-disable-next-line incorrect-equality
        if (base == NO_ROOT) base = 0;
        if (root.baseRoot != base) revert StaleBase(root.baseRoot, base);
        if (root.total > epochBudget) revert OverBudget(root.total, epochBudget);
        uint256 granted;
        unchecked {
            granted = SumTree.sumOf(base) + root.total; // 64 and 32 bits
        }
        if (SumTree.sumOf(root.contributionRoot) != root.total || SumTree.sumOf(root.cumulativeRoot) != granted) {
            revert WrongSum();
        }
        bytes32 hashed = _hashOf(root); // used for both digests
        bytes32 digest = _hashTypedDataV4(hashed);
        if (_isRejected[digest]) revert RootRejected(digest);
        uint64 signers = _signers(_approvalDigest(hashed, turn), signatures, root.epoch);

        _live = Posting(
            root.contributionRoot,
            root.cumulativeRoot,
            root.archiveDigest,
            uint256(root.epoch).toUint32(),
            block.timestamp.toUint40(),
            signers,
            uint32(root.total),
            next,
            0,
            finalBlock
        );
        emit EpochPosted(root, signers, block.timestamp + challengeSeconds);
    }

    /// @notice Make the live posting final once its window is over. Anyone can call it.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts StillChallengeable before the end of the window.
    /// @custom:reverts QuestionsOpen if a question is open, or if the posting lost its quorum of signatures.
    function finalise() external {
        Posting memory posting = _requireLive();
        uint256 finalAt = uint256(posting.postedAt) + challengeSeconds;
        if (block.timestamp < finalAt) revert StillChallengeable(finalAt);
        if (posting.open != 0) revert QuestionsOpen(posting.open);
        // Computed first, so that the compiler combines the three writes to one slot.
        (uint32 next, uint40 number) = (posting.epoch + 1, block.number.toUint40());
        _live.postedAt = 0;
        _live.nextEpoch = next;
        _live.finalBlock = number;
        // The distributor makes no external calls. It returns its previous root, the base root of this epoch.
        // slither-disable-next-line reentrancy-benign,reentrancy-events
        bytes32 base = distributor.grant(posting.cumulativeRoot, posting.total, next);
        EpochRoot memory root = _rootOf(posting, base);
        bytes32 previous = _history;
        // These bytes are the data of the event.
        _history = keccak256(abi.encode(root, posting.signers, posting.postedAt, previous, posting.finalBlock));
        emit EpochFinal(root.epoch, root, posting.signers, posting.postedAt, previous, posting.finalBlock);
    }

    /// @notice Announce a change of the terms, of an auditor, or of both. Anyone can call it with the signatures.
    /// @dev At most one announcement is pending, and its number makes the signatures valid for no other one. An account
    ///      can become an auditor once: an auditor that was replaced can only return with another account. So every
    ///      account has at most one place, and the number of auditors stays the same.
    /// @param succession The change.
    /// @param signatures As in `post`, of `successionDigest`, by auditors of the current epoch.
    /// @custom:reverts WrongNumber if the number is not `nextSuccession`.
    /// @custom:reverts NothingChanges if it names neither new terms nor a new auditor.
    /// @custom:reverts SuccessorPending if another announcement is not in force yet.
    /// @custom:reverts TooSoon if it would be in force in fewer than `NOTICE_EPOCHS` epochs.
    /// @custom:reverts BadReplacement if the leaving account is not an auditor or has a replacement already, or if the
    ///                 entering account is or was an auditor, or only one of both is named.
    /// @custom:reverts SignerOrder, NotAuditor, TooFewSignatures and the errors of ECDSA as `post`.
    function announceSuccessor(Succession calldata succession, bytes[] calldata signatures) external {
        if (succession.number != nextSuccession) revert WrongNumber(succession.number, nextSuccession);
        bool replaces = succession.entering != address(0);
        if (succession.successor == 0 && !replaces) revert NothingChanges();
        uint256 current = currentEpoch();
        uint256 count = _successions.length;
        if (count != 0 && _successions[count - 1].activationEpoch > current) {
            revert SuccessorPending(_successions[count - 1].activationEpoch);
        }
        if (succession.activationEpoch < current + NOTICE_EPOCHS) {
            revert TooSoon(succession.activationEpoch, current + NOTICE_EPOCHS);
        }
        _signers(successionDigest(succession), signatures, current);
        if (replaces || succession.leaving != address(0)) _replace(succession);
        nextSuccession = succession.number + 1;
        _successions.push(succession);
        emit SuccessorAnnounced(
            succession.number,
            succession.activationEpoch,
            succession.successor,
            succession.leaving,
            succession.entering
        );
    }

    /// @notice Withdraw the pending announcement, more than `SETTLED_EPOCHS` epochs before its activation. Anyone can
    ///         call it with the signatures.
    /// @param signatures As in `post`, of `withdrawalDigest` of its number, by auditors of the current epoch.
    /// @custom:reverts NothingPending if no announcement is pending.
    /// @custom:reverts TooLateToWithdraw if it is in force in `SETTLED_EPOCHS` epochs or fewer.
    /// @custom:reverts SignerOrder, NotAuditor, TooFewSignatures and the errors of ECDSA as `post`.
    function withdrawSuccessor(bytes[] calldata signatures) external {
        uint256 count = _successions.length;
        if (count == 0) revert NothingPending();
        Succession memory last = _successions[count - 1];
        uint256 current = currentEpoch();
        if (last.activationEpoch <= current) revert NothingPending();
        if (last.activationEpoch <= current + SETTLED_EPOCHS) revert TooLateToWithdraw(last.activationEpoch);
        _signers(withdrawalDigest(last.number), signatures, current);
        if (last.entering != address(0)) {
            _auditors[_tenures[last.entering].place - 1] = last.leaving;
            _tenures[last.leaving].untilEpoch = NO_END;
            delete _tenures[last.entering];
        }
        _successions.pop();
        emit SuccessorWithdrawn(last.number);
    }

    /// @inheritdoc IDisputedLedger
    function reject() external onlyVerifier returns (address[] memory signers) {
        Posting memory posting = _requireLive();
        signers = _auditorsOf(posting.signers, posting.epoch);
        bytes32 digest = epochRootDigest(_rootOf(posting));
        _isRejected[digest] = true;
        _drop();
        emit EpochRejected(posting.epoch, digest);
    }

    /// @inheritdoc IDisputedLedger
    function hold() external onlyVerifier {
        _requireLive();
        _live.open += 1;
    }

    /// @inheritdoc IDisputedLedger
    function release() external onlyVerifier {
        _live.open -= 1;
    }

    /// @inheritdoc IDisputedLedger
    function requireFinal(FinalEpoch[] calldata newestFirst) public view returns (bytes32 name) {
        bytes32 history = _history;
        for (uint256 i = 0; i < newestFirst.length; ++i) {
            name = keccak256(abi.encode(newestFirst[i])); // hash of the event's data
            if (name != history) revert NotFinal();
            history = newestFirst[i].previousHistory;
        }
        if (name == 0) revert NotFinal();
    }

    /// @inheritdoc IDisputedLedger
    /// @dev After this the history ends before these epochs, and no epoch up to the newest of them can be posted again.
    ///      Paid points stay paid, and granted points stay granted. A live posting is dropped.
    function recall(FinalEpoch[] calldata newestFirst) external onlyVerifier {
        requireFinal(newestFirst);
        FinalEpoch calldata oldest = newestFirst[newestFirst.length - 1];
        if (_live.postedAt != 0) emit EpochRejected(_live.epoch, epochRootDigest(_rootOf(_live)));
        _history = oldest.previousHistory;
        _live.finalBlock = uint40(oldest.previousBlock);
        emit EpochsRecalled(oldest.root.epoch, oldest.root.baseRoot);
        // The distributor makes no external calls.
        // slither-disable-next-line reentrancy-no-eth
        distributor.goBack(oldest.root.baseRoot);
        _drop();
    }

    /// @inheritdoc IDisputedLedger
    /// @dev The statement may be true, so the posting stays live and can get more signatures by `post`: a true one is
    ///      not delayed, and a false one can still be proven false, which slashes the remaining signers. In an epoch of
    ///      another auditor at the same place nothing is removed, because the bit is that auditor's signature.
    function strike(address auditor, uint64 epoch) external onlyVerifier {
        if (!isAuditorIn(auditor, epoch)) return;
        uint64 bit = uint64(1 << (_tenures[auditor].place - 1));
        if (_live.postedAt == 0 || _live.epoch != epoch || _live.signers & bit == 0) return;
        if (_count(_live.signers) == quorum) _live.open += 1;
        _live.signers &= ~bit;
        emit SignatureStruck(epoch, auditor);
    }

    /// @notice Return the auditors of the current epoch, by place.
    /// @return The accounts; they ascend until one is replaced.
    function auditors() external view returns (address[] memory) {
        return auditorsIn(currentEpoch().toUint64());
    }

    /// @notice Return the auditors of an epoch, by place, according to the announcements so far.
    /// @param epoch The epoch.
    /// @return found The accounts.
    function auditorsIn(uint64 epoch) public view returns (address[] memory found) {
        found = _auditors;
        for (uint256 i = 0; i < found.length; ++i) {
            found[i] = _holder(i, epoch);
        }
    }

    /// @inheritdoc IDisputedLedger
    function isAuditor(address account) external view returns (bool) {
        return _tenures[account].place != 0;
    }

    /// @inheritdoc IDisputedLedger
    function isAuditorIn(address account, uint64 epoch) public view returns (bool) {
        Tenure storage tenure = _tenures[account];
        return tenure.fromEpoch <= epoch && epoch < tenure.untilEpoch;
    }

    /// @notice Return all announcements that were not withdrawn, ascending by activation.
    function successions() external view returns (Succession[] memory) {
        return _successions;
    }

    /// @notice Return the epoch at the time of the block; 0 before the start of epoch 0.
    function currentEpoch() public view returns (uint256) {
        return block.timestamp < genesisSeconds ? 0 : (block.timestamp - genesisSeconds) / epochSeconds;
    }

    /// @notice Return what auditors sign to announce a change.
    /// @param succession The change.
    /// @return The EIP-712 digest, bound to this chain and this contract.
    function successionDigest(Succession memory succession) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(SUCCESSION_TYPEHASH, succession)));
    }

    /// @notice Return what auditors sign to withdraw an announcement.
    /// @param number Number of the announcement.
    /// @return The EIP-712 digest, bound to this chain and this contract.
    function withdrawalDigest(uint64 number) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(WITHDRAWAL_TYPEHASH, number)));
    }

    /// @notice Return the lowest epoch that can still become final: the last final one plus 1, 0 before the first.
    function nextEpoch() external view returns (uint64) {
        return _live.nextEpoch;
    }

    /// @notice Return the newest final epoch, from which all records can be read backwards.
    /// @return history Hash of the data of the newest `EpochFinal`; `EMPTY_HISTORY` if there is none.
    /// @return finalBlock Block of that event.
    function lastFinal() external view returns (bytes32 history, uint64 finalBlock) {
        return (_history, _live.finalBlock);
    }

    /// @inheritdoc IDisputedLedger
    function liveRoot() external view returns (EpochRoot memory) {
        return _rootOf(_requireLive());
    }

    /// @inheritdoc IDisputedLedger
    function live() external view override returns (EpochRoot memory root, uint64 postedAt, uint64 signers) {
        return (_rootOf(_live), _live.postedAt, _live.signers);
    }

    /// @inheritdoc IDisputedLedger
    function epochRootDigest(EpochRoot memory root) public view returns (bytes32) {
        return _hashTypedDataV4(_hashOf(root));
    }

    /// @inheritdoc IDisputedLedger
    function approvalDigest(EpochRoot memory root, uint32 turn) public view returns (bytes32) {
        return _approvalDigest(_hashOf(root), turn);
    }

    modifier onlyVerifier() {
        if (msg.sender != address(verifier)) revert OnlyVerifier(msg.sender);
        _;
    }

    function _hashOf(EpochRoot memory root) private pure returns (bytes32) {
        return keccak256(abi.encode(EPOCH_ROOT_TYPEHASH, root));
    }

    function _approvalDigest(bytes32 hashed, uint32 turn) private view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(EPOCH_APPROVAL_TYPEHASH, turn, hashed)));
    }

    function _requireLive() private view returns (Posting memory posting) {
        posting = _live;
        // Zero means that nothing is live; no block has this timestamp.
        // slither-disable-next-line incorrect-equality
        if (posting.postedAt == 0) revert NothingLive();
    }

    /// @dev Replace an auditor. Reverts unless the leaving account is an auditor without an announced replacement and
    ///      the entering account never was an auditor.
    function _replace(Succession calldata succession) private {
        (address leaving, address entering) = (succession.leaving, succession.entering);
        uint8 place = _tenures[leaving].place;
        if (
            entering == address(0) || place == 0 || _tenures[leaving].untilEpoch != NO_END
                || _tenures[entering].place != 0
        ) revert BadReplacement(leaving, entering);
        uint40 epoch = uint256(succession.activationEpoch).toUint40();
        _tenures[leaving].untilEpoch = epoch;
        _tenures[entering] = Tenure(leaving, place, epoch, NO_END);
        _auditors[place - 1] = entering;
    }

    /// @dev Return the auditor of a place in an epoch, by following the predecessors of the newest one.
    function _holder(uint256 index, uint64 epoch) private view returns (address holder) {
        holder = _auditors[index];
        while (epoch < _tenures[holder].fromEpoch) {
            holder = _tenures[holder].predecessor;
        }
    }

    /// @dev Return the slot of a `Tenure`, first field in the lowest bits, since reading single fields costs more gas.
    function _packed(address account) private view returns (uint256 tenure) {
        Tenure storage found = _tenures[account];
        assembly ("memory-safe") {
            tenure := sload(found.slot)
        }
    }

    /// @dev Return a bit for each bonded auditor that signed. The ascending order excludes repeated signers.
    function _signers(bytes32 digest, bytes[] calldata signatures, uint256 epoch)
        private
        view
        returns (uint64 signers)
    {
        address previous = address(0);
        uint256 counted = 0;
        for (uint256 i = 0; i < signatures.length; ++i) {
            address signer = ECDSA.recoverCalldata(digest, signatures[i]);
            if (signer <= previous) revert SignerOrder(previous, signer);
            uint256 tenure = _packed(signer);
            if (epoch < uint40(tenure >> 168) || epoch >= tenure >> 208) revert NotAuditor(signer);
            previous = signer;
            if (vault.bonded(signer) < auditorBond) continue;
            unchecked {
                signers |= uint64(1 << (uint8(tenure >> 160) - 1)); // an auditor's place is at least 1
                ++counted;
            }
        }
        if (counted < quorum) revert TooFewSignatures(counted, quorum);
    }

    function _auditorsOf(uint64 signers, uint64 epoch) private view returns (address[] memory found) {
        found = new address[](_count(signers));
        uint256 next = 0;
        for (uint256 place = 0; next < found.length; ++place) {
            if (signers & (1 << place) != 0) found[next++] = _holder(place, epoch);
        }
    }

    function _count(uint64 signers) private pure returns (uint256 count) {
        for (; signers != 0; ++count) {
            signers &= signers - 1;
        }
    }

    /// @dev The call must carry a quorum by itself, so the signatures of the honest auditors suffice after any strike.
    function _addSigners(EpochRoot calldata root, uint32 turn, bytes[] calldata signatures) private {
        uint64 before = _live.signers;
        uint64 signers = before | _signers(approvalDigest(root, turn), signatures, root.epoch);
        // Slither takes these bits for a timestamp, too.
        // slither-disable-next-line incorrect-equality
        if (signers == before) revert OtherPostingLive(root.epoch);
        if (_count(before) < quorum) _live.open -= 1;
        _live.signers = signers;
        emit EpochPosted(root, signers, uint256(_live.postedAt) + challengeSeconds);
    }

    /// @dev Drop a posting that was not made final for one epoch after its window: nobody could confirm it. The same
    ///      statement can be posted again.
    function _dropExpired() private {
        uint64 epoch = _live.epoch;
        if (block.timestamp < uint256(_live.postedAt) + challengeSeconds + epochSeconds) revert OtherPostingLive(epoch);
        emit EpochExpired(epoch, epochRootDigest(_rootOf(_live)));
        _drop();
    }

    function _drop() private {
        _live.postedAt = 0;
        _live.open = 0;
        bytes32 root = distributor.cumulativeRoot();
        _live.cumulativeRoot = root == 0 ? NO_ROOT : root;
    }

    /// @dev No epoch becomes final while a posting is live, so the last final root is still its base root.
    function _rootOf(Posting memory posting) private view returns (EpochRoot memory) {
        return _rootOf(posting, distributor.cumulativeRoot());
    }

    function _rootOf(Posting memory posting, bytes32 base) private pure returns (EpochRoot memory) {
        return EpochRoot(
            posting.epoch,
            base,
            posting.contributionRoot,
            posting.cumulativeRoot,
            posting.total,
            posting.archiveDigest
        );
    }
}
