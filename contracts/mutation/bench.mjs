// A copy of the contracts and their tests in which one mutant after the other takes the place of the genuine code.
//
// The tests link dynamically, so they need not be compiled again, and the mutant's bytecode is written into the
// artefact that they deploy: a mutant costs one warm compilation of what depends on it and one run of the tests.
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { forge } from "../forge.mjs";
import { Compiler } from "./compiler.mjs";

const contracts = join(dirname(fileURLToPath(import.meta.url)), "..");
const copied = ["src", "test", "foundry.toml", "solc.mjs"];
// The optimizer changes no result and costs most of the compilation. Gas is not what is tested here.
const settings = { FOUNDRY_DYNAMIC_TEST_LINKING: "true", FOUNDRY_OPTIMIZER: "false", FORGE_SNAPSHOT_EMIT: "false" };
// A few runs of the fuzzers kill nearly everything; what they leave meets more of them.
export const efforts = {
  quick: { FOUNDRY_FUZZ_RUNS: "4", FOUNDRY_INVARIANT_RUNS: "4" },
  thorough: { FOUNDRY_FUZZ_RUNS: "64", FOUNDRY_INVARIANT_RUNS: "16" },
};
// The genuine contracts take a second or two, and thirty on a loaded machine.
const LIMIT_SECONDS = { quick: 120, thorough: 600 };

export class Bench {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "mutants-"));
    for (const name of copied) cpSync(join(contracts, name), join(this.folder, name), { recursive: true });
    symlinkSync(join(contracts, "node_modules"), join(this.folder, "node_modules"));
    this.compiler = new Compiler(this.folder);
  }

  /** Builds everything and requires that the genuine contracts pass and are, byte for byte, what this process compiles. */
  prepare() {
    const run = this.#test("quick");
    if (run.status !== 0) throw new Error(`the tests fail without any change:\n${run.stdout}${run.stderr}`);
    this.genuine = this.compiler.bytecodes({}, Object.keys(this.compiler.sources));
    for (const [name, code] of Object.entries(this.genuine)) {
      const { bytecode } = JSON.parse(readFileSync(this.#artefact(name), "utf8"));
      if (bytecode.object !== code.creation) throw new Error(`forge compiles another ${name} than this process`);
    }
  }

  /** "stillborn" if it does not compile, "same" if it compiles to the genuine code, "killed" or "survived".
   *  @param used Which efforts, the cheapest first. */
  judge(mutant, used = Object.keys(efforts)) {
    const file = `${mutant.file}.sol`;
    const changed = { [file]: applied(this.compiler.sources[file], mutant) };
    const files = this.compiler.dependents(file);
    const codes = this.compiler.bytecodes(changed, files);
    if (!codes) return "stillborn";
    if (sameCodes(codes, this.genuine)) return "same";
    this.#install(codes);
    const survives = used.every((effort) => this.#passes(effort));
    this.#install(Object.fromEntries(Object.keys(codes).map((name) => [name, this.genuine[name]])));
    if (!survives) return "killed";
    const [one, two] = [changed, {}].map((sources) => this.compiler.bytecodes(sources, files, true));
    return sameCodes(one, two) ? "same" : "survived";
  }

  close() {
    rmSync(this.folder, { recursive: true });
  }

  #passes(effort) {
    const run = this.#test(effort);
    if (run.status === 0) return true;
    const judged = run.error?.code === "ETIMEDOUT" || run.stdout.includes("[FAIL");
    if (!judged) throw new Error(`forge could not judge a mutant:\n${run.stdout}${run.stderr}`);
    return false;
  }

  #test(effort) {
    // What failed for another mutant is nothing to this one.
    for (const name of ["fuzz", "invariant", "test-failures"]) rmSync(join(this.folder, "cache", name), { recursive: true, force: true });
    const env = { ...process.env, ...settings, ...efforts[effort] };
    const options = { cwd: this.folder, encoding: "utf8", env, timeout: LIMIT_SECONDS[effort] * 1000, maxBuffer: 1 << 28 };
    return forge(["test", "--fail-fast", "--threads", "1", "--no-match-contract", "^GasTest$"], options);
  }

  #install(codes) {
    for (const [name, code] of Object.entries(codes)) {
      const path = this.#artefact(name);
      const artefact = JSON.parse(readFileSync(path, "utf8"));
      artefact.bytecode.object = code.creation;
      artefact.deployedBytecode.object = code.runtime;
      writeFileSync(path, JSON.stringify(artefact));
    }
  }

  #artefact(name) {
    const file = Object.keys(this.compiler.sources).find((source) => new RegExp(`\\b(contract|library|interface) ${name}\\b`).test(this.compiler.sources[source]));
    return join(this.folder, "out", file, `${name}.json`);
  }
}

const sameCodes = (codes, genuine) => Object.entries(codes).every(([name, { creation }]) => creation === genuine[name].creation);

function applied(source, { start, end, replacement }) {
  const bytes = Buffer.from(source);
  return Buffer.concat([bytes.subarray(0, start), Buffer.from(replacement), bytes.subarray(end)]).toString();
}
