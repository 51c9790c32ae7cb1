// Requests and responses of section 9. A function returns null for what is malformed.
import { isBound } from "./accounts.mjs";
import { MAX_VALUES_OF_LISTS, compareBytes, concat, decode, isBytes, isUint } from "./encoding.mjs";
import { CERTIFICATE, demandKeys, readEnvelope } from "./envelope.mjs";
import { verify } from "./ed25519.mjs";
import { tag } from "./hashes.mjs";
import { readCertificate } from "./objects.mjs";
import { Refusal, demand } from "./refusal.mjs";

const MAX_ISLANDS = 8, MAX_IDS = 1024, MAX_FETCHED = 32, MAX_RECORDS = 24;
const MAX_RESPONSE_BYTES = 1_048_576, MAX_RECORD_BYTES = 2048, MAX_ANSWER_BYTES = 65_536;
const ISLANDS_END = 1n << 32n, UINTS_END = 1n << 64n;
const GIVEN = 0n, BUSY = 1n, MALFORMED = 2n;
const ADDRESS = /^[!-~]{1,300}$/;
const AHEAD_SECONDS = 60n, RECORD_SECONDS = 3600n;

// The messages in the response to a request; throws a Refusal.
export function readResponse(bytes) {
  const messages = decode(bytes, MAX_VALUES_OF_LISTS);
  demand(Array.isArray(messages) && messages.every((message) => isBytes(message)), "R1.0.15");
  return messages;
}

class Malformed extends Error {}

function need(holds) {
  if (!holds) throw new Malformed();
}

// What `read` finds in the value that is encoded, or null.
function orNull(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof Malformed || error instanceof Refusal) return null;
    throw error;
  }
}

function arrayOf(bytes, size) {
  const parts = decode(bytes);
  need(Array.isArray(parts) && parts.length === size);
  return parts;
}

function idsIn(joined) {
  need(isBytes(joined) && joined.length % 32 === 0);
  return Array.from({ length: joined.length / 32 }, (_, at) => joined.subarray(32 * at, 32 * at + 32));
}

// Ascending, each once; all below `end`.
function islandsIn(value, end) {
  need(Array.isArray(value) && value.length <= MAX_ISLANDS);
  for (const island of value) need(isUint(island) && island < end);
  return [...new Set(value)].sort((a, b) => (a < b ? -1 : 1));
}

const isIdOrEmpty = (value) => isBytes(value, 32) || isBytes(value, 0);

export const readIdRequest = (bytes) => orNull(() => {
  const [epoch, islands, after] = arrayOf(bytes, 3);
  need(isUint(epoch) && isIdOrEmpty(after));
  return { epoch, islands: islandsIn(islands, ISLANDS_END), after };
});

export const readIdResponse = (bytes, after) => orNull(() => {
  need(bytes.length <= MAX_RESPONSE_BYTES);
  const [status, joined, next] = arrayOf(bytes, 3);
  need(isUint(status) && isIdOrEmpty(next));
  const ids = idsIn(joined);
  need(ids.length <= MAX_IDS);
  if (status !== GIVEN) {
    need((status === BUSY || status === MALFORMED) && ids.length === 0 && next.length === 0);
    return { status, ids, next };
  }
  let last = after;
  for (const id of ids) {
    need(last.length === 0 || compareBytes(last, id) < 0);
    last = id;
  }
  if (next.length > 0) {
    need(after.length === 0 || compareBytes(after, next) < 0);
    need(ids.length === 0 || compareBytes(last, next) <= 0);
  }
  return { status, ids, next };
});

export const readFetchRequest = (bytes) => orNull(() => {
  const ids = idsIn(decode(bytes));
  need(ids.length >= 1 && ids.length <= MAX_FETCHED);
  return ids;
});

export const readFetchResponse = (bytes, asked) => orNull(() => {
  need(bytes.length <= MAX_RESPONSE_BYTES);
  const [status, messages] = arrayOf(bytes, 2);
  need(isUint(status) && Array.isArray(messages) && messages.every((message) => isBytes(message)));
  if (status === GIVEN) need(messages.length >= 1 && messages.length <= asked);
  else need((status === BUSY || status === MALFORMED) && messages.length === 0);
  return { status, messages };
});

// --- address records -----------------------------------------------------------------------------------------

function readWholeCertificate(bytes, manifest) {
  const envelope = readEnvelope(bytes, manifest.swarmId);
  need(envelope.kind === CERTIFICATE);
  const certificate = readCertificate(envelope.payload);
  need(verify(certificate.node, envelope.signed, envelope.signature) && isBound(certificate, manifest));
  return certificate;
}

// `demandKeys` names a rule; here any refusal drops the record, and reserved keys are no reason for one.
function readRecordFields(payload) {
  const fields = decode(payload);
  need(fields instanceof Map);
  const known = new Map([...fields].filter(([key]) => key < 2n || key > 23n));
  demandKeys(known, 2n, [], 2n, { keys: "R1.1.1", reserved: "R1.1.5" });
  const [made, addresses] = [fields.get(0n), fields.get(1n)];
  need(isUint(made) && Array.isArray(addresses) && addresses.length >= 1 && addresses.length <= 4);
  for (const address of addresses) need(typeof address === "string" && ADDRESS.test(address));
  return { made, addresses };
}

// What a record says in a second of Unix time, or null if it is dropped.
export const readRecord = (bytes, manifest, seconds) => orNull(() => {
  need(bytes.length <= MAX_RECORD_BYTES);
  const parts = arrayOf(bytes, 3);
  need(parts.every((part) => isBytes(part)) && parts[2].length === 64);
  const certificate = readWholeCertificate(parts[0], manifest);
  const { made, addresses } = readRecordFields(parts[1]);
  need(made - AHEAD_SECONDS <= seconds && seconds < made + RECORD_SECONDS);
  need(certificate.notBefore <= seconds && seconds < certificate.notAfter);
  const signed = concat(tag("address-record"), manifest.swarmId, parts[1]);
  need(verify(certificate.node, signed, parts[2]));
  return { node: certificate.node, account: certificate.account, made, addresses };
});

export const readAddressRequest = (bytes) => orNull(() => {
  const parts = decode(bytes);
  need(Array.isArray(parts) && (parts.length === 1 || parts.length === 2));
  need(parts.length === 1 || isBytes(parts[1]));
  return { islands: islandsIn(parts[0], UINTS_END), record: parts[1] ?? null };
});

// The records in an answer, none where it is malformed.
export function readAddressAnswer(bytes) {
  const records = orNull(() => {
    need(bytes.length <= MAX_ANSWER_BYTES);
    const found = decode(bytes);
    need(Array.isArray(found) && found.length <= MAX_RECORDS && found.every((record) => isBytes(record)));
    return found;
  });
  return records ?? [];
}
