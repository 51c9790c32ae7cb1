#!/usr/bin/env node
// Breaks the contracts in one place after the other and sees that the Foundry tests notice each.
// Usage: node mutants.mjs [--list] [--quick] [--only REGEX] [--sample COUNT] [--seed TEXT] [--report FILE] [--unexplained]
//
// Ends with 1 if fewer than 95 % of the mutants are killed, if one of a sample survives, or if the list of equivalent
// mutants is not true. With --unexplained no mutant counts as equivalent. The report is written after each mutant: a
// run that is stopped leaves what it found.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";

import { Bench } from "./mutation/bench.mjs";
import { mutantsOf } from "./mutation/operators.mjs";
import { rulesBroken } from "./mutation/rules.mjs";

const LEAST = 0.95;
const { values: options } = parseArgs({
  options: {
    list: { type: "boolean" },
    quick: { type: "boolean" },
    only: { type: "string" },
    sample: { type: "string" },
    seed: { type: "string", default: "0" },
    report: { type: "string" },
    unexplained: { type: "boolean" },
  },
});
// By id: why no test can tell the mutant from the genuine contract.
const equivalent = options.unexplained ? {} : JSON.parse(readFileSync(new URL("./mutation/equivalent.json", import.meta.url), "utf8"));

function generate(compiler) {
  const trees = compiler.trees();
  return Object.entries(compiler.sources).flatMap(([file, source]) => {
    const name = file.replace(/\.sol$/, "");
    return [...mutantsOf(trees[file], source), ...rulesBroken(name, source)].map((mutant) => ({ file: name, ...mutant }));
  });
}

/** Those whose ids hash lowest together with the seed: another seed, another sample. */
function chosen(mutants) {
  const matching = mutants.filter(({ id }) => new RegExp(options.only ?? "").test(id));
  if (!options.sample) return matching;
  const rank = ({ id }) => createHash("sha256").update(options.seed + id).digest("hex");
  const ranked = matching.filter(({ id }) => !(id in equivalent)).sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return ranked.slice(0, Number(options.sample));
}

const describe = ({ id, file, line, original, replacement }) =>
  `${id} (src/${file}.sol:${line})\n    ${original.replace(/\s+/g, " ")}\n -> ${replacement.replace(/\s+/g, " ")}`;

function judgeAll(bench, mutants) {
  const verdicts = { killed: [], survived: [], same: [], stillborn: [], equivalent: [] };
  for (const mutant of mutants) {
    const started = performance.now();
    // Listed ones are only tried again to see that the list is true.
    const verdict = bench.judge(mutant, options.quick || mutant.id in equivalent ? ["quick"] : undefined);
    const isListed = verdict === "survived" && mutant.id in equivalent;
    verdicts[isListed ? "equivalent" : verdict].push({ ...mutant, seconds: (performance.now() - started) / 1000 });
    if (verdict === "survived" && !isListed) console.log(`SURVIVED ${describe(mutant)}`);
    if (verdict === "killed" && mutant.id in equivalent) console.log(`NOT EQUIVALENT ${describe(mutant)}`);
    if (options.report) writeFileSync(options.report, `${JSON.stringify(verdicts, null, 1)}\n`);
  }
  return verdicts;
}

function problems(verdicts, all) {
  const known = new Set(all.map(({ id }) => id));
  const found = Object.keys(equivalent).filter((id) => !known.has(id)).map((id) => `no such mutant: ${id}`);
  const noticed = [...verdicts.killed, ...verdicts.same, ...verdicts.stillborn].filter(({ id }) => id in equivalent);
  found.push(...noticed.map(({ id }) => `listed as equivalent and is not: ${id}`));
  const count = verdicts.killed.length + verdicts.survived.length;
  const least = options.sample ? 1 : LEAST;
  if (verdicts.killed.length < least * count) found.push(`fewer than ${100 * least} % are killed: write a test for each that survived, or its reason into mutation/equivalent.json`);
  return found;
}

function summary(verdicts) {
  const counts = Object.entries(verdicts).map(([verdict, { length }]) => `${length} ${verdict}`);
  return `${Object.values(verdicts).flat().length} mutants: ${counts.join(", ")}`;
}

function summaries(verdicts) {
  const files = new Set(Object.values(verdicts).flat().map(({ file }) => file));
  const of = (name) => Object.fromEntries(Object.entries(verdicts).map(([verdict, list]) => [verdict, list.filter(({ file }) => file === name)]));
  return [...files].sort().map((name) => `${name}: ${summary(of(name))}`);
}

const bench = new Bench();
try {
  const all = generate(bench.compiler);
  const mutants = chosen(all);
  if (options.list) {
    for (const mutant of mutants) console.log(describe(mutant));
  } else {
    const started = performance.now();
    bench.prepare();
    const verdicts = judgeAll(bench, mutants);
    for (const line of summaries(verdicts)) console.log(line);
    console.log(`${summary(verdicts)}; ${Math.round((performance.now() - started) / 1000)} s`);
    const found = problems(verdicts, all);
    for (const problem of found) console.error(`error: ${problem}`);
    process.exitCode = found.length ? 1 : 0;
  }
} finally {
  bench.close();
}
