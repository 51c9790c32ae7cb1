// The manifest and its swarm id: section 2.
import { bytesOf, compareBytes, encode } from "./encoding.mjs";
import { bytes, list, objectOf, powerOfTwo, text, uint } from "./fields.mjs";
import { H, tag } from "./hashes.mjs";
import { check, parseJson, spell } from "./json_text.mjs";

const NO_BYTES = new Uint8Array(0);
const MAX_UNIT = (1n << 96n) - 1n;
const LAST_OF_32_BITS = (1n << 32n) - 1n;
const MAX_ISLANDS = 65_536n, MAX_PERIOD_EPOCHS = 65_536n, MAX_ONE_IN = 65_536n, MAX_SLOTS_OF_AUDITS = 65_536n;
const REQUIRED = ["name", "genesis_seconds", "epoch_seconds", "suite", "limits"];
const OPTIONAL = [
  "version", "bootstrap", "chain_id", "registry", "ledger", "finality_seconds", "gate", "difficulty", "islands", "audits",
];
const FAMILY = ["name", "level", "config", "scorer", "prompt", "answer", "max_completion_bytes"];

function mapOf(...values) {
  return new Map(values.map((value, key) => [BigInt(key), value]));
}

function readFamily(value) {
  const fields = objectOf(value, FAMILY);
  check(fields.get("config") instanceof Map, "a config is an object");
  const answer = text(fields.get("answer"));
  check(answer === "plain" || answer === "tag", "an answer is plain or tag");
  const prompt = text(fields.get("prompt"));
  check(prompt.includes("{question}"), "a prompt holds {question}");
  const most = uint(fields.get("max_completion_bytes"), 1n, 8192n);
  const [name, level, scorer] = ["name", "level", "scorer"].map((field) => text(fields.get(field)));
  return [name, level, spell(fields.get("config")), scorer, prompt, answer, most];
}

export function readSuite(value) {
  const fields = objectOf(value, ["reasoning_gym", "families", "sample_digest"]);
  return {
    reasoningGym: text(fields.get("reasoning_gym")),
    families: list(fields.get("families"), 1, 256).map(readFamily),
    sampleDigest: bytes(fields.get("sample_digest"), 32),
  };
}

function readUnit(value) {
  check(/^[1-9]\d*$/.test(text(value)), "a unit is decimal text without leading zeros");
  const unit = BigInt(value);
  check(unit <= MAX_UNIT, "a unit is below 2^96");
  return unit;
}

function readGate(value, manifest) {
  const kind = objectOf(value, ["kind"], [...value.keys()]).get("kind");
  if (kind === "open") {
    objectOf(value, ["kind"]);
    return { kind: 0n, cbor: mapOf(0n) };
  }
  check(manifest.chainId !== 0n, "a gate of this kind needs a chain");
  if (kind === "bond") {
    objectOf(value, ["kind", "contract", "unit", "exit_seconds"]);
    const [contract, unit] = [bytes(value.get("contract"), 20), readUnit(value.get("unit"))];
    const exit = uint(value.get("exit_seconds"), manifest.finalitySeconds + 14n * manifest.epochSeconds);
    const unitBytes = bytesOf(unit, Math.ceil(unit.toString(16).length / 2));
    return { kind: 1n, unit, cbor: mapOf(1n, contract, unitBytes, exit) };
  }
  check(kind === "eas", "no kind of gate");
  objectOf(value, ["kind", "contract", "schema", "attesters", "after_block"]);
  const attesters = list(value.get("attesters"), 1, 16).map((attester) => bytes(attester, 20));
  attesters.slice(1).forEach((attester, at) => check(compareBytes(attesters[at], attester) < 0, "attesters ascend"));
  const [contract, schema] = [bytes(value.get("contract"), 20), bytes(value.get("schema"), 32)];
  return { kind: 2n, schema, attesters, cbor: mapOf(2n, contract, schema, attesters, uint(value.get("after_block"))) };
}

// Whether an attestation of its recipient counts after a block. `since` is the time of the block `after_block`, `at`
// that of the block, both in Unix seconds.
export function attestationCounts(gate, { schema, attester, time, expiration, revocation }, since, at) {
  const isOver = (end) => end !== 0n && end <= at;
  const isKnown = gate.attesters.some((known) => compareBytes(known, attester) === 0);
  if (compareBytes(schema, gate.schema) !== 0 || !isKnown) return false;
  return since < time && time <= at && !isOver(expiration) && !isOver(revocation);
}

export function readDifficulty(value, families, mostCompletions) {
  const fields = objectOf(value, ["ladders", "step", "floor", "groups", "completions"]);
  const seen = new Set();
  const ladders = list(fields.get("ladders"), 1, Infinity).map((ladder) =>
    list(ladder, 2, Infinity).map((index) => {
      uint(index, 0n, families - 1n);
      check(!seen.has(index), "an index is in the ladders once");
      seen.add(index);
      return index;
    }),
  );
  const step = uint(fields.get("step"), 1n, 1000n);
  const floor = uint(fields.get("floor"), 0n, 1000n);
  const groups = uint(fields.get("groups"), 1n);
  const completions = uint(fields.get("completions"), 1n, mostCompletions < 16n ? mostCompletions : 16n);
  return { ladders, step, floor, groups, completions, cbor: mapOf(ladders, step, floor, groups, completions) };
}

