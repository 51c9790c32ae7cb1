// What this reader makes of each kind of vector, in the form in which tests/vectors/ writes it.
import { digestOf, separatorOf, signerOf } from "./accounts.mjs";
import { auditPoints, bitsOf, drawOf, drawnPlaces, isDrawn } from "./audits.mjs";
import { decode, hex, unhex } from "./encoding.mjs";
import { verify } from "./ed25519.mjs";
import { readEnvelope, COMMITMENT } from "./envelope.mjs";
import { Clock, auditorsOf, beaconOf, lotOf, seedOf } from "./epochs.mjs";
import { drawnIn, homeOf, islandCount, paidAccounts, visitOf } from "./islands.mjs";
import { bytesOfCase, judge } from "./judging.mjs";
import { allowed, firstRecord, mixOf, nextRecord, outcomesOf, pointsOf } from "./ladders.mjs";
import { attestationCounts } from "./manifest.mjs";
import { messageId, protocolsOf, topicsOf } from "./names.mjs";
import { readProposal } from "./objects.mjs";
import { brokenRule, outcome } from "./refusal.mjs";
import * as requests from "./requests.mjs";
import { approvalDigest, capOf, epochRoot, pageDigest, pagesOf, rootDigest, settle } from "./settlement.mjs";
import { Lineage, documentDigest, familiesInForce } from "./successors.mjs";
import { contentTree, placeOf, pointsRoot, valueTree } from "./trees.mjs";

const NO_BLOCK = new Uint8Array(0);
const hexes = (list) => list.map(hex);
const decimals = (list) => list.map(String);
const pairsOf = (entries) => entries.map(([account, value]) => [unhex(account), BigInt(value)]);
const numbersOf = (tally) => new Map(Object.entries(tally).map(([account, value]) => [account, BigInt(value)]));

export const ADMISSION = {
  cases(vector, { manifests, lists }) {
    const genuine = lists.certificates[vector.manifest];
    const certificates = vector.state.certificates.map((name) => bytesOfCase(genuine[name]));
    const said = judge(manifests.get(vector.manifest), vector, certificates);
    return { messages: vector.messages.map((message, at) => ({ ...message, ...said[at] })) };
  },
};

// --- derivations ---------------------------------------------------------------------------------------------

function rootInWords(root) {
  return {
    epoch: String(root.epoch),
    base_root: hex(root.baseRoot),
    contribution_root: hex(root.contributionRoot),
    cumulative_root: hex(root.cumulativeRoot),
    total: String(root.total),
    archive_digest: hex(root.archiveDigest),
  };
}

function checkSettlement(vector, { manifests }) {
  const previous = numbersOf(vector.previous);
  const points = BigInt(vector.points_per_epoch);
  const shares = settle(vector.tallies.map(numbersOf), previous, points, BigInt(vector.epoch_budget));
  const root = epochRoot(3n, shares, unhex(vector.proposal_id));
  return {
    shares: shares.map(([account, ...numbers]) => [hex(account), ...decimals(numbers)]),
    epoch_root: rootInWords(root),
    digest: hex(rootDigest(root, manifests.get("chained"))),
  };
}

function checkProposalRoot(vector, { manifests }) {
  const manifest = manifests.get(vector.manifest);
  const envelope = readEnvelope(unhex(vector.envelope), manifest.swarmId);
  const proposal = readProposal(envelope.payload, manifest.difficulty ? manifest.suite.families.length : null);
  const root = epochRoot(proposal.epoch, proposal.shares.entries, envelope.contentId);
  return {
    epoch_root: rootInWords(root),
    digest: hex(rootDigest(root, manifest)),
    approval_digest: hex(approvalDigest(proposal.turn, root, manifest.chainId, manifest.ledger)),
  };
}

const NUMBERS = new Set(["not_before", "not_after", "epoch", "total", "turn", "number", "activation_epoch"]);
const NAMES = { SuccessionNotice: "Succession", SuccessionWithdrawal: "Withdrawal" };

function fieldsOf(message) {
  return Object.entries(message).map(([name, value]) => (NUMBERS.has(name) ? BigInt(value) : unhex(value)));
}

function checkTypedData(vector) {
  const { type, chain_id: chainId, message } = vector;
  const contract = unhex(vector.contract);
  let digest;
  if (type === "EpochApproval") {
    const [epoch, baseRoot, contributionRoot, cumulativeRoot, total, archiveDigest] = fieldsOf(message.root);
    const root = { epoch, baseRoot, contributionRoot, cumulativeRoot, total, archiveDigest };
    digest = approvalDigest(BigInt(message.turn), root, chainId, contract);
  } else digest = digestOf(NAMES[type] ?? type, fieldsOf(message), chainId, contract);
  return {
    separator: hex(separatorOf(chainId, contract)),
    digest: hex(digest),
    signer: hex(signerOf(digest, unhex(vector.signature))),
  };
}

