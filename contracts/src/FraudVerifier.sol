// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

import {EpochRoot, FinalEpoch, IDisputedLedger} from "./EpochRoot.sol";
import {RewardDistributor} from "./RewardDistributor.sol";
import {StakeVault} from "./StakeVault.sol";
import {Place, SumTree} from "./SumTree.sol";

/// @title Judges proofs that an auditor or a posting is false, and questions about leaves that nobody shows.
/// @notice Anyone may prove; nobody decides. What a proof shows follows from its inputs, from the live posting and
///         from the last final root. A posting proven false is rejected, and the bonds of all who signed it are
///         slashed; of two roots signed in one turn of an epoch, only the bond of whoever signed both.
///
///         Together the rules leave a posting no freedom but in who earned how much of the epoch, within the cap:
///         every account has exactly what it had and earned, and all together have what was granted, for roots end
///         with their sums. A proof takes the places of one account, whatever the number of accounts. A place can be
///         recorded beforehand, so that no transaction is long, even where liars make the way to an account as long as
///         an account's bits allow.
///
///         Who cannot see an account's leaves asks for them, with a bond. Whoever shows that the account has what it
///         had and earned, earns the bond. Where nobody does in time, the posting is rejected; its signers keep their
///         bonds, for a chain that is slow is no lie. Leaves of the last final epochs can be asked for in the same way,
///         as long as all nodes still hold them: if nobody shows them, these epochs are recalled, and the ledger goes
///         on from the root before. Whoever has them recalled does so within as long a time again, or never.
/// @dev Each proof counts once: a rejected posting is no longer live, and two signatures of one auditor in one
///      turn are remembered once they have cost a bond: else an auditor could convict itself of any turn while it has
///      nothing to lose. No owner.
contract FraudVerifier {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    enum Rule {
        Equivocation,
        OverCap,
        Balance
    }

    struct Question {
        address asker;
        /// Seconds; from then on the posting can be rejected if nobody has answered, or the final epoch recalled, for
        /// as long as the question waited.
        uint64 deadline;
        /// Whether it is about a final epoch.
        bool isFinal;
        /// Where the list of open questions about its posting has its account, counted from 0.
        uint24 place;
    }

    /// @notice The epoch ledger, which created this contract.
    IDisputedLedger public immutable ledger;
    RewardDistributor public immutable distributor;
    /// @notice The bonds, created here, so that nobody else can slash them.
    StakeVault public immutable vault;
    /// @notice Most points that an account may earn in one epoch.
    uint256 public immutable pointsCap;
    IERC20 public immutable token;
    /// @notice What a question costs whoever asks it in vain, in the token's smallest unit: an account's epoch.
    uint256 public immutable questionBond;
    /// @notice How long a question waits for its answer.
    uint256 public immutable answerSeconds;
    /// @notice How long after its posting the leaves of a final epoch can be asked for, in seconds: more than six
    ///         epochs. All that follows from a question is over within nine, and nodes keep everybody's pages for longer.
    uint256 public immutable recallSeconds;

    /// @notice Whose second signature in a turn of an epoch has already cost a bond.
    mapping(address auditor => mapping(uint64 epoch => mapping(uint32 turn => bool))) public equivocated;
    mapping(bytes32 posting => mapping(address account => Question)) private _questions;
    /// @dev The accounts of the open questions, one each, in any order: what every node reads, so it is no longer
    ///      than the bonds that are held for it.
    mapping(bytes32 posting => address[]) private _asked;
    /// @notice Final epochs that were recalled, by the hash of their record.
    mapping(bytes32 name => bool) public isRecalled;
    /// @notice What an account has under a root, plus 1; zero where nobody has recorded it.
    mapping(bytes32 root => mapping(address account => uint256)) public recordedValue;

    event FraudProven(Rule indexed rule, uint64 indexed epoch, address indexed prover);
    event LeafAsked(uint64 indexed epoch, address indexed account, address asker, uint256 deadline);
    event LeafShown(uint64 indexed epoch, address indexed account, uint256 points, uint256 cumulative);
    event LeafHidden(uint64 indexed epoch, address indexed account);

    error NoContradiction();
    error NotAuditor(address signer);
    error AlreadyProven(address auditor, uint64 epoch, uint32 turn);
    error WithinCap(uint256 points, uint256 cap);
    error WrongLeaves();
    error Balanced(uint256 cumulative);
    error TooEarlyToAsk(uint256 postedAt);
    error TooLateToAsk(uint256 since);
    error AlreadyAsked(address account);
    error NotAsked(address account);
    error NoAnswer(address account);
    error StillAnswerable(uint256 deadline);
    error TooLateToRecall(uint256 since);

    constructor(RewardDistributor distributor_, uint256 pointsCap_, uint256 answerSeconds_, uint256 exitSeconds) {
        ledger = IDisputedLedger(msg.sender);
        distributor = distributor_;
        pointsCap = pointsCap_;
        token = distributor_.token();
        questionBond = pointsCap_ * distributor_.tokensPerPoint();
        answerSeconds = answerSeconds_;
        recallSeconds = 3 * exitSeconds - 2 * answerSeconds_;
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
        equivocated[signer][a.epoch][turn] = _hasBond(signer);
        emit FraudProven(Rule.Equivocation, a.epoch, msg.sender);
        ledger.strike(signer, a.epoch);
        vault.slash(signer, msg.sender);
    }

    /// @notice Record what an account has under a root, for proofs and answers about it.
    /// @dev Any root will do, at any time: an account has one value under it for ever. A place that does not lead to the
    ///      root, such as one of zeros, then stands for the recorded value.
    function recordValue(bytes32 root, address account, Place calldata place) external {
        recordedValue[root][account] = _valueUnder(root, account, place) + 1;
    }

    /// @notice The live posting grants an account more than an epoch allows.
    function proveOverCap(address account, Place calldata points) external {
        EpochRoot memory root = ledger.liveRoot();
        uint256 earned = _valueUnder(root.contributionRoot, account, points);
        if (earned <= pointsCap) revert WithinCap(earned, pointsCap);
        _convict(Rule.OverCap, root.epoch);
    }

    /// @notice The live posting gives an account more or less than the last final root and its points of this epoch do.
    function proveBalance(
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) external {
        EpochRoot memory root = ledger.liveRoot();
        uint256 earned = _valueUnder(root.contributionRoot, account, points);
        uint256 expected = _valueUnder(root.baseRoot, account, before) + earned;
        if (_valueUnder(root.cumulativeRoot, account, afterwards) == expected) revert Balanced(expected);
        _convict(Rule.Balance, root.epoch);
    }

    /// @notice Ask for an account's leaves in the live posting, for a bond that the sender approved before.
    /// @dev Not in the second of the posting: if a recall drops it and it is posted again within it, both have one name.
    function ask(address account) external {
        (EpochRoot memory root, uint64 postedAt, bytes32 posting) = _live();
        if (block.timestamp <= postedAt) revert TooEarlyToAsk(postedAt);
        ledger.hold();
        _ask(posting, root.epoch, account, uint256(postedAt) + ledger.challengeSeconds(), false);
    }

    /// @notice Ask for an account's leaves in one of the last final epochs, for a bond that the sender approved before.
    /// @param newestFirst The last final epochs, back to the one that is asked about.
    function askFinal(FinalEpoch[] calldata newestFirst, address account) external {
        bytes32 name = ledger.requireFinal(newestFirst);
        FinalEpoch calldata oldest = newestFirst[newestFirst.length - 1];
        _ask(name, oldest.root.epoch, account, oldest.postedAt + recallSeconds, true);
    }

    /// @notice Show that an account has what it had and earned; the question's bond is the sender's.
    function answer(
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) external {
        (EpochRoot memory root,, bytes32 posting) = _live();
        if (_questions[posting][account].asker == address(0)) revert NotAsked(account);
        ledger.release();
        _show(posting, root, account, before, points, afterwards);
    }

    /// @notice Show the same in a final epoch; the question's bond is the sender's.
    function answerFinal(
        FinalEpoch calldata final_,
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) external {
        _show(keccak256(abi.encode(final_)), final_.root, account, before, points, afterwards);
    }

    /// @notice Reject the live posting because a question's time is over and nobody has answered it.
    function proveHidden(address account) external {
        (EpochRoot memory root,, bytes32 posting) = _live();
        Question memory question = _requireUnanswered(posting, account);
        emit LeafHidden(root.epoch, account);
        ledger.reject();
        _giveBack(posting, account, question);
    }

    /// @notice Recall final epochs because nobody has shown an account's leaves in the oldest of them in time.
    /// @dev Within `answerSeconds` of the question's deadline: what is built on these epochs is safe after that.
    /// @param newestFirst The last final epochs, back to the one that was asked about.
    function recall(FinalEpoch[] calldata newestFirst, address account) external {
        bytes32 name = ledger.requireFinal(newestFirst);
        Question memory question = _requireUnanswered(name, account);
        uint256 since = _lapsesAt(question);
        if (block.timestamp >= since) revert TooLateToRecall(since);
        for (uint256 i = 0; i < newestFirst.length; ++i) {
            isRecalled[keccak256(abi.encode(newestFirst[i]))] = true;
        }
        emit LeafHidden(newestFirst[newestFirst.length - 1].root.epoch, account);
        ledger.recall(newestFirst);
        _giveBack(name, account, question);
    }

    /// @notice Return the bond of a question about a posting that came to nothing before the answer, or of one about a
    ///         final epoch that nobody answered, and for which nobody had the epoch recalled in time; and a bond that
    ///         its asker did not take before.
    /// @param posting As `postingOf` names it; a final epoch by the hash of its record.
    function refund(bytes32 posting, address account) external {
        (, uint64 postedAt,) = ledger.live();
        if (postedAt != 0) {
            (,, bytes32 live) = _live();
            if (live == posting) revert NoAnswer(account);
        }
        Question memory question = _questions[posting][account];
        if (question.asker == address(0)) revert NotAsked(account);
        if (question.isFinal && !isRecalled[posting] && block.timestamp < _lapsesAt(question)) revert NoAnswer(account);
        _close(posting, account);
        token.safeTransfer(question.asker, questionBond);
    }

    /// @notice The name of a posting: the same root may be posted again.
    function postingOf(bytes32 digest, uint64 postedAt) public pure returns (bytes32) {
        return keccak256(abi.encode(digest, postedAt));
    }

    /// @notice The question about an account's leaves in a posting; zeros where there is none.
    function questionOf(bytes32 posting, address account) external view returns (Question memory) {
        return _questions[posting][account];
    }

    /// @notice The questions about a posting that wait for their answers, and the accounts that they are about.
    function openQuestions(bytes32 posting)
        external
        view
        returns (address[] memory accounts, Question[] memory questions)
    {
        accounts = _asked[posting];
        questions = new Question[](accounts.length);
        for (uint256 i = 0; i < accounts.length; ++i) {
            questions[i] = _questions[posting][accounts[i]];
        }
    }

    function _ask(bytes32 name, uint64 epoch, address account, uint256 since, bool isFinal) private {
        if (block.timestamp >= since) revert TooLateToAsk(since);
        if (_questions[name][account].asker != address(0)) revert AlreadyAsked(account);
        uint256 deadline = block.timestamp + answerSeconds;
        _open(name, account, Question(msg.sender, deadline.toUint64(), isFinal, 0));
        emit LeafAsked(epoch, account, msg.sender, deadline);
        token.safeTransferFrom(msg.sender, address(this), questionBond);
    }

    /// @dev The question is settled with that.
    function _requireUnanswered(bytes32 name, address account) private returns (Question memory question) {
        question = _questions[name][account];
        if (question.asker == address(0)) revert NotAsked(account);
        if (block.timestamp < question.deadline) revert StillAnswerable(question.deadline);
        _close(name, account);
    }

    /// @dev From when on an unanswered question about a final epoch recalls nothing, in seconds.
    function _lapsesAt(Question memory question) private view returns (uint256) {
        return question.deadline + answerSeconds;
    }

    /// @dev An asker that does not take its bond stops nothing: its question is open again, for `refund`.
    function _giveBack(bytes32 name, address account, Question memory question) private {
        if (!token.trySafeTransfer(question.asker, questionBond)) _open(name, account, question);
    }

    function _open(bytes32 name, address account, Question memory question) private {
        address[] storage asked = _asked[name];
        question.place = asked.length.toUint24();
        asked.push(account);
        _questions[name][account] = question;
    }

    /// @dev Forget a question. The last account of the list takes its account's place there.
    function _close(bytes32 name, address account) private {
        address[] storage asked = _asked[name];
        uint24 place = _questions[name][account].place;
        address last = asked[asked.length - 1];
        asked[place] = last;
        _questions[name][last].place = place;
        asked.pop();
        delete _questions[name][account];
    }

    function _show(
        bytes32 name,
        EpochRoot memory root,
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) private {
        if (_questions[name][account].asker == address(0)) revert NotAsked(account);
        uint256 earned = _valueUnder(root.contributionRoot, account, points);
        uint256 has = _valueUnder(root.cumulativeRoot, account, afterwards);
        if (has != _valueUnder(root.baseRoot, account, before) + earned || earned > pointsCap) revert NoAnswer(account);
        _close(name, account);
        emit LeafShown(root.epoch, account, earned, has);
        token.safeTransfer(msg.sender, questionBond);
    }

    function _live() private view returns (EpochRoot memory root, uint64 postedAt, bytes32 posting) {
        root = ledger.liveRoot();
        (, postedAt,) = ledger.live();
        posting = postingOf(ledger.epochRootDigest(root), postedAt);
    }

    function _hasBond(address auditor) private view returns (bool) {
        StakeVault.Stake memory stake = vault.stakeOf(auditor);
        return uint256(stake.bonded) + stake.exiting >= ledger.auditorBond();
    }

    function _valueUnder(bytes32 root, address account, Place calldata place) private view returns (uint256 value) {
        bytes32 found;
        (value, found) = SumTree.valueAt(account, place);
        if (found == root) return value;
        value = recordedValue[root][account];
        if (value == 0) revert WrongLeaves();
        value -= 1;
    }

    function _convict(Rule rule, uint64 epoch) private {
        emit FraudProven(rule, epoch, msg.sender);
        address[] memory signers = ledger.reject();
        for (uint256 i = 0; i < signers.length; ++i) {
            vault.slash(signers[i], msg.sender);
        }
    }
}
