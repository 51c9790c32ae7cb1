// The strict rule of section 3, over the points of @noble/curves: its own verify() takes the cofactor out.
import { ed25519 } from "@noble/curves/ed25519.js";
import { bigOf, hex } from "./encoding.mjs";
import { H512 } from "./hashes.mjs";

const { Point } = ed25519;
const ORDER = (1n << 252n) + 27742317777372353535851937790883648493n;
const FIELD = (1n << 255n) - 19n;

function littleEndian(bytes) {
  return bigOf(Uint8Array.from(bytes).reverse());
}

// The point that 32 bytes stand for, or null where the rule does not allow it.
function pointOf(bytes) {
  const y = littleEndian(bytes) & ((1n << 255n) - 1n);
  if (y >= FIELD) return null;
  let point;
  try {
    point = Point.fromBytes(bytes, false);
  } catch (error) {
    if (error instanceof Error && error.message.includes("bad point")) return null;
    throw error;
  }
  return point.isSmallOrder() ? null : point;
}

// Cases repeat the same certificates thousands of times, and BigInt arithmetic is slow.
const DECIDED = new Map();

export function verify(key, message, signature) {
  const question = hex(H512(key, signature, message));
  if (!DECIDED.has(question)) DECIDED.set(question, holds(key, message, signature));
  return DECIDED.get(question);
}

function holds(key, message, signature) {
  const nonce = signature.subarray(0, 32);
  const s = littleEndian(signature.subarray(32));
  if (s >= ORDER) return false;
  const [a, r] = [pointOf(key), pointOf(nonce)];
  if (a === null || r === null) return false;
  const k = littleEndian(H512(nonce, key, message)) % ORDER;
  const left = s === 0n ? Point.ZERO : Point.BASE.multiplyUnsafe(s);
  const right = k === 0n ? r : r.add(a.multiplyUnsafe(k));
  return left.equals(right);
}

