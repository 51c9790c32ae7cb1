// Names of the transport: section 9.
import { concat, hex } from "./encoding.mjs";
import { H, ascii } from "./hashes.mjs";

const ON_AN_ISLAND = ["rollouts", "certificates", "equivocations", "commitments"];

export function topicsOf(swarmId, island) {
  const end = island === 0n ? "" : `/${island}`;
  const topics = ON_AN_ISLAND.map((kind) => [kind, `sapo/1/${hex(swarmId)}/${kind}${end}`]);
  return { ...Object.fromEntries(topics), contributions: `sapo/1/${hex(swarmId)}/contributions` };
}

export function protocolsOf(swarmId, kinds) {
  return Object.fromEntries(kinds.map((kind) => [kind, `/sapo/1/${hex(swarmId)}/${kind}`]));
}

export function messageId(topic, data) {
  return H(concat(ascii(topic), Uint8Array.of(0), data));
}
