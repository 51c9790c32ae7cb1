// Difficulty: sections 5 and 7.4. Everything is BigInt, and `/` rounds down because nothing here is negative.
import { compareBytes } from "./encoding.mjs";
import { lowerMedian } from "./settlement.mjs";

const FULL = 1000n;
const MAX_NUMBER = (1n << 32n) - 1n;
const LEAST_GROUPS = 8n;
const smaller = (a, b) => (a < b ? a : b);

export function firstRecord({ ladders }, families) {
  const above = new Set(ladders.flatMap((ladder) => ladder.slice(1)));
  return Array.from({ length: families }, (_, family) => [0n, 0n, 0n, above.has(BigInt(family)) ? 0n : FULL]);
}

// The record on top of `before`, by tallies of rows [right, mixed, wrong].
export function nextRecord({ ladders, step }, before, tallies) {
  const outcomes = before.map((_, family) =>
    [0, 1, 2].map((at) => smaller(lowerMedian(tallies.map((tally) => tally[family][at])), MAX_NUMBER)),
  );
  const rows = before.map((row, family) => [...outcomes[family].map((number, at) => row[at] / 2n + number), row[3]]);
  for (const ladder of ladders) moveLadder(rows, outcomes, ladder.map(Number), step);
  return rows;
}

// `outcomes` are those of the epoch alone: what is left of earlier ones does not move the ladder again.
function moveLadder(rows, outcomes, ladder, step) {
  let place = 0n;
  const sums = [0n, 0n, 0n];
  ladder.forEach((family, level) => {
    place += BigInt(level) * rows[family][3];
    for (const at of [0, 1, 2]) sums[at] += outcomes[family][at];
  });
  place = movedTo(place, sums, step);
  const last = FULL * BigInt(ladder.length - 1);
  if (place < 0n) place = 0n;
  if (place > last) place = last;
  const [level, rest] = [Number(place / FULL), place % FULL];
  ladder.forEach((family, at) => {
    rows[family][3] = at === level ? FULL - rest : at === level + 1 ? rest : 0n;
  });
}

function movedTo(place, [right, mixed, wrong], step) {
  const all = right + mixed + wrong;
  if (all < LEAST_GROUPS) return place;
  const good = right + mixed;
  if (good > 3n * wrong) return place + (step * (good - 3n * wrong)) / all;
  return place - smaller(step, (step * (3n * wrong - good)) / all);
}

// The weight of every family in the mix.
export function mixOf({ ladders, floor }, record) {
  const mix = record.map((row) => row[3]);
  for (const ladder of ladders.map((indices) => indices.map(Number))) {
    const inUse = ladder.map((family) => record[family][3] > 0n);
    ladder.forEach((family, level) => {
      const isNear = inUse[level] || inUse[level - 1] || inUse[level + 1];
      if (isNear && mix[family] < floor) mix[family] = floor;
    });
  }
  return mix;
}

// The families that a slot with this lot may have.
export function allowed({ ladders }, mix, lot) {
  const onLadders = new Set(ladders.flat());
  const families = mix.map((_, family) => BigInt(family)).filter((family) => !onLadders.has(family));
  for (const ladder of ladders) {
    const sum = ladder.reduce((total, family) => total + mix[family], 0n);
    const place = (lot * sum) >> 32n;
    let upTo = 0n;
    families.push(ladder.find((family) => (upTo += mix[family]) > place));
  }
  return families.sort((a, b) => (a < b ? -1 : 1));
}

// Points of so many paid groups of each family, the record being in force. `most` is the cap.
export function pointsOf(record, groups, most = null) {
  let eighths = 0n;
  groups.forEach((paid, family) => {
    const [right, mixed, wrong] = record[family];
    const all = right + mixed + wrong;
    eighths += paid * (4n * right >= 3n * all && all >= LEAST_GROUPS ? 7n : 8n);
  });
  return most === null ? eighths / 8n : smaller(eighths / 8n, most);
}

// The outcomes that an auditor counts of one family: `accounts` are [account, letters], the letters r, m or w of the
// groups that it takes of each, in the order of slots.
export function outcomesOf(accounts) {
  const active = accounts.filter(([, groups]) => groups.length > 0);
  if (active.length === 0) return [0, 0, 0];
  const most = lowerMedian(active.map(([, groups]) => groups.length));
  const taken = active.map(([account, groups]) => [account, groups.slice(0, most)]);
  const wrongIn = (groups) => BigInt([...groups].filter((group) => group === "w").length);
  taken.sort(([a, first], [b, second]) => {
    const [left, right] = [wrongIn(first) * BigInt(second.length), wrongIn(second) * BigInt(first.length)];
    return left < right ? -1 : left > right ? 1 : compareBytes(a, b);
  });
  const groups = taken.map(([, letters]) => letters).join("");
  const third = Math.floor(groups.length / 3);
  const middle = groups.slice(third, groups.length - third);
  return ["r", "m", "w"].map((letter) => [...middle].filter((group) => group === letter).length);
}

export function hasBalancedWeights({ ladders }, record) {
  const onLadders = new Set(ladders.flat());
  const sums = ladders.map((ladder) => ladder.reduce((sum, family) => sum + record[family][3], 0n));
  const others = record.filter((_, family) => !onLadders.has(BigInt(family)));
  return sums.every((sum) => sum === FULL) && others.every((row) => row[3] === FULL);
}
