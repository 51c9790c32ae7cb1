// Answers questions, one line of JSON each, on standard output: what the differential tests talk to.
// A question is {"ask": name, ...}; integers of any size are plain JSON numbers in both directions.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { signerOf } from "./accounts.mjs";
import { CHECKS } from "./checks.mjs";
import { decode, encode, hex, unhex } from "./encoding.mjs";
import { verify } from "./ed25519.mjs";
import { Clock } from "./epochs.mjs";
import { judge, readCases, readManifests } from "./judging.mjs";
import { BadDocument, spell } from "./json_text.mjs";
import { readManifest } from "./manifest.mjs";
import { brokenRule } from "./refusal.mjs";
import { Lineage, familiesInForce } from "./successors.mjs";
import { hasUnseen, mayEarn } from "./texts.mjs";

const MANIFESTS = readManifests(readFileSync(new URL("../vectors/manifests.json", import.meta.url), "utf8"));

function askManifest({ text }) {
  try {
    const { cbor } = readManifest(text);
    return hex(cbor);
  } catch (error) {
    if (error instanceof BadDocument) return null;
    throw error;
  }
}

function askSuccessors({ manifest, announced, epochs }) {
  const documents = announced.map(([epoch, document]) => [epoch, unhex(document)]);
  const lineage = new Lineage(MANIFESTS.get(manifest), documents);
  const terms = epochs.map((epoch) => {
    const found = lineage.termsOf(epoch);
    return [found.slotsPerEpoch, found.maxCompletions, familiesInForce(found)];
  });
  return { counted: lineage.counted, unreadable_from: lineage.unreadableFrom, terms };
}

// Which of the times in section 5 an epoch has at a moment, in a swarm without a chain.
function askMoments({ genesis_seconds: genesisSeconds, epoch_seconds: epochSeconds, epoch, ms }) {
  const clock = new Clock({ genesisSeconds, epochSeconds, finalitySeconds: 0n });
  return [
    clock.hasBegun(epoch, ms), clock.takesRollouts(epoch, ms), clock.isOver(epoch, ms),
    clock.takesContributions(epoch, ms), clock.isOver(epoch, ms + 500n), clock.takesCommitments(epoch, ms),
  ];
}

const ANSWERS = {
  admission: (question) => {
    const said = judge(MANIFESTS.get(question.manifest), question, question.certificates.map(unhex));
    return said.map(({ verdict, reason, rule }) => [verdict, reason, rule]);
  },
  decode: ({ bytes, most }) => {
    let value;
    const rule = brokenRule(() => {
      value = decode(unhex(bytes), Number(most));
    });
    return rule ?? hex(encode(value));
  },
  verify: ({ key, message, signature }) => verify(unhex(key), unhex(message), unhex(signature)),
  signer: ({ digest, signature }) => {
    const account = signerOf(unhex(digest), unhex(signature));
    return account && hex(account);
  },
  moments: askMoments,
  manifest: askManifest,
  successors: askSuccessors,
  text: ({ bytes, rule, most }) => mayEarn(unhex(bytes), rule, Number(most)),
  unseen: ({ text }) => hasUnseen(text),
  check: ({ file, list, vector }) => CHECKS[file][list](vector, { manifests: MANIFESTS }),
};

// Plain objects and numbers as spell() knows them.
function spellable(value) {
  if (Array.isArray(value)) return value.map(spellable);
  if (value === null || typeof value !== "object") return value;
  return new Map(Object.entries(value).map(([name, of]) => [name, spellable(of)]));
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const question = readCases(line);
  process.stdout.write(`${spell(spellable(ANSWERS[question.ask](question)))}\n`);
}