export function readIslands(value, hasChain) {
  const fields = objectOf(value, ["most_accounts", "least_accounts", "period_epochs", "most_islands"], ["count"]);
  const mostAccounts = uint(fields.get("most_accounts"), 0n, LAST_OF_32_BITS);
  const leastAccounts = uint(fields.get("least_accounts"), 1n, mostAccounts / 2n);
  const periodEpochs = uint(fields.get("period_epochs"), 1n, MAX_PERIOD_EPOCHS);
  const mostIslands = powerOfTwo(fields.get("most_islands"), MAX_ISLANDS);
  const cbor = mapOf(mostAccounts, leastAccounts, periodEpochs, mostIslands);
  const given = fields.get("count") ?? null;
  check(given !== null || hasChain, "without a chain islands need a count");
  const count = given === null ? null : powerOfTwo(given, mostIslands);
  if (count !== null) cbor.set(4n, count);
  return { mostAccounts, leastAccounts, periodEpochs, mostIslands, count, cbor };
}

function readAudits(value, manifest) {
  const fields = objectOf(value, ["samples", "one_in"]);
  const samples = uint(fields.get("samples"), 1n, 8n);
  const oneIn = powerOfTwo(fields.get("one_in"), MAX_ONE_IN);
  check(manifest.chainId !== 0n, "audits need a chain");
  check(manifest.difficulty === null, "audits and difficulty exclude each other");
  check(manifest.slotsPerEpoch <= MAX_SLOTS_OF_AUDITS, "too many slots for audits");
  const length = manifest.epochSeconds * 10n;
  const grace = length / 10n < 300n ? length / 10n : 300n; // in tenths of a second
  check(manifest.finalitySeconds * 10n <= length - 5n * grace, "an epoch is audited before the next one ends");
  return { samples, oneIn, cbor: mapOf(samples, oneIn) };
}

function readLimits(value) {
  const fields = objectOf(value, ["slots_per_epoch", "max_completions", "points_per_epoch"]);
  return {
    slotsPerEpoch: uint(fields.get("slots_per_epoch"), 1n),
    maxCompletions: uint(fields.get("max_completions"), 1n, 16n),
    pointsPerEpoch: uint(fields.get("points_per_epoch")),
  };
}

// Terms that came with version 2, each null where it is not there.
function readTerms(fields, manifest) {
  const terms = ["gate", "difficulty", "islands", "audits"].map((name) => fields.get(name) ?? null);
  check(manifest.version === 2n || terms.every((term) => term === null), "a manifest of version 1 has none of these");
  const [gate, difficulty, islands, audits] = terms;
  check(gate === null || gate instanceof Map, "no object");
  manifest.gate = gate && readGate(gate, manifest);
  const families = BigInt(manifest.suite.families.length);
  manifest.difficulty = difficulty && readDifficulty(difficulty, families, manifest.maxCompletions);
  manifest.islands = islands && readIslands(islands, manifest.chainId !== 0n);
  manifest.audits = audits && readAudits(audits, manifest);
}

export function readManifest(json) {
  return readManifestValue(parseJson(json));
}

// The same of a document that parseJson has read.
export function readManifestValue(value) {
  const fields = objectOf(value, REQUIRED, OPTIONAL);
  text(fields.get("name"));
  if (fields.has("bootstrap")) list(fields.get("bootstrap"), 0, Infinity).forEach(text);
  const chainId = fields.has("chain_id") ? uint(fields.get("chain_id")) : 0n;
  const addresses = ["registry", "ledger"].map((name) => {
    const value = fields.get(name) ?? null;
    check((value !== null) === (chainId !== 0n), "a chain and its contracts come together");
    return value === null ? NO_BYTES : bytes(value, 20);
  });
  const manifest = {
    version: fields.has("version") ? uint(fields.get("version"), 1n, 2n) : 1n,
    chainId,
    registry: addresses[0],
    ledger: addresses[1],
    finalitySeconds: fields.has("finality_seconds") ? uint(fields.get("finality_seconds")) : 0n,
    genesisSeconds: uint(fields.get("genesis_seconds")),
    epochSeconds: uint(fields.get("epoch_seconds"), 1n),
    suite: readSuite(fields.get("suite")),
    ...readLimits(fields.get("limits")),
  };
  readTerms(fields, manifest);
  manifest.cbor = encode(cborOf(manifest));
  manifest.swarmId = H(tag("manifest"), manifest.cbor);
  return manifest;
}

function cborOf(manifest) {
  const { suite } = manifest;
  const cbor = mapOf(
    manifest.version, manifest.chainId, manifest.registry, manifest.ledger, manifest.finalitySeconds,
    manifest.genesisSeconds, manifest.epochSeconds, mapOf(suite.reasoningGym, suite.families, suite.sampleDigest),
    mapOf(manifest.slotsPerEpoch, manifest.maxCompletions, manifest.pointsPerEpoch),
  );
  [manifest.gate, manifest.difficulty, manifest.islands, manifest.audits].forEach((term, at) => {
    if (term !== null) cbor.set(BigInt(9 + at), term.cbor);
  });
  return cbor;
}

