// Audits by sample: section 7.5.
import { bigOf, bytesOf, concat } from "./encoding.mjs";
import { H, tag } from "./hashes.mjs";

export function drawOf(manifest, epoch, blockHash) {
  return H(tag("draw"), manifest.swarmId, bytesOf(epoch, 8), blockHash);
}

function x(draw, ...parts) {
  return bigOf(H(tag("drawn"), draw, concat(...parts)).subarray(0, 8));
}

export function isDrawn(draw, account, oneIn) {
  return x(draw, account) % oneIn === 0n;
}

// Which of n places of a commitment are drawn, in the order of the draw.
export function drawnPlaces(draw, account, samples, n) {
  const places = [];
  const wanted = samples < n ? samples : n;
  for (let turn = 0n; BigInt(places.length) < wanted; turn++) {
    const place = x(draw, account, bytesOf(turn, 4)) % n;
    if (!places.includes(place)) places.push(place);
  }
  return places;
}

export function bitsOf(slots) {
  const bits = new Uint8Array(Math.floor(slots[slots.length - 1] / 8) + 1);
  for (const slot of slots) bits[slot >> 3] |= 1 << (slot & 7);
  return bits;
}

export function auditPoints({ committed, drawn, failed, undecided = 0n, cap, oneIn }) {
  const passed = drawn - 2n * failed - undecided;
  if (passed <= 0n || drawn === 0n) return 0n;
  const counted = (committed * passed) / drawn;
  return oneIn * (counted < cap ? counted : cap);
}
