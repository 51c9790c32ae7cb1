// What a node says to a message: sections 6.2 and 6.3, from the envelope to forwarding.
import { isBound } from "./accounts.mjs";
import { hex } from "./encoding.mjs";
import { APPROVAL, CERTIFICATE, COMMITMENT, EQUIVOCATION, PROPOSAL, ROLLOUT, TALLY, readHeard } from "./envelope.mjs";
import { Clock, auditorsOf, beaconOf } from "./epochs.mjs";
import { verify } from "./ed25519.mjs";
import { homeOf } from "./islands.mjs";
import { hasBalancedWeights } from "./ladders.mjs";
import { readObject } from "./objects.mjs";
import { demand } from "./refusal.mjs";
import { Lineage, familiesInForce } from "./successors.mjs";

const MAX_NODES_OF_ACCOUNT = 4, MAX_PLACES = 2;
const RENEWAL_SECONDS = 3600n;
const AUDITOR_EPOCHS = 16n, NOTICE_EPOCHS = 8n;
const NO_BLOCK = new Uint8Array(0);

const isSigned = (envelope, object) => verify(object.node, envelope.signed, envelope.signature);

export class Node {
  // `knowledge`: what the chain said, as far as the node read it.
  //   auditors      accounts; replacements [epoch, leaving, entering]
  //   bonds         [epoch, Map of account in hexadecimal to what it has], null where none are known
  //   paid          [epoch, K]: numbers of islands that are known
  //   announced     [epoch, document]; knownUntil the last epoch whose terms are certain, null for all
  constructor(manifest, knowledge) {
    this.manifest = manifest;
    this.knowledge = knowledge;
    this.clock = new Clock(manifest);
    this.lineage = new Lineage(manifest, knowledge.announced);
    this.certificates = new Map(); // account -> Map of node -> certificate, the one accepted longest ago first
    this.contents = new Set();
    this.slots = new Map();
    this.places = new Map();
    this.proofs = new Set();
    this.heard = new Map([
      [CERTIFICATE, this.hearCertificate], [ROLLOUT, this.hearRollout], [COMMITMENT, this.hearCommitment],
      [TALLY, this.hearContribution], [PROPOSAL, this.hearContribution], [APPROVAL, this.hearContribution],
      [EQUIVOCATION, this.hearEquivocation],
    ]);
  }

  // Accepts a message or throws a Refusal. `topic` may end in the number of an island; `ms` is Unix time.
  hear(topic, bytes, ms) {
    const [name, island] = topic.split("/");
    const envelope = readHeard(bytes, name, this.manifest);
    const families = this.manifest.difficulty ? this.manifest.suite.families.length : null;
    const object = readObject(envelope, this.manifest.swarmId, families);
    this.heard.get(envelope.kind).call(this, envelope, object, { ms, island: BigInt(island ?? 0) });
  }

  // --- what it knows ---

  // The present epoch; before the first one has begun that one.
  present(ms) {
    const now = this.clock.epoch(ms);
    return now > 0n ? now : 0n;
  }

  isAuditor(account, epoch) {
    return this.auditors(epoch).some((auditor) => hex(auditor) === hex(account));
  }

  // Whether an account is an auditor of any epoch whose contributions are taken now, or that is announced.
  isAuditorAbout(account, now) {
    for (let epoch = now - AUDITOR_EPOCHS; epoch <= now + NOTICE_EPOCHS; epoch++) {
      if (epoch >= 0n && this.isAuditor(account, epoch)) return true;
    }
    return false;
  }

  auditors(epoch) {
    return auditorsOf(this.knowledge.auditors, this.knowledge.replacements, epoch);
  }

  hasStanding(account, epoch) {
    const { gate } = this.manifest;
    if (!gate || gate.kind === 0n) return true;
    const known = this.knowledge.bonds.filter(([of]) => of <= epoch);
    if (known.length === 0) return true;
    const [, newest] = known.reduce((best, next) => (next[0] >= best[0] ? next : best));
    return (newest.get(hex(account)) ?? 0n) > 0n;
  }

  islandCount(epoch) {
    const { islands } = this.manifest;
    if (!islands) return 1n;
    if (islands.count !== null) return islands.count;
    const known = this.knowledge.islandCounts.filter(([of]) => of <= epoch);
    return known.length === 0 ? null : known.reduce((best, next) => (next[0] > best[0] ? next : best))[1];
  }

  livesOn(account, epochs, island) {
    return epochs.some((epoch) => {
      if (epoch < 0n) return false;
      const count = this.islandCount(epoch);
      if (count === null) return false;
      const beacon = (drawn) => beaconOf(this.manifest, drawn, NO_BLOCK);
      return homeOf(this.manifest, account, epoch, count, beacon) === island;
    });
  }

  certificateOf(object) {
    return this.certificates.get(hex(object.account))?.get(hex(object.node));
  }

  demandCertificate(object, ms) {
    const certificate = this.certificateOf(object);
    demand(certificate !== undefined, "R5.1");
    demand(this.counts(certificate, ms), "R5.2");
  }

  counts(certificate, ms) {
    return certificate.notBefore * 1000n <= ms && ms < certificate.notAfter * 1000n;
  }

  demandTerms(epoch) {
    const { knownUntil } = this.knowledge;
    demand((knownUntil === null || epoch <= knownUntil) && this.lineage.isReadable(epoch), "R6.11");
    return this.lineage.termsOf(epoch);
  }

