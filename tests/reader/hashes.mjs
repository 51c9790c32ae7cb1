// H, K and the tags of the head of the specification.
import { sha256, sha512 } from "@noble/hashes/sha2.js";
import { keccak_256 } from "@noble/hashes/sha3.js";
import { concat } from "./encoding.mjs";

const ascii = (text) => new TextEncoder().encode(text);

export function H(...parts) {
  return sha256(concat(...parts));
}

export function H512(...parts) {
  return sha512(concat(...parts));
}

export function K(...parts) {
  return keccak_256(concat(...parts));
}

export function tag(name) {
  return concat(ascii(`sapo/1/${name}`), Uint8Array.of(0));
}

export { ascii };
