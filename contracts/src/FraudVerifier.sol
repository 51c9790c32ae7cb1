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

/// @title Verifies fraud proofs against auditors and postings, and handles questions about undisclosed leaves.
/// @notice Anyone may submit a proof. The result depends only on its inputs, on the live posting and on the last final
///         root. A posting that is proven false is rejected, and the bonds of all its signers are slashed. Two
///         statements that one auditor signed in one turn of an epoch cost this auditor its bond.
///
///         With these rules a posting can only choose who earned how many points of the epoch, within the cap. Every
///         account must have exactly what it had before and earned, and the sums in the roots bound the points of all
///         accounts. A proof contains the Merkle proofs of one account, whatever the number of accounts. Single values
///         can be recorded in advance, so that no transaction is long, even if a dishonest quorum makes the path to an
///         account as long as the account has bits.
///
///         Whoever does not know the leaves of an account can ask for them, with a bond. The first one to show that the
///         account has what it had before and earned receives the bond. If nobody answers in time, the posting is
///         rejected; its signers keep their bonds, because a slow chain can be the reason. The leaves of the last final
///         epochs can be asked for in the same way, for as long as all nodes store them. If nobody shows them, these
///         epochs can be recalled, and the ledger continues from the root before them. A recall is possible for
///         `answerSeconds` after the deadline.
/// @dev Each proof counts once. A rejected posting is no longer live. Two signatures of an auditor in a turn are marked
///      as punished only if they have cost a whole bond: otherwise an auditor without a bond could convict itself in
///      advance. No owner.
contract FraudVerifier {
    using SafeCast for uint256;
    using SafeERC20 for IERC20;

    enum Rule {
        Equivocation,
        OverCap,
        Balance
    }

    struct Question {
        /// Account that paid the bond; zero if there is no question.
        address asker;
        /// Unix time in seconds. If nobody has answered by then, the posting can be rejected, or the final epoch
        /// recalled within `answerSeconds`.
        uint64 deadline;
        /// Whether it is about a final epoch.
        bool isFinal;
        /// Index of its account in the list of open questions about the posting.
        uint24 place;
    }

    /// @notice The epoch ledger, which created this contract.
    IDisputedLedger public immutable ledger;
    /// @notice The distributor of the ledger.
    RewardDistributor public immutable distributor;
    /// @notice The auditors' bonds. It is created here, so that only this contract can slash them.
    StakeVault public immutable vault;
    /// @notice Most points that an account can earn in one epoch.
    uint256 public immutable pointsCap;
    /// @notice The token of bonds and rewards.
    IERC20 public immutable token;
    /// @notice Bond of a question in the token's smallest unit: the price of `pointsCap` points.
    uint256 public immutable questionBond;
    /// @notice Time to answer a question, in seconds.
    uint256 public immutable answerSeconds;
    /// @notice Time after its posting in which the leaves of a final epoch can be asked for, in seconds: more than six
    ///         epochs. All consequences of a question end within nine epochs; nodes store all leaves for longer.
    uint256 public immutable recallSeconds;

    /// @notice Whether an auditor's two signatures in a turn of an epoch have already cost a bond.
    mapping(address auditor => mapping(uint64 epoch => mapping(uint32 turn => bool))) public equivocated;
    mapping(bytes32 posting => mapping(address account => Question)) private _questions;
    /// @dev The accounts of the open questions, in any order. Every node reads this list, so it must contain no account
    ///      without a bond that is held.
    // Slither does not follow the storage reference through which `_open` appends.
    // slither-disable-next-line uninitialized-state
    mapping(bytes32 posting => address[]) private _asked;
    /// @notice Whether a final epoch was recalled, by the hash of its record.
    mapping(bytes32 name => bool) public isRecalled;
    /// @notice The value of an account under a root, plus 1; zero if it is not recorded.
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

    /// @param distributor_ The distributor of the ledger.
    /// @param pointsCap_ Most points that an account can earn in one epoch.
    /// @param answerSeconds_ Time to answer a question, in seconds.
    /// @param exitSeconds Exit delay of the auditors' bonds, in seconds.
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

    /// @notice Prove that an auditor signed two different statements in one turn of an epoch, whether or not they were
    ///         posted. Its bond is slashed, and its signature is removed from the epoch's live posting. Statements of
    ///         different turns prove nothing, because an auditor may sign again if a proposal failed.
    /// @param turn The turn.
    /// @param a One statement.
    /// @param b Another statement about the same epoch.
    /// @param signatureOfA The auditor's signature of `a` in this turn: 65 bytes (r, s, v).
    /// @param signatureOfB The auditor's signature of `b` in this turn.
    /// @custom:reverts NoContradiction if epochs or signers differ, or the statements are equal.
    /// @custom:reverts NotAuditor if the signer never was an auditor.
    /// @custom:reverts AlreadyProven if this turn has already cost the auditor a bond.
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

    /// @notice Record the value of an account under a root, for later proofs and answers.
    /// @dev Any root is accepted at any time, since the value of an account under a root never changes. In a later
    ///      proof a place that does not lead to the root, such as one of zeros, stands for the recorded value.
    /// @param root The root.
    /// @param account The account.
    /// @param place End of the account's path under the root.
    /// @custom:reverts WrongLeaves if the place does not lead to the root and no value is recorded.
    function recordValue(bytes32 root, address account, Place calldata place) external {
        recordedValue[root][account] = _valueUnder(root, account, place) + 1;
    }

    /// @notice Prove that the live posting grants an account more points than the cap.
    /// @param account The account.
    /// @param points End of the account's path in the posting's tree of the epoch's points.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts WrongLeaves if the place does not lead to the posting's root.
    /// @custom:reverts WithinCap if the account's points are within the cap.
    function proveOverCap(address account, Place calldata points) external {
        EpochRoot memory root = ledger.liveRoot();
        uint256 earned = _valueUnder(root.contributionRoot, account, points);
        if (earned <= pointsCap) revert WithinCap(earned, pointsCap);
        _convict(Rule.OverCap, root.epoch);
    }

    /// @notice Prove that in the live posting an account's cumulative points are not those that it had before plus
    ///         those of the epoch.
    /// @param account The account.
    /// @param before End of the account's path in the last final cumulative tree.
    /// @param points End of its path in the posting's tree of the epoch's points.
    /// @param afterwards End of its path in the posting's cumulative tree.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts WrongLeaves if a place does not lead to its root.
    /// @custom:reverts Balanced if the cumulative points are right.
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

    /// @notice Ask for an account's leaves in the live posting. The posting cannot become final while the question is
    ///         open.
    /// @dev Not possible in the second of the posting: a posting that a recall drops and that is posted again in the
    ///      same second has the same name.
    /// @param account The account; the sender must have approved `questionBond` tokens.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts TooEarlyToAsk in the second of the posting.
    /// @custom:reverts TooLateToAsk after the challenge window.
    /// @custom:reverts AlreadyAsked if a question about this account is open.
    function ask(address account) external {
        (EpochRoot memory root, uint64 postedAt, bytes32 posting) = _live();
        if (block.timestamp <= postedAt) revert TooEarlyToAsk(postedAt);
        ledger.hold();
        _ask(posting, root.epoch, account, uint256(postedAt) + ledger.challengeSeconds(), false);
    }

    /// @notice Ask for an account's leaves in one of the last final epochs.
    /// @param newestFirst Records of the last final epochs, newest first, back to the one that is asked about.
    /// @param account The account; the sender must have approved `questionBond` tokens.
    /// @custom:reverts NotFinal if these are not the last final epochs.
    /// @custom:reverts TooLateToAsk if the epoch was posted `recallSeconds` ago or earlier.
    /// @custom:reverts AlreadyAsked if a question about this account and epoch is open.
    function askFinal(FinalEpoch[] calldata newestFirst, address account) external {
        bytes32 name = ledger.requireFinal(newestFirst);
        FinalEpoch calldata oldest = newestFirst[newestFirst.length - 1];
        _ask(name, oldest.root.epoch, account, oldest.postedAt + recallSeconds, true);
    }

    /// @notice Answer a question about the live posting: prove that the account has what it had before and earned. The
    ///         bond is paid to the sender.
    /// @param account The account.
    /// @param before End of the account's path in the last final cumulative tree.
    /// @param points End of its path in the posting's tree of the epoch's points.
    /// @param afterwards End of its path in the posting's cumulative tree.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts NotAsked if no question about the account is open.
    /// @custom:reverts WrongLeaves if a place does not lead to its root.
    /// @custom:reverts NoAnswer if the account's points are wrong, or above the cap.
    function answer(
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) external {
        (EpochRoot memory root,, bytes32 posting) = _live();
        if (_questions[posting][account].asker == address(0)) revert NotAsked(account);
        // The ledger makes no external calls here.
        // slither-disable-next-line reentrancy-no-eth
        ledger.release();
        _show(posting, root, account, before, points, afterwards);
    }

    /// @notice Answer a question about a final epoch; see `answer`.
    /// @param final_ Record of the epoch.
    /// @param account The account.
    /// @param before End of the account's path in the cumulative tree to which the epoch added.
    /// @param points End of its path in the tree of the epoch's points.
    /// @param afterwards End of its path in the epoch's cumulative tree.
    /// @custom:reverts NotAsked if no question about the account and epoch is open.
    /// @custom:reverts WrongLeaves if a place does not lead to its root.
    /// @custom:reverts NoAnswer if the account's points are wrong, or above the cap.
    function answerFinal(
        FinalEpoch calldata final_,
        address account,
        Place calldata before,
        Place calldata points,
        Place calldata afterwards
    ) external {
        _show(keccak256(abi.encode(final_)), final_.root, account, before, points, afterwards);
    }

    /// @notice Reject the live posting because a question was not answered in time. The bond is returned to its asker.
    /// @param account The account that the question is about.
    /// @custom:reverts NothingLive if there is no live posting.
    /// @custom:reverts NotAsked if no question about the account is open.
    /// @custom:reverts StillAnswerable before the deadline.
    function proveHidden(address account) external {
        (EpochRoot memory root,, bytes32 posting) = _live();
        Question memory question = _requireUnanswered(posting, account);
        emit LeafHidden(root.epoch, account);
        // Nobody is slashed, so the signers are not needed. The ledger only calls the distributor here.
        // slither-disable-next-line unused-return,reentrancy-no-eth
        ledger.reject();
        _giveBack(posting, account, question);
    }

    /// @notice Recall the last final epochs because a question about the oldest of them was not answered in time. The
    ///         bond is returned to its asker.
    /// @dev Only within `answerSeconds` after the deadline, so that later epochs cannot be recalled at any time.
    /// @param newestFirst Records of the last final epochs, newest first, back to the one that was asked about.
    /// @param account The account that the question is about.
    /// @custom:reverts NotFinal if these are not the last final epochs.
    /// @custom:reverts NotAsked if no question about the account and epoch is open.
    /// @custom:reverts StillAnswerable before the deadline.
    /// @custom:reverts TooLateToRecall from `answerSeconds` after the deadline on.
    function recall(FinalEpoch[] calldata newestFirst, address account) external {
        bytes32 name = ledger.requireFinal(newestFirst);
        Question memory question = _requireUnanswered(name, account);
        uint256 since = _lapsesAt(question);
        if (block.timestamp >= since) revert TooLateToRecall(since);
        for (uint256 i = 0; i < newestFirst.length; ++i) {
            isRecalled[keccak256(abi.encode(newestFirst[i]))] = true;
        }
        emit LeafHidden(newestFirst[newestFirst.length - 1].root.epoch, account);
        // The ledger only calls the distributor here.
        // slither-disable-next-line reentrancy-no-eth
        ledger.recall(newestFirst);
        _giveBack(name, account, question);
    }

    /// @notice Return the bond of a question that can have no more effect to its asker: the posting is no longer live,
    ///         the final epoch was recalled, or nobody recalled it in time. It also serves an asker that could not
    ///         receive the tokens before.
    /// @param posting Name of the posting; see `postingOf`. For a final epoch, the hash of its record.
    /// @param account The account that the question is about.
    /// @custom:reverts NoAnswer if the question can still have an effect.
    /// @custom:reverts NotAsked if there is no such question.
    function refund(bytes32 posting, address account) external {
        // slither-disable-next-line unused-return
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

    /// @notice Return the name of a posting, which differs if the same statement is posted again.
    /// @param digest Digest of the statement; see `IDisputedLedger.epochRootDigest`.
    /// @param postedAt Unix time of the posting in seconds.
    /// @return The name.
    function postingOf(bytes32 digest, uint64 postedAt) public pure returns (bytes32) {
        return keccak256(abi.encode(digest, postedAt));
    }

    /// @notice Return the open question about an account's leaves in a posting.
    /// @param posting Name of the posting; for a final epoch, the hash of its record.
    /// @param account The account.
    /// @return The question; all fields are zero if there is none.
    function questionOf(bytes32 posting, address account) external view returns (Question memory) {
        return _questions[posting][account];
    }

    /// @notice Return the open questions about a posting.
    /// @param posting Name of the posting; for a final epoch, the hash of its record.
    /// @return accounts The accounts that they are about, in any order.
    /// @return questions The questions, in the same order.
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

    /// @dev Reverts unless the question's deadline is over; removes the question.
    function _requireUnanswered(bytes32 name, address account) private returns (Question memory question) {
        question = _questions[name][account];
        if (question.asker == address(0)) revert NotAsked(account);
        if (block.timestamp < question.deadline) revert StillAnswerable(question.deadline);
        _close(name, account);
    }

    /// @dev Return the Unix time in seconds from which a question about a final epoch can have no more effect.
    function _lapsesAt(Question memory question) private view returns (uint256) {
        return question.deadline + answerSeconds;
    }

    /// @dev An asker that refuses the tokens does not stop the call: its question is opened again, for `refund`.
    function _giveBack(bytes32 name, address account, Question memory question) private {
        if (!token.trySafeTransfer(question.asker, questionBond)) _open(name, account, question);
    }

    function _open(bytes32 name, address account, Question memory question) private {
        address[] storage asked = _asked[name];
        question.place = asked.length.toUint24();
        asked.push(account);
        _questions[name][account] = question;
    }

    /// @dev Remove a question. The last account of the list moves to its index.
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
        // slither-disable-next-line unused-return
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
