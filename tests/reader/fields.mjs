// Fields of a JSON document: names, types and bounds of section 2.
import { unhex } from "./encoding.mjs";
import { check } from "./json_text.mjs";

const LAST_OF_64_BITS = (1n << 64n) - 1n;
const HEXADECIMAL = /^(?:0x)?((?:[0-9a-fA-F]{2})*)$/;

// An object with the fields `required`, perhaps those of `optional`, and no others.
export function objectOf(value, required, optional = []) {
  check(value instanceof Map, "no object");
  for (const name of required) check(value.has(name), `no field ${name}`);
  for (const name of value.keys()) check(required.includes(name) || optional.includes(name), `unknown field ${name}`);
  return value;
}

export function uint(value, least = 0n, most = LAST_OF_64_BITS) {
  check(typeof value === "bigint" && value >= least && value <= most, `no integer from ${least} to ${most}`);
  return value;
}

export function text(value) {
  check(typeof value === "string", "no text");
  return value;
}

export function list(value, least, most) {
  check(Array.isArray(value) && value.length >= least && value.length <= most, `no list of ${least} to ${most}`);
  return value;
}

export function bytes(value, size) {
  const found = HEXADECIMAL.exec(text(value));
  check(found !== null && found[1].length === 2 * size, `no ${size} bytes`);
  return unhex(found[1]);
}

export function powerOfTwo(value, most) {
  uint(value, 1n, most);
  check((value & (value - 1n)) === 0n, "no power of two");
  return value;
}
