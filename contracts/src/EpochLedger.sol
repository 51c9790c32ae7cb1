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

/// @title One posting per epoch: what every account contributed, agreed by a quorum of bonded auditors.
/// @notice Auditors recompute an epoch off the chain and sign the same statement (EIP-712); anyone posts it with
///         their signatures. For the challenge window the posting is live: whoever proves it false has it rejected
///         and its signers slashed. Then anyone makes it final, and only then it pays.
///         The cost does not depend on how many rollouts or accounts the epoch had.
///
///         Of final epochs the state keeps one hash, over the newest `EpochFinal` event. Each of these events holds
///         a whole record, and the hash and the block of the one before it: whoever trusts the state can read all
///         records backwards from any endpoint, and sees at once if one was changed or left out.
///
///         Trust, stated plainly: a dishonest quorum that keeps to the rules which the chain can check can post a
///         false root. What it can take is bounded: an epoch is final once, only after it has ended, and for no more
///         than the epoch budget, and the distributor never pays more points than were granted in all. Leaves that it
///         keeps to itself can be asked for; see `FraudVerifier`.
/// @dev No owner, no proxy, no setter: the number of auditors, quorum, budget and clock are fixed at deployment. What
///      may change (the terms of the swarm, who an auditor is) changes by announcement: a quorum's signatures and a
///      time lock. Ledger, distributor, verifier and vault create each other, so that each is fixed to the others.
contract EpochLedger is IDisputedLedger, EIP712 {
    using SafeCast for uint256;

    /// @notice What a ledger is deployed with.
    struct Terms {
        /// Accounts whose signatures count, strictly ascending.
        address[] auditors;
        /// Signatures that a posting needs: at least one, at most all of them.
        uint256 quorum;
        /// Start of epoch 0 and length of every epoch, in seconds, as in the swarm's manifest.
        uint256 genesisSeconds;
        uint256 epochSeconds;
        /// How long a posting can be challenged; shorter than an epoch, so that postings keep up.
        uint256 challengeSeconds;
        /// Most points that one epoch may grant, to all and to one account.
        uint256 epochBudget;
        uint256 pointsCap;
        /// What an auditor must have bonded for its signature to count, in the token's smallest unit.
        uint256 auditorBond;
        IERC20 token;
        uint256 tokensPerPoint;
    }

    /// @notice The statement on its way, and where the final ones end.
    /// @dev All that is not a root shares one slot. 40 bits hold any second until the year 36,812, and 32 the number of
    ///      any epoch for centuries, were each two seconds long.
    struct Posting {
        bytes32 contributionRoot;
        /// While nothing is on its way: that of the last final epoch, to which the next one must add.
        bytes32 cumulativeRoot;
        bytes32 archiveDigest;
        uint32 epoch;
        /// Seconds; 0 if nothing is on its way.
        uint40 postedAt;
        /// Bit i: the auditor at place i of `auditorsIn(epoch)` signed it.
        uint64 signers;
        uint32 total;
        /// The lowest epoch that can still become final: 0 before the first, else the last one plus 1.
        uint32 nextEpoch;
        /// What must come before it can be final: answers to questions, and after a strike another signature.
        uint16 open;
        /// Block of the newest `EpochFinal`; 0 before the first.
        uint40 finalBlock;
    }

    /// @notice What changes from an epoch on: the terms of the swarm, an auditor, or both.
    struct Succession {
        /// 0 for the first announcement, and one more for each after it, withdrawn ones included.
        uint64 number;
        uint64 activationEpoch;
        /// Digest of the document that holds the terms; 0 where they stay. What it says is for nodes: this contract
        /// reads nothing of it.
        bytes32 successor;
        /// The auditor who is replaced, and by whom; both 0 where all stay.
        address leaving;
        address entering;
    }

    /// @dev An auditor's place and epochs, in one slot.
    struct Tenure {
        /// Who had the place before; 0 for the first.
        address predecessor;
        /// In `_auditors`, counted from 1; 0 for everybody who never was an auditor.
        uint8 place;
        /// The first epoch in which its signature counts, and the first in which it does no more.
        uint40 fromEpoch;
        uint40 untilEpoch;
    }

    bytes32 public constant SUCCESSION_TYPEHASH = keccak256(
        "Succession(uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering)"
    );
    bytes32 public constant WITHDRAWAL_TYPEHASH = keccak256("Withdrawal(uint64 number)");
    /// @notice Epochs between an announcement and its activation, at least: the time lock.
    uint256 public constant NOTICE_EPOCHS = 8;
    /// @notice Epochs before its activation from which an announcement stays. Who read the announcements knows what
    ///         is in force for so many epochs more, whatever is announced or withdrawn meanwhile.
    uint256 public constant SETTLED_EPOCHS = 4;

    bytes32 public constant EPOCH_ROOT_TYPEHASH = keccak256(
        "EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,uint256 total,"
        "bytes32 archiveDigest)"
    );
    bytes32 public constant EPOCH_APPROVAL_TYPEHASH = keccak256(
        "EpochApproval(uint32 turn,EpochRoot root)EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,"
        "bytes32 cumulativeRoot,uint256 total,bytes32 archiveDigest)"
    );
    /// @notice Bound on the auditor set: one bit each in the live posting.
    uint256 public constant MAX_AUDITORS = 64;
    /// @notice The history before the first final epoch. No event hashes to it.
    bytes32 public constant EMPTY_HISTORY = bytes32(uint256(1));
    uint40 private constant NO_END = type(uint40).max;
    /// @dev Stands in a slot for the root zero.
    bytes32 private constant NO_ROOT = bytes32(uint256(1));

    RewardDistributor public immutable distributor;
    FraudVerifier public immutable verifier;
    StakeVault public immutable vault;
    uint256 public immutable quorum;
    uint256 public immutable genesisSeconds;
    uint256 public immutable epochSeconds;
    /// @inheritdoc IDisputedLedger
    uint256 public immutable override challengeSeconds;
    uint256 public immutable epochBudget;
    /// @inheritdoc IDisputedLedger
    uint256 public immutable override auditorBond;

    /// @dev The newest of each place, announced ones included.
    address[] private _auditors;
    mapping(address account => Tenure) private _tenures;
    /// @dev Its slots are used again by every posting and never zero: the first costs what every other does.
    Posting private _live;
    /// @dev Never zero, either.
    bytes32 private _history = EMPTY_HISTORY;
    mapping(bytes32 digest => bool) private _isRejected;
    /// @dev Ascending by number and activation. At most the last one is not in force yet.
    Succession[] private _successions;
    /// @notice The number that the next announcement must have.
    uint64 public nextSuccession;

    event SuccessorAnnounced(
        uint64 indexed number, uint64 indexed activationEpoch, bytes32 successor, address leaving, address entering
    );
    event SuccessorWithdrawn(uint64 indexed number);
    event EpochPosted(EpochRoot root, uint64 signers, uint256 finalAt);
    /// @param previousHistory Hash of the same event's data of the final epoch before; `EMPTY_HISTORY` for the first.
    /// @param previousBlock Block of that event; 0 for the first.
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
    /// @param firstEpoch The oldest final epoch that counts no more, as all after it.
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

    constructor(Terms memory terms) EIP712("sapo", "1") {
        uint256 count = terms.auditors.length;
        if (count > MAX_AUDITORS) revert BadAuditors();
        if (terms.quorum == 0 || terms.quorum > count) revert BadQuorum(terms.quorum, count);
        if (terms.challengeSeconds == 0 || terms.challengeSeconds >= terms.epochSeconds) revert BadClock();
        // Below this, no sum over all 2^64 epochs can overflow any counter of points.
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
        // A bond outlasts the window of everything that was signed on it, by more than an epoch.
        uint256 exitSeconds = terms.challengeSeconds + 2 * terms.epochSeconds;
        verifier = new FraudVerifier(distributor, terms.pointsCap, terms.challengeSeconds, exitSeconds);
        vault = verifier.vault();
    }

    /// @notice Post an epoch. Anyone may send it: the signatures are what counts.
    /// @dev Epochs strictly increase but may be skipped: one without a payable rollout, or whose auditors never
    ///      agreed, is not posted, and what it would have granted is not granted later. So is one that was signed
    ///      before an earlier one became final: what it adds to is no longer what is granted. A posting that nobody
    ///      makes final for an epoch after its window gives way to the next one. More signatures of the statement that is
    ///      live are added to it, and its window does not begin anew: whoever posts chooses the signatures, and one of
    ///      them may be struck.
    /// @param root Of an epoch that has ended and is above every final one.
    /// @param turn In which it was proposed; the auditors' signatures say it, and nothing here depends on it.
    /// @param signatures 65 bytes each (r, s, v), by distinct auditors in strictly ascending order of address. Those of
    ///        auditors without their bond do not count, but do no harm: else one of them could stop every posting.
    function post(EpochRoot calldata root, uint32 turn, bytes[] calldata signatures) external {
        (uint32 next, uint40 finalBlock) = (_live.nextEpoch, _live.finalBlock);
        if (root.epoch < next) revert EpochNotIncreasing(root.epoch, next);
        uint256 endsAt = genesisSeconds + (uint256(root.epoch) + 1) * epochSeconds;
        if (block.timestamp < endsAt) revert EpochNotOver(root.epoch, endsAt);
        if (_live.postedAt != 0) {
            if (epochRootDigest(root) == epochRootDigest(_rootOf(_live))) {
                _addSigners(root, turn, signatures);
                return;
            }
            _dropExpired();
        }
        // The detector takes this root for a time, beside which it is stored.
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
        bytes32 hashed = _hashOf(root); // once for both
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

    /// @notice Make the live posting final once its window is over. Anyone may send it.
    function finalise() external {
        Posting memory posting = _requireLive();
        uint256 finalAt = uint256(posting.postedAt) + challengeSeconds;
        if (block.timestamp < finalAt) revert StillChallengeable(finalAt);
        if (posting.open != 0) revert QuestionsOpen(posting.open);
        // Both before the three fields of one slot, which are then written at once.
        (uint32 next, uint40 number) = (posting.epoch + 1, block.number.toUint40());
        _live.postedAt = 0;
        _live.nextEpoch = next;
        _live.finalBlock = number;
        // The distributor calls nobody. It is asked once, for its root before is also the base of this one.
        // slither-disable-next-line reentrancy-benign,reentrancy-events
        bytes32 base = distributor.grant(posting.cumulativeRoot, posting.total, next);
        EpochRoot memory root = _rootOf(posting, base);
        bytes32 previous = _history;
        // The event's data, byte by byte.
        _history = keccak256(abi.encode(root, posting.signers, posting.postedAt, previous, posting.finalBlock));
        emit EpochFinal(root.epoch, root, posting.signers, posting.postedAt, previous, posting.finalBlock);
    }

    /// @notice Announce what changes. Anyone may send it: the signatures are what counts.
    /// @dev One announcement at a time is on its way, and its number makes a signature good for one alone. An account
    ///      is an auditor once: who was replaced comes back under another one. So an account has one place, and
    ///      the number of auditors stays.
    /// @param signatures As in `post`, over `successionDigest`, by auditors of the current epoch.
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

    /// @notice Take the pending announcement back, while nobody can rely on it yet.
    /// @param signatures As in `post`, over `withdrawalDigest` of its number.
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
            name = keccak256(abi.encode(newestFirst[i])); // the event's data, byte by byte
            if (name != history) revert NotFinal();
            history = newestFirst[i].previousHistory;
        }
        if (name == 0) revert NotFinal();
    }

    /// @inheritdoc IDisputedLedger
    /// @dev The history ends before these epochs from now on, and no epoch up to the newest of them is ever posted
    ///      again. What was claimed stays claimed, and what was granted counts as granted.
    function recall(FinalEpoch[] calldata newestFirst) external onlyVerifier {
        requireFinal(newestFirst);
        FinalEpoch calldata oldest = newestFirst[newestFirst.length - 1];
        if (_live.postedAt != 0) emit EpochRejected(_live.epoch, epochRootDigest(_rootOf(_live)));
        _history = oldest.previousHistory;
        _live.finalBlock = uint40(oldest.previousBlock);
        emit EpochsRecalled(oldest.root.epoch, oldest.root.baseRoot);
        distributor.goBack(oldest.root.baseRoot);
        _drop();
    }

    /// @inheritdoc IDisputedLedger
    /// @dev The statement itself may be true: without a quorum it waits for more signatures in `post`. It stays live,
    ///      so that a true one loses no time, and a false one can still be proven false to those who are left. In an
    ///      epoch that is not the auditor's, its place is another's, whose signature stays.
    function strike(address auditor, uint64 epoch) external onlyVerifier {
        if (!isAuditorIn(auditor, epoch)) return;
        uint64 bit = uint64(1 << (_tenures[auditor].place - 1));
        if (_live.postedAt == 0 || _live.epoch != epoch || _live.signers & bit == 0) return;
        if (_count(_live.signers) == quorum) _live.open += 1;
        _live.signers &= ~bit;
        emit SignatureStruck(epoch, auditor);
    }

    /// @notice The accounts whose signatures count in the current epoch, by place: ascending until one is replaced.
    function auditors() external view returns (address[] memory) {
        return auditorsIn(currentEpoch().toUint64());
    }

    /// @notice The accounts whose signatures count in an epoch, by place, as far as it is announced.
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

    /// @notice Every announcement that was not withdrawn, ascending by activation.
    function successions() external view returns (Succession[] memory) {
        return _successions;
    }

    /// @notice The epoch that the ledger's clock shows: 0 before the first has begun.
    function currentEpoch() public view returns (uint256) {
        return block.timestamp < genesisSeconds ? 0 : (block.timestamp - genesisSeconds) / epochSeconds;
    }

    /// @notice What auditors sign to announce a successor (EIP-712), bound to this chain and this contract.
    function successionDigest(Succession memory succession) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(SUCCESSION_TYPEHASH, succession)));
    }

    /// @notice What auditors sign to withdraw an announcement.
    function withdrawalDigest(uint64 number) public view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(WITHDRAWAL_TYPEHASH, number)));
    }

    /// @notice The lowest epoch that can still become final: 0 before the first, else the last one plus 1.
    function nextEpoch() external view returns (uint64) {
        return _live.nextEpoch;
    }

    /// @notice Where the records of final epochs begin.
    /// @return history Hash of the data of the newest `EpochFinal`; `EMPTY_HISTORY` if there is none.
    /// @return finalBlock Block of that event.
    function lastFinal() external view returns (bytes32 history, uint64 finalBlock) {
        return (_history, _live.finalBlock);
    }

    /// @inheritdoc IDisputedLedger
    function liveRoot() external view returns (EpochRoot memory) {
        return _rootOf(_requireLive());
    }

    /// @notice The posting that may still be challenged.
    /// @return root Of no meaning if there is none.
    /// @return postedAt Seconds; zero if there is none.
    /// @return signers Bit i: the auditor at place i of `auditorsIn(epoch)` signed it.
    function live() external view override returns (EpochRoot memory root, uint64 postedAt, uint64 signers) {
        return (_rootOf(_live), _live.postedAt, _live.signers);
    }

    /// @notice What names a statement for ever, whoever signs it and in which turn.
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
        if (posting.postedAt == 0) revert NothingLive();
    }

    /// @dev Reverts unless the one is an auditor, and no change of it is announced, and the other never was one.
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

    /// @dev At most one change is announced, so a step or two back.
    function _holder(uint256 index, uint64 epoch) private view returns (address holder) {
        holder = _auditors[index];
        while (epoch < _tenures[holder].fromEpoch) {
            holder = _tenures[holder].predecessor;
        }
    }

    /// @dev A `Tenure` as it lies in its slot, the first field lowest: to read it field by field costs more.
    function _packed(address account) private view returns (uint256 tenure) {
        Tenure storage found = _tenures[account];
        assembly ("memory-safe") {
            tenure := sload(found.slot)
        }
    }

    /// @dev Ascending signers make a repeated one impossible without any bookkeeping.
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
                signers |= uint64(1 << (uint8(tenure >> 160) - 1)); // a place is not 0 here
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

    /// @dev With a quorum of its own: what was struck needs no more than the honest auditors' signatures.
    function _addSigners(EpochRoot calldata root, uint32 turn, bytes[] calldata signatures) private {
        uint64 before = _live.signers;
        uint64 signers = before | _signers(approvalDigest(root, turn), signatures, root.epoch);
        if (signers == before) revert OtherPostingLive(root.epoch);
        if (_count(before) < quorum) _live.open -= 1;
        _live.signers = signers;
        emit EpochPosted(root, signers, uint256(_live.postedAt) + challengeSeconds);
    }

    /// @dev Nobody who can explain a posting leaves it lying for an epoch after its window. It can be posted again.
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

    /// @dev Nothing becomes final while a posting is live: what it was to add to is still the base.
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
