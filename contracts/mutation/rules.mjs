// Rules that were broken by hand, most of them by somebody who attacked the contracts; the operators make some of
// them, too.
import { createHash } from "node:crypto";

// File, what stands there once, and what a careless hand makes of it.
const rules = [
  ["EpochLedger", "if (block.timestamp < finalAt) revert StillChallengeable(finalAt);", ""],
  ["EpochLedger", "_dropExpired();", ""],
  ["EpochLedger", "+ challengeSeconds + epochSeconds) revert OtherPostingLive(epoch);", "+ challengeSeconds) revert OtherPostingLive(epoch);"],
  ["EpochLedger", "terms.challengeSeconds + 2 * terms.epochSeconds", "2 * terms.epochSeconds"],
  ["EpochLedger", "if (root.total > epochBudget) revert OverBudget(root.total, epochBudget);", ""],
  ["EpochLedger", "if (vault.bonded(signer) < auditorBond) continue;", ""],
  ["EpochLedger", "_isRejected[digest] = true;", ""],
  ["EpochLedger", "if (root.baseRoot != base) revert StaleBase(root.baseRoot, base);", ""],
  ["EpochLedger", "_live.cumulativeRoot = root == 0 ? NO_ROOT : root;", ""],
  ["EpochLedger", "if (_count(_live.signers) == quorum) _live.open += 1;", ""],
  ["EpochLedger", "if (_count(before) < quorum) _live.open -= 1;", ""],
  ["EpochLedger", "before | _signers(", "_signers("],
  ["EpochLedger", "if (signers == before) revert OtherPostingLive(root.epoch);", ""],
  ["EpochLedger", "before | _signers(approvalDigest(root, turn), signatures, root.epoch);", "before | _signers(approvalDigest(root, turn), signatures, currentEpoch());"],
  ["EpochLedger", "posting.postedAt, previous, posting.finalBlock));", "posting.postedAt, bytes32(0), posting.finalBlock));"],
  ["EpochLedger", "posting.postedAt, previous, posting.finalBlock);", "posting.postedAt, _history, posting.finalBlock);"],
  ["EpochLedger", "block.timestamp.toUint40()", "uint40(block.timestamp)"],
  ["EpochLedger", "block.number.toUint40()", "uint40(block.number)"],
  ["StakeVault", "uint256(stake.bonded) + stake.exiting", "uint256(stake.bonded)"],
  ["StakeVault", "stake.withdrawableAt = withdrawableAt.toUint64();", ""],
  ["RewardDistributor", "if (paid > grantedPoints) revert OverGranted(paid, grantedPoints);", ""],
  ["RewardDistributor", "_cumulativeRoot == NO_ROOT ? bytes32(0) : _cumulativeRoot", "_cumulativeRoot"],
  ["FraudVerifier", "equivocated[signer][a.epoch][turn] = _hasBond(signer);", ""],
  ["FraudVerifier", "equivocated[signer][a.epoch][turn] = _hasBond(signer);", "equivocated[signer][a.epoch][turn] = true;"],
  ["FraudVerifier", "if (equivocated[signer][a.epoch][turn]) revert AlreadyProven(signer, a.epoch, turn);", ""],
  ["EpochLedger", "if (signer <= previous) revert SignerOrder(previous, signer);", ""],
  ["EpochLedger", "if (root.epoch < next) revert EpochNotIncreasing(root.epoch, next);", ""],
  ["EpochLedger", "abi.encode(EPOCH_APPROVAL_TYPEHASH, turn, hashed)", "abi.encode(EPOCH_APPROVAL_TYPEHASH, uint32(0), hashed)"],
  ["RewardDistributor", "if (cumulative > most) revert OverCap(points, most - payee.claimed);", ""],
  ["EpochLedger", "SumTree.sumOf(root.contributionRoot) != root.total ||", ""],
  ["EpochLedger", "|| SumTree.sumOf(root.cumulativeRoot) != granted", ""],
  ["EpochLedger", "if (posting.open != 0) revert QuestionsOpen(posting.open);", ""],
  ["EpochLedger", "function release() external onlyVerifier {\n        _live.open -= 1;", "function release() external onlyVerifier {"],
  ["FraudVerifier", "if (block.timestamp < question.deadline) revert StillAnswerable(question.deadline);", ""],
  ["FraudVerifier", "if (block.timestamp >= since) revert TooLateToAsk(since);", ""],
  ["FraudVerifier", "|| earned > pointsCap) revert NoAnswer(account);", ") revert NoAnswer(account);"],
  ["FraudVerifier", "if (live == posting) revert NoAnswer(account);", ""],
  ["SumTree", "if (carry > type(uint64).max) revert BadPath();", ""],
  ["SumTree", "if (value > type(uint64).max) revert ValueTooLarge(value);", ""],
  ["SumTree", "if (depth > ACCOUNT_BITS || apart >> (ACCOUNT_BITS - depth) != 0) revert BadPath();", ""],
  ["SumTree", "if (place.value != 0) revert BadPath();", ""],
  ["NodeRegistry", "places[i].notAfter <= block.timestamp) free = i;", "places[i].notAfter == 0) free = i;"],
  ["EpochLedger", "_live.nextEpoch = next;", ""],
  ["EpochLedger", "_live.finalBlock = number;", ""],
  ["RewardDistributor", "_payees[account].claimed = uint64(cumulative);", "_payees[account] = Payee(uint64(cumulative), grantedEpochs + 1, payee.payout);"],
  ["RewardDistributor", "_payees[account].claimed = uint64(cumulative);", ""],
  ["RewardDistributor", "if (cumulative > most)", "if (points > most)"],
  ["RewardDistributor", "since == 0 ? 0 : pointsCap", "pointsCap"],
  ["RewardDistributor", "if (_payees[account].since == 0) _payees", "_payees"],
  ["RewardDistributor", ".since = grantedEpochs + 1;", ".since = 1;"],
  ["NodeRegistry", "distributor.enrol(msg.sender);", ""],
  ["EpochLedger", "if (name != history) revert NotFinal();", ""],
  ["EpochLedger", "if (name == 0) revert NotFinal();", ""],
  ["EpochLedger", "_history = oldest.previousHistory;", ""],
  ["EpochLedger", "_live.finalBlock = uint40(oldest.previousBlock);", ""],
  ["EpochLedger", "distributor.goBack(oldest.root.baseRoot);", ""],
  ["EpochLedger", "function recall(FinalEpoch[] calldata newestFirst) external onlyVerifier {", "function recall(FinalEpoch[] calldata newestFirst) external {"],
  ["FraudVerifier", "if (question.isFinal && !isRecalled[posting] && block.timestamp < _lapsesAt(question)) revert NoAnswer(account);", ""],
  ["FraudVerifier", "isRecalled[keccak256(abi.encode(newestFirst[i]))] = true;", ""],
  ["FraudVerifier", "recallSeconds = 3 * exitSeconds - 2 * answerSeconds_;", "recallSeconds = 3 * exitSeconds;"],
  ["FraudVerifier", "if (block.timestamp >= since) revert TooLateToRecall(since);", ""],
  ["FraudVerifier", " && block.timestamp < _lapsesAt(question)) revert NoAnswer(account);", ") revert NoAnswer(account);"],
  ["EpochLedger", "if (!isAuditorIn(auditor, epoch)) return;", ""],
  ["EpochLedger", "_auditorsOf(posting.signers, posting.epoch)", "_auditorsOf(posting.signers, type(uint64).max)"],
  ["EpochLedger", "|| _tenures[leaving].untilEpoch != NO_END", ""],
  ["EpochLedger", "|| _tenures[entering].place != 0", ""],
  ["EpochLedger", "delete _tenures[last.entering];", ""],
  ["EpochLedger", "signatures, root.epoch);\n\n", "signatures, currentEpoch());\n\n"],
  ["FraudVerifier", "if (value == 0) revert WrongLeaves();\n        value -= 1;", "if (value != 0) value -= 1;"],
  ["FraudVerifier", "value = recordedValue[root][account];", "value = recordedValue[root][msg.sender];"],
  ["AccountBond", "if (epoch > ledger.currentEpoch()) revert NotBegun(epoch);", ""],
];

/** The hand-written mutants of a source, in the form of those that the operators make. */
export function rulesBroken(name, source) {
  return rules.filter(([file]) => file === name).map(([, from, to]) => {
    const parts = source.split(from);
    if (parts.length !== 2) throw new Error(`${name}.sol does not hold once: ${from}`);
    const [start, length] = [Buffer.byteLength(parts[0]), Buffer.byteLength(from)];
    const hash = createHash("sha256").update(JSON.stringify([from, to])).digest("hex").slice(0, 8);
    const line = parts[0].split("\n").length;
    return { id: `${name}/rule/${hash}`, operator: "rule", start, end: start + length, line, original: from, replacement: to };
  });
}
