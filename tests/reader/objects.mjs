// The objects of section 4, each read in the order of section 6.2.
import { MAX_VALUES, MAX_VALUES_OF_LISTS, compareBytes, decode, hex, isBytes, isUint, textOf } from "./encoding.mjs";
import { APPROVAL, CERTIFICATE, COMMITMENT, PROPOSAL, ROLLOUT, TALLY, demandKeys, readEnvelope } from "./envelope.mjs";
import { demand } from "./refusal.mjs";

const MAX_CERTIFICATE_SECONDS = 34_560_000n;
const MAX_COMPLETIONS = 16, MAX_COMPLETION_BYTES = 8192, MAX_GROUP_BYTES = 65536;
const MAX_ENTRIES = 1024, MAX_PAGES = 256, MAX_TALLIES = 64, MAX_BITS_BYTES = 8192;
const LAST_OF_32_BITS = (1n << 32n) - 1n;

function author(fields, rule) {
  demand(isBytes(fields.get(0n), 32), rule);
  demand(isBytes(fields.get(1n), 20), rule);
  return { node: fields.get(0n), account: fields.get(1n) };
}

function authorAndEpoch(fields, rule) {
  const object = author(fields, rule);
  demand(isUint(fields.get(2n)), rule);
  return { ...object, epoch: fields.get(2n) };
}

export function readCertificate(payload) {
  const fields = decode(payload, MAX_VALUES);
  demandKeys(fields, 5n, [], 5n, { keys: "R1.1.1", reserved: "R1.1.5" });
  const object = author(fields, "R1.1.2");
  const [notBefore, notAfter, accountSignature] = [2n, 3n, 4n].map((key) => fields.get(key));
  demand(isUint(notBefore), "R1.1.2");
  demand(isUint(notAfter), "R1.1.2");
  demand(notAfter > notBefore && notAfter - notBefore <= MAX_CERTIFICATE_SECONDS, "R1.1.3");
  demand(isBytes(accountSignature), "R1.1.2");
  demand(accountSignature.length === 65, "R1.1.4");
  return { ...object, notBefore, notAfter, accountSignature };
}

export function readRollout(payload) {
  const fields = decode(payload, MAX_VALUES);
  demandKeys(fields, 6n, [6n], 7n, { keys: "R1.2.1", reserved: "R1.2.9" });
  const object = authorAndEpoch(fields, "R1.2.2");
  const [slot, family, completions] = [3n, 4n, 5n].map((key) => fields.get(key));
  demand(isUint(slot), "R1.2.2");
  demand(slot <= LAST_OF_32_BITS, "R1.2.3");
  demand(isUint(family), "R1.2.2");
  demand(family < 256n, "R1.2.4");
  demand(Array.isArray(completions), "R1.2.2");
  demand(completions.length >= 1 && completions.length <= MAX_COMPLETIONS, "R1.2.5");
  let size = 0;
  for (const completion of completions) {
    demand(isBytes(completion), "R1.2.2");
    demand(completion.length <= MAX_COMPLETION_BYTES, "R1.2.6");
    size += completion.length;
  }
  demand(size <= MAX_GROUP_BYTES, "R1.2.7");
  const texts = completions.map(textOf);
  demand(!texts.includes(null), "R1.2.8");
  if (fields.has(6n)) demand(isBytes(fields.get(6n), 32), "R1.2.2");
  return { ...object, slot, family, completions: texts };
}

function demandAscending(keys, rule) {
  for (let at = 1; at < keys.length; at++) demand(compareBytes(keys[at - 1], keys[at]) < 0, rule);
}

// Entries, each of an account and `numbers` numbers, or the digests of pages.
function readEntries(list, numbers, rules) {
  demand(Array.isArray(list), rules.type);
  if (list.length > 0 && isBytes(list[0])) {
    demand(list.length <= MAX_PAGES, rules.pages);
    for (const digest of list) demand(isBytes(digest, 32), rules.type);
    return { entries: null, pages: list };
  }
  demand(list.length <= MAX_ENTRIES, rules.most);
  for (const entry of list) {
    demand(Array.isArray(entry), rules.type);
    demand(entry.length === numbers + 1, rules.items);
    demand(isBytes(entry[0], 20), rules.type);
    for (const number of entry.slice(1)) demand(isUint(number), rules.type);
  }
  demandAscending(list.map((entry) => entry[0]), rules.order);
  return { entries: list, pages: null };
}

function readRows(rows, families, numbers, rules) {
  demand(Array.isArray(rows), rules.type);
  demand(rows.length === families, rules.rows);
  for (const row of rows) {
    demand(Array.isArray(row), rules.type);
    demand(row.length === numbers, rules.items);
    for (const number of row) demand(isUint(number), rules.type);
  }
  return rows;
}

// `families`: how many the suite has where the manifest has ladders, else null.
export function readTally(payload, families) {
  const fields = decode(payload, MAX_VALUES_OF_LISTS);
  const required = families === null ? 5n : 6n;
  demandKeys(fields, required, [], 6n, { keys: "R1.3.1", reserved: "R1.3.9" });
  const object = authorAndEpoch(fields, "R1.3.2");
  const listRules = { type: "R1.3.2", most: "R1.3.3", items: "R1.3.4", order: "R1.3.5", pages: "R1.3.8" };
  const points = readEntries(fields.get(3n), 1, listRules);
  demand(isBytes(fields.get(4n), 32), "R1.3.2");
  if (families !== null) {
    readRows(fields.get(5n), families, 3, { type: "R1.3.2", rows: "R1.3.6", items: "R1.3.7" });
  }
  return { ...object, points, turn: 0n };
}