function checkIslands(vector, { manifests }) {
  const manifest = manifests.get(vector.manifest);
  const [account, node] = [unhex(vector.account), unhex(vector.node)];
  const beacon = (epoch) => beaconOf(manifest, epoch, NO_BLOCK);
  const count = manifest.islands.count;
  const home = homeOf(manifest, account, vector.epoch, count, beacon);
  return {
    home_drawn: drawnIn(manifest, account, vector.epoch),
    visit_drawn: drawnIn(manifest, node, vector.epoch),
    home,
    visit: visitOf(manifest, node, home, vector.epoch, count, beacon),
  };
}

function checkIslandCount({ islands, paid, one_in: oneIn }) {
  const { most_accounts: mostAccounts, least_accounts: leastAccounts, most_islands: mostIslands } = islands;
  return { count: islands.count ?? islandCount({ mostAccounts, leastAccounts, mostIslands }, paid, oneIn) };
}

function checkPointsTree(vector) {
  const entries = pairsOf(vector.entries);
  const places = vector.places.map(({ account }) => {
    const { holder, value, proof } = placeOf(entries, unhex(account));
    return { account, holder: hex(holder), value: String(value), proof: hexes(proof) };
  });
  return { root: hex(pointsRoot(entries)), places };
}

function checkPages(vector) {
  const pages = vector.pages.map(unhex);
  const rows = pages.flatMap((page) => decode(page, 8192));
  return {
    pages: hexes(pagesOf(rows)),
    digests: pages.map((page) => hex(pageDigest(page))),
    rows: BigInt(rows.length),
  };
}

function checkSuccessors(vector, { manifests }) {
  const announced = vector.announced.map(({ epoch, document }) => [epoch, new TextEncoder().encode(document)]);
  const lineage = new Lineage(manifests.get(vector.manifest), announced);
  return {
    announced: vector.announced.map((announcement, at) => ({
      ...announcement,
      digest: hex(documentDigest(announced[at][1])),
      counts: lineage.counted[at],
    })),
    epochs: vector.epochs.map(({ epoch }) => {
      const terms = lineage.termsOf(epoch);
      const families = familiesInForce(terms);
      return { epoch, slots_per_epoch: terms.slotsPerEpoch, max_completions: terms.maxCompletions, families };
    }),
  };
}

function turnAt(clock, ageMs) {
  return clock.turnsBefore(ageMs + 1n) - 1n;
}

function checkTurns(clock, ages) {
  return { turns: clock.turns(), ages: ages.map(([age]) => [age, turnAt(clock, age * 1000n)]) };
}

function checkAttestation(vector, { manifests }) {
  const seconds = (name) => BigInt(vector[`${name}_seconds`]);
  const attestation = {
    schema: unhex(vector.schema),
    attester: unhex(vector.attester),
    time: seconds("attested"),
    expiration: seconds("expiration"),
    revocation: seconds("revocation"),
  };
  const { gate } = manifests.get("eas gate");
  return { counts: attestationCounts(gate, attestation, seconds("since"), seconds("block")) };
}

const DERIVATIONS = {
  swarms(vector, { manifests }) {
    const { cbor, swarmId } = manifests.get(vector.manifest);
    return { cbor: hex(cbor), swarm_id: hex(swarmId) };
  },
  contents(vector) {
    const bytes = unhex(vector.envelope);
    const swarm = decode(bytes).get(2n);
    return { content_id: hex(readEnvelope(bytes, swarm, COMMITMENT).contentId) };
  },
  epochs(vector, { manifests }) {
    const clock = new Clock(manifests.get(vector.manifest));
    const epoch = clock.epoch(vector.unix_seconds * 1000n);
    return { epoch, start_seconds: clock.start(epoch) / 1000n };
  },
  beacons(vector, { manifests }) {
    const manifest = manifests.get(vector.manifest);
    const beacon = beaconOf(manifest, vector.epoch, unhex(vector.block_hash));
    const seeds = vector.seeds.map((seed) => ({
      ...seed,
      seed: seedOf(manifest, beacon, unhex(seed.account), seed.family, seed.slot),
    }));
    return { beacon: hex(beacon), seeds };
  },
  merkle(vector) {
    const { leaves, root, paths } = valueTree(pairsOf(vector.entries));
    return { leaves: hexes(leaves), root: hex(root), proofs: paths.map(hexes) };
  },
  auditors(vector) {
    const founders = vector.founders.map(unhex);
    const replacements = vector.replacements.map(([epoch, ...accounts]) => [epoch, ...accounts.map(unhex)]);
    return { epochs: vector.epochs.map(([epoch]) => [epoch, hexes(auditorsOf(founders, replacements, epoch))]) };
  },
  attestations: checkAttestation,
  paid_accounts: ({ final, epoch }) => ({ paid: paidAccounts(final, epoch) }),
  caps: (vector) => ({
    cap: String(capOf(...["points_per_epoch", "unit", "bonded"].map((name) => BigInt(vector[name])))),
  }),
  turns: ({ epoch_seconds: epochSeconds, ages }) => checkTurns(new Clock({ genesisSeconds: 0n, epochSeconds }), ages),
  islands: checkIslands,
  island_counts: checkIslandCount,
  trees_of_points: checkPointsTree,
  pages: checkPages,
  settlements: checkSettlement,
  typed_data: checkTypedData,
  successors: checkSuccessors,
  names({ manifest, island, protocols }, { manifests }) {
    const { swarmId } = manifests.get(manifest);
    return { topics: topicsOf(swarmId, island), protocols: protocolsOf(swarmId, Object.keys(protocols)) };
  },
  message_ids: ({ topic, data }) => ({ id: hex(messageId(topic, unhex(data))) }),
  proposal_roots: checkProposalRoot,
};

