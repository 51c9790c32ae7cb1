// Merkle trees: sections 7.2, 7.3 and 7.5.
import { bytesOf, compareBytes, concat } from "./encoding.mjs";
import { H, K } from "./hashes.mjs";

export const EMPTY = new Uint8Array(32);

function pairs(level, join) {
  const above = [];
  for (let at = 0; at < level.length; at += 2) {
    above.push(at + 1 < level.length ? join(level[at], level[at + 1]) : level[at]);
  }
  return above;
}

// All levels of a tree over leaves, from the leaves upwards.
function levelsOf(leaves, join) {
  const levels = [leaves];
  while (levels[levels.length - 1].length > 1) levels.push(pairs(levels[levels.length - 1], join));
  return levels;
}

function pathOf(levels, index) {
  const path = [];
  for (const level of levels.slice(0, -1)) {
    const sibling = level[index ^ 1];
    if (sibling !== undefined) path.push(sibling);
    index >>= 1;
  }
  return path;
}

function treeOf(leaves, join) {
  const levels = levelsOf(leaves, join);
  const root = leaves.length === 0 ? EMPTY : levels[levels.length - 1][0];
  return { leaves, root, paths: leaves.map((_, at) => pathOf(levels, at)) };
}

// The tree of section 7.2 over [account, value].
export function valueTree(entries) {
  const ordered = [...entries].sort(([a], [b]) => compareBytes(a, b));
  const leaves = ordered.map(([account, value]) => H(Uint8Array.of(0), account, bytesOf(value, 32)));
  return treeOf(leaves, (a, b) => (compareBytes(a, b) <= 0 ? H(Uint8Array.of(1), a, b) : H(Uint8Array.of(1), b, a)));
}

// The tree of a commitment over content ids in the order of their slots (section 7.5).
export function contentTree(ids) {
  const leaves = ids.map((id) => H(Uint8Array.of(2), id));
  return treeOf(leaves, (a, b) => H(Uint8Array.of(3), a, b));
}

// --- the points tree (section 7.3) ---------------------------------------------------------------------------

const k24 = (...parts) => K(...parts).subarray(0, 24);
const bitOf = (account, depth) => (account[depth >> 3] >> (7 - (depth & 7))) & 1;
const sumOf = (entries) => entries.reduce((sum, [, value]) => sum + value, 0n);

function split(entries, depth) {
  return [0, 1].map((bit) => entries.filter(([account]) => bitOf(account, depth) === bit));
}

function nodeOf(entries, depth) {
  if (entries.length === 0) return EMPTY;
  const sum = bytesOf(sumOf(entries), 8);
  if (entries.length === 1) return concat(k24(entries[0][0], sum), sum);
  const [left, right] = split(entries, depth).map((half) => nodeOf(half, depth + 1));
  return concat(k24(left, right), sum);
}

export function pointsRoot(entries) {
  return nodeOf(entries.filter(([, value]) => value !== 0n), 0);
}

// The Merkle proof of an account: {holder, value, proof}.
export function placeOf(entries, account) {
  let below = entries.filter(([, value]) => value !== 0n);
  const proof = [];
  for (let depth = 0; below.length > 1; depth++) {
    const halves = split(below, depth);
    const own = bitOf(account, depth);
    proof.unshift(nodeOf(halves[1 - own], depth + 1));
    below = halves[own];
  }
  const [holder, value] = below[0] ?? [new Uint8Array(20), 0n];
  return { holder, value, proof };
}
