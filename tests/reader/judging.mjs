// Cases of tests/vectors/ and of the differential tests, judged by this reader.
import { unhex } from "./encoding.mjs";
import { islandCount } from "./islands.mjs";
import { parseJson } from "./json_text.mjs";
import { readManifestValue } from "./manifest.mjs";
import { Node } from "./node.mjs";
import { brokenRule, outcome } from "./refusal.mjs";

const MAX_BRACKETS_OF_CASES = 64;

// JSON as plain objects, integers as BigInt; `keep` names fields that stay as parseJson reads them.
export function readCases(text, keep = []) {
  return plain(parseJson(text, MAX_BRACKETS_OF_CASES), keep);
}

function plain(value, keep) {
  if (Array.isArray(value)) return value.map((item) => plain(item, keep));
  if (!(value instanceof Map)) return value;
  return Object.fromEntries([...value].map(([name, of]) => [name, keep.includes(name) ? of : plain(of, keep)]));
}

// Manifests by name.
export function readManifests(text) {
  const found = parseJson(text, MAX_BRACKETS_OF_CASES);
  return new Map([...found].map(([name, value]) => [name, readManifestValue(value)]));
}

// Hexadecimal, or a list of such pieces and pairs [byte in hexadecimal, times].
export function bytesOfCase(spelt) {
  if (typeof spelt === "string") return unhex(spelt);
  const pieces = spelt.map((piece) => (typeof piece === "string" ? piece : piece[0].repeat(Number(piece[1]))));
  return unhex(pieces.join(""));
}

function knowledgeOf(state, manifest) {
  const bonds = (state.bonds ?? []).map(([epoch, bonded]) => [
    epoch, new Map(Object.entries(bonded).map(([account, amount]) => [account, BigInt(amount)])),
  ]);
  const oneIn = manifest.audits?.oneIn ?? 1n;
  const islandCounts = [[0n, 1n]];
  for (const [epoch, paid] of state.paid ?? []) islandCounts.push([epoch, islandCount(manifest.islands, paid, oneIn)]);
  const announced = (state.terms?.announced ?? []).map(([epoch, text]) => [epoch, new TextEncoder().encode(text)]);
  const replacements = (state.replacements ?? []).map(([epoch, ...accounts]) => [epoch, ...accounts.map(unhex)]);
  const knownUntil = state.terms?.known_until ?? null;
  return { auditors: state.auditors.map(unhex), bonds, islandCounts, announced, replacements, knownUntil };
}

// What a new node with this state says to each of the messages: a list of {verdict, reason, rule}.
export function judge(manifest, { state, now_ms: now, messages }, certificates) {
  const knowledge = knowledgeOf(state, manifest);
  const node = new Node(manifest, { ...knowledge, bonds: [], islandCounts: manifest.islands?.count ? [] : [[0n, 1n]] });
  for (const bytes of certificates) expectAccepted(node, "certificates", bytes, now);
  node.knowledge = knowledge;
  for (const bytes of state.seen.map(bytesOfCase)) expectAccepted(node, "rollouts", bytes, now);
  return messages.map(({ topic, offset_ms: offset, bytes }) =>
    outcome(brokenRule(() => node.hear(topic, bytesOfCase(bytes), now + offset))),
  );
}

function expectAccepted(node, topic, bytes, now) {
  const rule = brokenRule(() => node.hear(topic, bytes, now));
  if (rule !== null) throw new Error(`a case begins with a message that breaks ${rule}`);
}