// --- difficulty and audits -----------------------------------------------------------------------------------

const rowsOf = (rows) => rows.map((row) => row.map(BigInt));

function checkRecords({ difficulty, families, epochs }) {
  let record = firstRecord(difficulty, Number(families));
  const start = record.map(decimals);
  const found = epochs.map((epoch) => {
    record = nextRecord(difficulty, record, epoch.tallies.map(rowsOf));
    const mix = mixOf(difficulty, record);
    return {
      tallies: epoch.tallies,
      record: record.map(decimals),
      mix,
      allowed: epoch.allowed.map(([lot]) => [lot, allowed(difficulty, mix, lot)]),
      points: epoch.points.map(([groups]) => [groups, pointsOf(record, groups)]),
    };
  });
  return { start, epochs: found };
}

function checkDraw(vector, { manifests }) {
  const manifest = manifests.get(vector.manifest);
  const draw = drawOf(manifest, vector.epoch, unhex(vector.block_hash));
  const accounts = vector.accounts.map(({ account, slots }) => {
    const name = unhex(account);
    const places = drawnPlaces(draw, name, vector.samples, BigInt(slots.length));
    return {
      account,
      is_drawn: isDrawn(draw, name, vector.one_in),
      slots,
      bits: hex(bitsOf(slots.map(Number))),
      drawn: places.map((place) => slots[Number(place)]).sort((a, b) => (a < b ? -1 : 1)),
    };
  });
  return { block_from_ms: new Clock(manifest).drawsFrom(vector.epoch), draw: hex(draw), accounts };
}

const DIFFICULTY = {
  records: checkRecords,
  middles: ({ accounts }) => ({
    outcomes: outcomesOf(accounts.map(([account, groups]) => [unhex(account), groups])).map(BigInt),
  }),
  lots: ({ manifest, beacon, account, slot }, { manifests }) => ({
    lot: lotOf(manifests.get(manifest), unhex(beacon), unhex(account), slot),
  }),
};

const AUDITS = {
  trees({ contents }) {
    const { root, paths } = contentTree(contents.map(unhex));
    return { root: hex(root), paths: paths.map(hexes) };
  },
  draws: checkDraw,
  points: ({ one_in: oneIn, ...numbers }) => ({ points: auditPoints({ ...numbers, oneIn }) }),
  turns: ({ manifest, ages }, { manifests }) => checkTurns(new Clock(manifests.get(manifest)), ages),
};

// --- what else ------------------------------------------------------------------------------------------------

function checkResponse(vector) {
  let messages = null;
  const rule = brokenRule(() => {
    messages = BigInt(requests.readResponse(bytesOfCase(vector.bytes)).length);
  });
  return { messages, rule, reason: outcome(rule).reason };
}

const ADDRESS_RECORDS = {
  records(vector, { manifests }) {
    const record = requests.readRecord(bytesOfCase(vector.bytes), manifests.get("plain"), vector.unix_seconds);
    return { says: record && { ...record, node: hex(record.node), account: hex(record.account) } };
  },
  requests(vector) {
    const request = requests.readAddressRequest(bytesOfCase(vector.bytes));
    return { islands: request && request.islands, record: request?.record ? hex(request.record) : null };
  },
  answers: (vector) => ({ records: BigInt(requests.readAddressAnswer(bytesOfCase(vector.bytes)).length) }),
};

const CATCH_UP = {
  id_requests(vector) {
    const says = requests.readIdRequest(bytesOfCase(vector.bytes));
    return { says: says && { ...says, after: hex(says.after) } };
  },
  id_responses(vector) {
    const says = requests.readIdResponse(bytesOfCase(vector.bytes), unhex(vector.after));
    return { says: says && { ...says, ids: hexes(says.ids), next: hex(says.next) } };
  },
  fetch_requests(vector) {
    const ids = requests.readFetchRequest(bytesOfCase(vector.bytes));
    return { ids: ids && hexes(ids) };
  },
  fetch_responses(vector) {
    const says = requests.readFetchResponse(bytesOfCase(vector.bytes), Number(vector.asked));
    return { says: says && { ...says, messages: hexes(says.messages) } };
  },
};

export const CHECKS = {
  derivations: DERIVATIONS,
  difficulty: DIFFICULTY,
  audits: AUDITS,
  responses: { responses: checkResponse },
  address_records: ADDRESS_RECORDS,
  catch_up: CATCH_UP,
  ed25519: {
    signatures: (vector) => ({
      valid: verify(unhex(vector.public_key), unhex(vector.message), unhex(vector.signature)),
    }),
  },
};

