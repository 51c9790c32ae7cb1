// Time, beacons, seeds and turns: sections 5 and 7.1. Times are BigInt milliseconds, so nothing is rounded.
import { bigOf, bytesOf, compareBytes, hex } from "./encoding.mjs";
import { H, tag } from "./hashes.mjs";

const HALF_SECOND = 500n;
const ROLLOUT_EPOCHS = 2n, PROOF_EPOCHS = 13n, CONTRIBUTION_EPOCHS = 17n;
const DEADLINE_EPOCHS = 2n;
const TURNS_OF_ONE_LENGTH = 16n;

export function floorDivide(a, b) {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

export class Clock {
  constructor(manifest) {
    this.genesis = manifest.genesisSeconds * 1000n;
    this.length = manifest.epochSeconds * 1000n;
    this.grace = this.length / 10n < 30_000n ? this.length / 10n : 30_000n;
    this.delay = manifest.audits ? manifest.finalitySeconds * 1000n + 3n * this.grace : 0n;
  }

  epoch(ms) {
    return floorDivide(ms - this.genesis, this.length);
  }

  start(epoch) {
    return this.genesis + epoch * this.length;
  }

  hasBegun(epoch, ms) {
    return this.start(epoch) - HALF_SECOND <= ms;
  }

  isOver(epoch, ms) {
    return this.start(epoch + 1n) <= ms;
  }

  takesRollouts(epoch, ms) {
    return ms < this.start(epoch + ROLLOUT_EPOCHS) + HALF_SECOND;
  }

  takesProofs(epoch, ms) {
    return ms < this.start(epoch + PROOF_EPOCHS);
  }

  takesContributions(epoch, ms) {
    return ms < this.start(epoch + CONTRIBUTION_EPOCHS);
  }

  takesCommitments(epoch, ms) {
    return ms < this.start(epoch + 1n) + this.grace + HALF_SECOND;
  }

  // From when on the first block draws the sample of an epoch (section 7.5).
  drawsFrom(epoch) {
    return this.start(epoch + 1n) + 2n * this.grace;
  }

  // When turn k begins, in milliseconds after the end of its epoch.
  turnBegins(turn) {
    const round = turn / TURNS_OF_ONE_LENGTH;
    const graces = 2n + 16n * (2n ** round - 1n) + (turn % TURNS_OF_ONE_LENGTH) * 2n ** round;
    return graces * this.grace + this.delay;
  }

  // How many turns begin within `ms` milliseconds after the end of an epoch, and not at that moment itself.
  turnsBefore(ms) {
    let turns = 0n;
    while (this.turnBegins(turns) < ms) turns += 1n;
    return turns;
  }

  turns() {
    return this.turnsBefore(DEADLINE_EPOCHS * this.length);
  }
}

export function beaconOf(manifest, epoch, blockHash) {
  return H(tag("beacon"), manifest.swarmId, bytesOf(epoch, 8), blockHash);
}

export function seedOf(manifest, beacon, account, family, slot) {
  const digest = H(tag("seed"), manifest.swarmId, beacon, account, bytesOf(family, 2), bytesOf(slot, 4));
  return bigOf(digest.subarray(0, 4)) / 2n;
}

export function lotOf(manifest, beacon, account, slot) {
  return bigOf(H(tag("lot"), manifest.swarmId, beacon, account, bytesOf(slot, 4)).subarray(0, 4));
}

// The auditors of an epoch, ascending. Replacements are [epoch, leaving, entering], in the order of their announcement.
export function auditorsOf(founders, replacements, epoch) {
  let auditors = [...founders];
  for (const [from, leaving, entering] of replacements) {
    if (from > epoch) continue;
    auditors = auditors.map((account) => (hex(account) === hex(leaving) ? entering : account));
  }
  return auditors.sort(compareBytes);
}
