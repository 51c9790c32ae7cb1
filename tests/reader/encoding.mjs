// Deterministic CBOR of section 1, in the order of checks of section 6.2.
// Values: BigInt, Uint8Array, string, Array, and Map with BigInt keys.
import { demand } from "./refusal.mjs";

export const MAX_VALUES = 64;
export const MAX_VALUES_OF_LISTS = 8192;
const MAX_DEPTH = 4;
const UINT = 0, BYTES = 2, TEXT = 3, ARRAY = 4, MAP = 5;
const KNOWN_TYPES = new Set([UINT, BYTES, TEXT, ARRAY, MAP]);
const SMALLEST_OF_WIDTH = { 1: 24n, 2: 1n << 8n, 4: 1n << 16n, 8: 1n << 32n };

// Without ignoreBOM a decoder drops U+FEFF at the front: two encodings would be one value.
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// The text in `bytes`, or null if they are not UTF-8.
export function textOf(bytes) {
  try {
    return UTF8.decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}

class Reader {
  constructor(bytes, mostValues) {
    this.bytes = bytes;
    this.at = 0;
    this.valuesLeft = mostValues;
  }

  left() {
    return BigInt(this.bytes.length - this.at);
  }

  take(size) {
    demand(size <= this.left(), "R1.0.2");
    const start = this.at;
    this.at += Number(size);
    return this.bytes.subarray(start, this.at);
  }

  head(isKey) {
    this.valuesLeft -= 1;
    demand(this.valuesLeft >= 0, "R1.0.1");
    const first = this.take(1n)[0];
    const [type, low] = [first >> 5, first & 31];
    demand(low <= 27, "R1.0.3");
    let argument = BigInt(low);
    if (low >= 24) {
      const width = 1 << (low - 24);
      argument = bigOf(this.take(BigInt(width)));
      demand(argument >= SMALLEST_OF_WIDTH[width], "R1.0.4");
    }
    if (isKey) demand(type === UINT, "R1.0.5");
    demand(KNOWN_TYPES.has(type), "R1.0.6");
    return [type, argument];
  }

  value(depth) {
    const [type, argument] = this.head(false);
    if (type === UINT) return argument;
    if (type === BYTES) return this.take(argument);
    if (type === TEXT) {
      const text = textOf(this.take(argument));
      demand(text !== null, "R1.0.7");
      return text;
    }
    demand(depth < MAX_DEPTH, "R1.0.8");
    demand(argument * (type === MAP ? 2n : 1n) <= this.left(), "R1.0.9");
    return type === ARRAY ? this.array(argument, depth + 1) : this.map(argument, depth + 1);
  }

  array(size, depth) {
    const items = [];
    for (let index = 0n; index < size; index++) items.push(this.value(depth));
    return items;
  }

  map(size, depth) {
    const fields = new Map();
    let before = -1n;
    for (let index = 0n; index < size; index++) {
      const [, key] = this.head(true);
      demand(key > before, "R1.0.10");
      before = key;
      fields.set(key, this.value(depth));
    }
    return fields;
  }
}

export function decode(bytes, mostValues = MAX_VALUES) {
  const reader = new Reader(bytes, mostValues);
  const value = reader.value(0);
  demand(reader.left() === 0n, "R1.0.11");
  return value;
}

function headOf(type, argument) {
  if (argument < 24n) return Uint8Array.of((type << 5) + Number(argument));
  let width = 1;
  while (argument >= 1n << BigInt(8 * width)) width *= 2;
  return concat(Uint8Array.of((type << 5) + 24 + Math.log2(width)), bytesOf(argument, width));
}

export function encode(value) {
  if (typeof value === "bigint") return headOf(UINT, value);
  if (value instanceof Uint8Array) return concat(headOf(BYTES, BigInt(value.length)), value);
  if (typeof value === "string") {
    const bytes = new TextEncoder().encode(value);
    return concat(headOf(TEXT, BigInt(bytes.length)), bytes);
  }
  if (Array.isArray(value)) return concat(headOf(ARRAY, BigInt(value.length)), ...value.map(encode));
  const keys = [...value.keys()].sort((a, b) => (a < b ? -1 : 1));
  const pairs = keys.flatMap((key) => [encode(key), encode(value.get(key))]);
  return concat(headOf(MAP, BigInt(keys.length)), ...pairs);
}

// --- bytes and numbers ---------------------------------------------------------------------------------------

export function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export function bigOf(bytes) {
  return bytes.length === 0 ? 0n : BigInt(`0x${hex(bytes)}`);
}

export function bytesOf(number, size) {
  if (number < 0n || number >= 1n << BigInt(8 * size)) throw new RangeError(`${number} is not of ${size} bytes`);
  return unhex(number.toString(16).padStart(2 * size, "0"));
}

export function hex(bytes) {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
}

export function unhex(text) {
  return Uint8Array.from(Buffer.from(text, "hex"));
}

export function compareBytes(a, b) {
  return Buffer.compare(a, b);
}

export function isBytes(value, size) {
  return value instanceof Uint8Array && (size === undefined || value.length === size);
}

export function isUint(value) {
  return typeof value === "bigint";
}
