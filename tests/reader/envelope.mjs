// Envelopes: sections 3 and 3.1, steps 1 to 4 of section 6.2.
import { MAX_VALUES, concat, decode, isBytes, isUint } from "./encoding.mjs";
import { H, tag } from "./hashes.mjs";
import { demand } from "./refusal.mjs";

export const CERTIFICATE = 1n, ROLLOUT = 2n, TALLY = 3n, PROPOSAL = 4n, APPROVAL = 5n, EQUIVOCATION = 6n;
export const COMMITMENT = 7n;
const LAST_RESERVED = 23n;
const MAX_MESSAGE_BYTES = 131072;
const ROLES = [null, "certificate", "rollout", "tally", "proposal", "approval", "equivocation", "commitment"];
const KINDS_OF_TOPIC = new Map([
  ["rollouts", [ROLLOUT]],
  ["certificates", [CERTIFICATE]],
  ["contributions", [TALLY, PROPOSAL, APPROVAL]],
  ["equivocations", [EQUIVOCATION]],
  ["commitments", [COMMITMENT]],
]);

// A map has the keys `from` 0 to `required - 1`, perhaps those of `optional`, and no others but the reserved ones.
export function demandKeys(value, required, optional, firstReserved, rules) {
  demand(value instanceof Map, rules.keys);
  for (let key = 0n; key < required; key++) demand(value.has(key), rules.keys);
  let reserved = false;
  for (const key of value.keys()) {
    if (key < required || optional.includes(key)) continue;
    demand(key >= firstReserved && key <= LAST_RESERVED, rules.keys);
    reserved = true;
  }
  demand(!reserved, rules.reserved);
}

// Steps 1 to 3. `swarm` is the swarm id, `lastKind` the highest kind that is not reserved here.
export function readEnvelope(bytes, swarm, lastKind = EQUIVOCATION) {
  demand(bytes.length <= MAX_MESSAGE_BYTES, "R0.2");
  const fields = decode(bytes, MAX_VALUES);
  demandKeys(fields, 5n, [], 5n, { keys: "R1.0.12", reserved: "R1.0.16" });
  const [version, kind, lineage, payload, signature] = [0n, 1n, 2n, 3n, 4n].map((key) => fields.get(key));
  demand(isUint(version), "R1.0.13");
  demand(version === 1n, "R2.1");
  demand(isUint(kind), "R1.0.13");
  demand(kind >= 1n && kind <= LAST_RESERVED, "R2.2");
  demand(isBytes(lineage, 32), "R1.0.13");
  demand(Buffer.compare(lineage, swarm) === 0, "R2.3");
  demand(isBytes(payload), "R1.0.13");
  demand(isBytes(signature), "R1.0.13");
  demand(signature.length === 64, "R1.0.14");
  demand(kind <= lastKind, "R2.6");
  const signed = concat(tag(ROLES[Number(kind)]), swarm, payload);
  return { kind, payload, signature, signed, contentId: H(signed) };
}

// Step 4 included: an envelope heard on a topic, whose name is without the number of an island.
export function readHeard(bytes, topic, manifest) {
  const lastKind = topic === "commitments" && manifest.audits ? COMMITMENT : EQUIVOCATION;
  const envelope = readEnvelope(bytes, manifest.swarmId, lastKind);
  demand(KINDS_OF_TOPIC.get(topic).includes(envelope.kind), "R2.4");
  return envelope;
}

