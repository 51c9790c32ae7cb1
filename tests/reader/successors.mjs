// Successors and the terms of an epoch: section 2.1.
import { hex, textOf } from "./encoding.mjs";
import { bytes, list, objectOf, uint } from "./fields.mjs";
import { H, tag } from "./hashes.mjs";
import { BadDocument, check, parseJson } from "./json_text.mjs";
import { readSuite } from "./manifest.mjs";

const MAX_DOCUMENT_BYTES = 262_144;

export function documentDigest(document) {
  return H(tag("successor"), document);
}

// The terms in a document, or null where this version cannot read it: what it does not know, a later one may.
function readDocument(document) {
  try {
    check(document.length <= MAX_DOCUMENT_BYTES, "too long");
    const json = textOf(document);
    check(json !== null, "no UTF-8");
    return readTerms(parseJson(json));
  } catch (error) {
    if (error instanceof BadDocument) return null;
    throw error;
  }
}

function readTerms(value) {
  const names = ["successor", "lineage", "suite", "slots_per_epoch", "max_completions"];
  const fields = objectOf(value, names, ["retired"]);
  check(uint(fields.get("successor")) === 1n, "no version");
  const suite = readSuite(fields.get("suite"));
  const retired = fields.has("retired") ? list(fields.get("retired"), 0, suite.families.length - 1) : [];
  retired.forEach((index, at) => {
    uint(index, at === 0 ? 0n : retired[at - 1] + 1n, BigInt(suite.families.length - 1));
  });
  return {
    lineage: bytes(fields.get("lineage"), 32),
    suite,
    slotsPerEpoch: uint(fields.get("slots_per_epoch"), 1n),
    maxCompletions: uint(fields.get("max_completions"), 1n, 16n),
    retired,
  };
}

export function termsOfManifest({ suite, slotsPerEpoch, maxCompletions }) {
  return { suite, slotsPerEpoch, maxCompletions, retired: [] };
}

const sameFamily = (a, b) => a.length === b.length && a.every((part, at) => part === b[at]);

// Whether a document counts behind the terms `before`.
function counts(terms, before, manifest) {
  if (manifest.chainId === 0n || hex(terms.lineage) !== hex(manifest.swarmId)) return false;
  if (terms.suite.reasoningGym !== before.suite.reasoningGym) return false;
  const [families, known] = [terms.suite.families, before.suite.families];
  if (families.length < known.length || !known.every((family, at) => sameFamily(family, families[at]))) return false;
  if (manifest.audits && terms.slotsPerEpoch > 65_536n) return false;
  if (!manifest.difficulty) return true;
  const sameSuite =
    families.length === known.length && hex(terms.suite.sampleDigest) === hex(before.suite.sampleDigest);
  return sameSuite && terms.retired.length === 0 && manifest.difficulty.completions <= terms.maxCompletions;
}

// What the announcements [epoch, document], in their order, come to.
export class Lineage {
  constructor(manifest, announced) {
    this.terms = [[0n, termsOfManifest(manifest)]];
    this.counted = [];
    this.unreadableFrom = null;
    for (const [epoch, document] of announced) {
      const found = readDocument(document);
      if (found === null) this.unreadableFrom ??= epoch;
      const before = this.terms[this.terms.length - 1][1];
      const isCounted = found !== null && counts(found, before, manifest);
      this.counted.push(isCounted);
      if (isCounted) this.terms.push([epoch, found]);
    }
  }

  isReadable(epoch) {
    return this.unreadableFrom === null || epoch < this.unreadableFrom;
  }

  termsOf(epoch) {
    return this.terms.filter(([from]) => from <= epoch).pop()[1];
  }
}

export function familiesInForce(terms) {
  return terms.suite.families.map((_, at) => BigInt(at)).filter((index) => !terms.retired.includes(index));
}