function readTurn(fields, typeRule, boundRule) {
  if (!fields.has(5n)) return 0n;
  const turn = fields.get(5n);
  demand(isUint(turn), typeRule);
  demand(turn >= 1n && turn <= LAST_OF_32_BITS, boundRule);
  return turn;
}

export function readProposal(payload, families) {
  const fields = decode(payload, MAX_VALUES_OF_LISTS);
  const optional = [5n];
  demandKeysOfProposal(fields, families, optional);
  const object = authorAndEpoch(fields, "R1.4.2");
  const tallies = fields.get(3n);
  demand(Array.isArray(tallies), "R1.4.2");
  demand(tallies.length >= 1 && tallies.length <= MAX_TALLIES, "R1.4.3");
  for (const id of tallies) demand(isBytes(id, 32), "R1.4.2");
  demandAscending(tallies, "R1.4.4");
  const listRules = { type: "R1.4.2", most: "R1.4.5", items: "R1.4.6", order: "R1.4.7", pages: "R1.4.11" };
  const shares = readEntries(fields.get(4n), 2, listRules);
  const turn = readTurn(fields, "R1.4.2", "R1.4.8");
  let record = null;
  if (families !== null) {
    record = readRows(fields.get(6n), families, 4, { type: "R1.4.2", rows: "R1.4.9", items: "R1.4.10" });
  }
  return { ...object, tallies, shares, turn, record };
}

function demandKeysOfProposal(fields, families, optional) {
  const rules = { keys: "R1.4.1", reserved: "R1.4.12" };
  if (families !== null) demand(fields instanceof Map && fields.has(6n), rules.keys);
  demandKeys(fields, 5n, families === null ? optional : [...optional, 6n], 7n, rules);
}

export function readApproval(payload) {
  const fields = decode(payload, MAX_VALUES);
  demandKeys(fields, 5n, [5n], 6n, { keys: "R1.5.1", reserved: "R1.5.5" });
  const object = authorAndEpoch(fields, "R1.5.2");
  demand(isBytes(fields.get(3n), 32), "R1.5.2");
  demand(isBytes(fields.get(4n)), "R1.5.2");
  demand(fields.get(4n).length === 65, "R1.5.3");
  return { ...object, turn: readTurn(fields, "R1.5.2", "R1.5.4") };
}

export function readCommitment(payload) {
  const fields = decode(payload, MAX_VALUES);
  demandKeys(fields, 5n, [], 5n, { keys: "R1.7.1", reserved: "R1.7.5" });
  const object = authorAndEpoch(fields, "R1.7.2");
  const slots = fields.get(3n);
  demand(isBytes(slots), "R1.7.2");
  demand(slots.length >= 1 && slots.length <= MAX_BITS_BYTES, "R1.7.3");
  demand(slots[slots.length - 1] !== 0, "R1.7.4");
  demand(isBytes(fields.get(4n), 32), "R1.7.2");
  return { ...object, slots: slotsOf(slots), root: fields.get(4n) };
}

// The slots whose bits are set, ascending.
function slotsOf(bits) {
  const slots = [];
  bits.forEach((byte, at) => {
    for (let bit = 0; bit < 8; bit++) if (byte & (1 << bit)) slots.push(BigInt(8 * at + bit));
  });
  return slots;
}

export function readEquivocation(envelope, swarm) {
  const fields = decode(envelope.payload, MAX_VALUES);
  demandKeys(fields, 2n, [], 2n, { keys: "R1.6.1", reserved: "R1.6.5" });
  for (const key of [0n, 1n]) demand(isBytes(fields.get(key)), "R1.6.2");
  const messages = [0n, 1n].map((key) => readEnvelope(fields.get(key), swarm));
  const rollouts = messages.map((message) => {
    demand(message.kind === ROLLOUT, "R2.5");
    return readRollout(message.payload);
  });
  demand(compareBytes(messages[0].contentId, messages[1].contentId) < 0, "R1.6.3");
  const [first, second] = rollouts;
  const same = first.epoch === second.epoch && first.slot === second.slot;
  demand(same && hex(first.account) === hex(second.account), "R1.6.4");
  demand(envelope.signature.every((byte) => byte === 0), "R7.2");
  return { account: first.account, epoch: first.epoch, slot: first.slot, messages, rollouts };
}

// The object in a message of section 4; `families` as for a tally.
export function readObject(envelope, swarm, families) {
  switch (envelope.kind) {
    case CERTIFICATE: return readCertificate(envelope.payload);
    case ROLLOUT: return readRollout(envelope.payload);
    case TALLY: return readTally(envelope.payload, families);
    case PROPOSAL: return readProposal(envelope.payload, families);
    case APPROVAL: return readApproval(envelope.payload);
    case COMMITMENT: return readCommitment(envelope.payload);
    default: return readEquivocation(envelope, swarm);
  }
}