  takePlace(key) {
    const taken = this.places.get(key) ?? 0;
    demand(taken < MAX_PLACES, key.startsWith("commitment") ? "R4.7" : "R4.5");
    this.places.set(key, taken + 1);
  }

  // --- messages ---

  hearCertificate(envelope, certificate, { ms, island }) {
    const now = this.present(ms);
    const isAuditor = this.isAuditorAbout(certificate.account, now);
    demand(isAuditor || this.livesOn(certificate.account, [now - 1n, now, now + 1n], island), "R6.8");
    demand(isAuditor || this.hasStanding(certificate.account, now), "R5.6");
    demand(isSigned(envelope, certificate), "R7.1");
    demand(isBound(certificate, this.manifest), "R5.4");
    demand(this.counts(certificate, ms), "R5.5");
    const known = this.certificateOf(certificate);
    const isFresh = known && this.counts(known, ms) && known.notAfter > certificate.notAfter - RENEWAL_SECONDS;
    demand(!isFresh, "R4.2");
    this.learnCertificate(certificate);
  }

  learnCertificate(certificate) {
    const account = hex(certificate.account);
    const nodes = this.certificates.get(account) ?? new Map();
    this.certificates.set(account, nodes);
    nodes.delete(hex(certificate.node));
    if (nodes.size === MAX_NODES_OF_ACCOUNT) nodes.delete(nodes.keys().next().value);
    nodes.set(hex(certificate.node), certificate);
  }

  hearRollout(envelope, rollout, { ms, island }) {
    const { account, epoch, slot } = rollout;
    const id = hex(envelope.contentId);
    demand(this.clock.hasBegun(epoch, ms), "R3.1");
    demand(this.clock.takesRollouts(epoch, ms), "R3.2");
    demand(!this.contents.has(id), "R4.1");
    demand(this.livesOn(account, [epoch], island), "R6.7");
    demand(this.hasStanding(account, epoch), "R5.6");
    this.demandCertificate(rollout, ms);
    const terms = this.demandTerms(epoch);
    demand(slot < terms.slotsPerEpoch, "R6.1");
    demand(BigInt(rollout.completions.length) <= terms.maxCompletions, "R6.2");
    demand(familiesInForce(terms).includes(rollout.family), "R6.3");
    demand(isSigned(envelope, rollout), "R7.1");
    const place = `${epoch}/${hex(account)}/${slot}`;
    demand(!this.slots.has(place), "R6.4");
    this.slots.set(place, id);
    this.contents.add(id);
  }

  hearContribution(envelope, object, { ms }) {
    const { account, epoch, turn } = object;
    const id = hex(envelope.contentId);
    demand(this.clock.isOver(epoch, ms), "R3.3");
    demand(this.clock.takesContributions(epoch, ms), "R3.5");
    demand(!this.contents.has(id), "R4.3");
    this.demandCertificate(object, ms);
    demand(this.isAuditor(account, epoch), "R5.3");
    demand(turn === 0n || turn < this.clock.turns(), "R6.5");
    if (envelope.kind === PROPOSAL) {
      const auditors = this.auditors(epoch);
      const inTurn = auditors[Number((epoch + turn) % BigInt(auditors.length))];
      demand(hex(inTurn) === hex(account), "R6.6");
      if (object.record !== null) demand(hasBalancedWeights(this.manifest.difficulty, object.record), "R6.10");
    }
    demand(isSigned(envelope, object), "R7.1");
    this.takePlace(`${envelope.kind}/${epoch}/${hex(account)}/${turn}`);
    this.contents.add(id);
  }

  hearCommitment(envelope, commitment, { ms, island }) {
    const { account, epoch, slots } = commitment;
    const id = hex(envelope.contentId);
    demand(this.clock.isOver(epoch, ms + 500n), "R3.6");
    demand(this.clock.takesCommitments(epoch, ms), "R3.7");
    demand(!this.contents.has(id), "R4.6");
    demand(this.livesOn(account, [epoch], island), "R6.7");
    demand(this.hasStanding(account, epoch), "R5.6");
    this.demandCertificate(commitment, ms);
    const terms = this.demandTerms(epoch);
    demand(slots[slots.length - 1] < terms.slotsPerEpoch, "R6.1");
    demand(isSigned(envelope, commitment), "R7.1");
    this.takePlace(`commitment/${epoch}/${hex(account)}`);
    this.contents.add(id);
  }

  hearEquivocation(_, proof, { ms, island }) {
    const { account, epoch, slot } = proof;
    const now = this.present(ms);
    const key = `${epoch}/${hex(account)}`;
    demand(this.clock.hasBegun(epoch, ms), "R3.1");
    demand(this.clock.takesProofs(epoch, ms), "R3.4");
    demand(!this.proofs.has(key), "R4.4");
    demand(this.livesOn(account, [now - 1n, now, now + 1n, epoch], island), "R6.9");
    for (const rollout of proof.rollouts) this.demandCertificate(rollout, ms);
    const terms = this.demandTerms(epoch);
    demand(slot < terms.slotsPerEpoch, "R6.1");
    proof.messages.forEach((message, at) => demand(isSigned(message, proof.rollouts[at]), "R7.3"));
    this.proofs.add(key);
  }
}
