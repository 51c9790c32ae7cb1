// Breaks one rule of the contracts after the other and sees that the Foundry tests notice each.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { forge } from "./forge.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const copied = ["src", "test", "foundry.toml", "solc.mjs"];

// File, what stands there once, and what a careless hand makes of it.
const mutants = [
  ["EpochLedger", "if (block.timestamp < finalAt) revert StillChallengeable(finalAt);", ""],
  ["EpochLedger", "if (_live.postedAt != 0) _dropExpired();", ""],
  ["EpochLedger", "+ challengeSeconds + epochSeconds) revert OtherPostingLive(epoch);", "+ challengeSeconds) revert OtherPostingLive(epoch);"],
  ["EpochLedger", "terms.challengeSeconds + 2 * terms.epochSeconds", "2 * terms.epochSeconds"],
  ["EpochLedger", "if (root.total > epochBudget) revert OverBudget(root.total, epochBudget);", ""],
  ["EpochLedger", "if (vault.bonded(signer) < auditorBond) continue;", ""],
  ["EpochLedger", "_isRejected[digest] = true;", ""],
  ["EpochLedger", "if (root.baseRoot != base) revert StaleBase(root.baseRoot, base);", ""],
  ["EpochLedger", "_live.cumulativeRoot = root == 0 ? NO_ROOT : root;", ""],
  ["EpochLedger", "if (_count(signers) >= quorum) return;", "return;"],
  ["EpochLedger", "posting.postedAt, previous, posting.finalBlock));", "posting.postedAt, bytes32(0), posting.finalBlock));"],
  ["EpochLedger", "posting.postedAt, previous, posting.finalBlock);", "posting.postedAt, _history, posting.finalBlock);"],
  ["EpochLedger", "_live.nextEpoch = next;", ""],
  ["EpochLedger", "_live.finalBlock = number;", ""],
  ["EpochLedger", "block.timestamp.toUint40()", "uint40(block.timestamp)"],
  ["EpochLedger", "block.number.toUint40()", "uint40(block.number)"],
  ["StakeVault", "uint256(stake.bonded) + stake.exiting", "uint256(stake.bonded)"],
  ["StakeVault", "stake.withdrawableAt = withdrawableAt.toUint64();", ""],
  ["RewardDistributor", "if (paid > grantedPoints) revert OverGranted(paid, grantedPoints);", ""],
  ["RewardDistributor", "_cumulativeRoot == NO_ROOT ? bytes32(0) : _cumulativeRoot", "_cumulativeRoot"],
  ["FraudVerifier", "equivocated[signer][a.epoch][turn] = true;", ""],
  ["FraudVerifier", "if (equivocated[signer][a.epoch][turn]) revert AlreadyProven(signer, a.epoch, turn);", ""],
  ["EpochLedger", "if (signer <= previous) revert SignerOrder(previous, signer);", ""],
  ["EpochLedger", "if (root.epoch < next) revert EpochNotIncreasing(root.epoch, next);", ""],
  ["EpochLedger", "abi.encode(EPOCH_APPROVAL_TYPEHASH, turn, hashed)", "abi.encode(EPOCH_APPROVAL_TYPEHASH, uint32(0), hashed)"],
  ["RewardDistributor", "_payees[account] = Payee(uint64(cumulative), grantedEpochs + 1, payee.payout);", ""],
  ["RewardDistributor", "if (points > most) revert OverCap(points, most);", ""],
  ["RewardDistributor", "Payee(uint64(cumulative), grantedEpochs + 1, payee.payout)", "Payee(uint64(cumulative), payee.since, payee.payout)"],
  ["RewardDistributor", "payee.since == 0 ? 0 : pointsCap", "pointsCap"],
  ["RewardDistributor", "if (_payees[account].since == 0) _payees", "_payees"],
  ["RewardDistributor", ".since = grantedEpochs + 1;", ".since = 1;"],
  ["NodeRegistry", "distributor.enrol(msg.sender);", ""],
  ["EpochLedger", "if (name != history) revert NotFinal();", ""],
  ["EpochLedger", "if (name == 0) revert NotFinal();", ""],
  ["EpochLedger", "_history = oldest.previousHistory;", ""],
  ["EpochLedger", "_live.finalBlock = uint40(oldest.previousBlock);", ""],
  ["EpochLedger", "distributor.goBack(oldest.root.baseRoot);", ""],
  ["EpochLedger", "function recall(FinalEpoch[] calldata newestFirst) external onlyVerifier {", "function recall(FinalEpoch[] calldata newestFirst) external {"],
  ["FraudVerifier", "if (question.isFinal && !isRecalled[posting]) revert NoAnswer(account);", ""],
  ["FraudVerifier", "isRecalled[keccak256(abi.encode(newestFirst[i]))] = true;", ""],
  ["FraudVerifier", "recallSeconds = 3 * exitSeconds;", "recallSeconds = 30 * exitSeconds;"],
  ["EpochLedger", "SumTree.sumOf(root.contributionRoot) != root.total ||", ""],
  ["EpochLedger", "|| SumTree.sumOf(root.cumulativeRoot) != granted", ""],
  ["EpochLedger", "if (posting.open != 0) revert QuestionsOpen(posting.open);", ""],
  ["EpochLedger", "_live.open -= 1;", ""],
  ["FraudVerifier", "if (block.timestamp < question.deadline) revert StillAnswerable(question.deadline);", ""],
  ["FraudVerifier", "if (block.timestamp >= since) revert TooLateToAsk(since);", ""],
  ["FraudVerifier", "|| earned > pointsCap) revert NoAnswer(account);", ") revert NoAnswer(account);"],
  ["FraudVerifier", "if (live == posting) revert NoAnswer(account);", ""],
  ["SumTree", "if (carry > type(uint64).max) revert BadPath();", ""],
  ["SumTree", "if (value > type(uint64).max) revert ValueTooLarge(value);", ""],
  ["SumTree", "if (depth > ACCOUNT_BITS || apart >> (ACCOUNT_BITS - depth) != 0) revert BadPath();", ""],
  ["SumTree", "if (place.value != 0) revert BadPath();", ""],
  ["NodeRegistry", "places[i].notAfter <= block.timestamp) free = i;", "places[i].notAfter == 0) free = i;"],
];

function survives(folder, [name, from, to]) {
  const path = join(folder, "src", `${name}.sol`);
  const genuine = readFileSync(path, "utf8");
  if (genuine.split(from).length !== 2) throw new Error(`${name} does not hold once: ${from}`);
  writeFileSync(path, genuine.replace(from, to));
  const run = forge(["test", "--fail-fast"], { cwd: folder, encoding: "utf8" });
  writeFileSync(path, genuine);
  if (run.stdout.includes("Compiler run failed")) throw new Error(`${name} does not compile with: ${to}`);
  return run.status === 0;
}

const folder = mkdtempSync(join(tmpdir(), "mutants-"));
for (const name of copied) cpSync(join(here, name), join(folder, name), { recursive: true });
symlinkSync(join(here, "node_modules"), join(folder, "node_modules"));
let survivors = 0;
for (const mutant of mutants) {
  const survived = survives(folder, mutant);
  survivors += survived;
  console.log(`${survived ? "SURVIVED" : "killed  "} ${mutant[0]}: ${mutant[1]}`);
}
rmSync(folder, { recursive: true });
console.log(`${mutants.length - survivors} of ${mutants.length} mutants killed`);
process.exit(survivors ? 1 : 0);
