// A copy of the contracts and their tests in which one mutant after the other takes the place of the genuine code.
//
// The tests link dynamically, so they need not be compiled again, and the mutant's bytecode is written into the
// artefact that they deploy: a mutant costs one warm compilation of what depends on it and one run of the tests.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { forge } from "../forge.mjs";
import { Compiler } from "./compiler.mjs";

const contracts = join(dirname(fileURLToPath(import.meta.url)), "..");
const copied = ["src", "test", "foundry.toml", "solc.mjs"];
// The optimizer changes no result and costs most of the compilation. Gas is not what is tested here.
const settings = { FOUNDRY_DYNAMIC_TEST_LINKING: "true", FOUNDRY_OPTIMIZER: "false", FORGE_SNAPSHOT_EMIT: "false", FORGE_SNAPSHOT_CHECK: "false" };
// The units and a few runs of the fuzzers kill nearly everything; what they leave meets more of them. No filters: with
// those forge compiles anew.
export const efforts = {
  quick: { FOUNDRY_FUZZ_RUNS: "2", FOUNDRY_INVARIANT_RUNS: "2" },
  thorough: { FOUNDRY_FUZZ_RUNS: "64", FOUNDRY_INVARIANT_RUNS: "16" },
};
// The genuine contracts take a second or two, and thirty on a loaded machine.
const LIMIT_SECONDS = { quick: 240, thorough: 900 };

export class Bench {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "mutants-"));
    for (const name of copied) cpSync(join(contracts, name), join(this.folder, name), { recursive: true });
    symlinkSync(join(contracts, "node_modules"), join(this.folder, "node_modules"));
    this.compiler = new Compiler(this.folder);
    const tests = readdirSync(join(this.folder, "test"));
    this.tests = tests.map((name) => readFileSync(join(this.folder, "test", name), "utf8"));
  }

  /** Builds everything and requires that the genuine contracts pass and are, byte for byte, what this process compiles. */
  prepare() {
    const run = this.#test("quick");
    if (run.status !== 0) throw new Error(`the tests fail without any change:\n${run.stdout}${run.stderr}`);
    this.#freeze();
    this.genuine = this.compiler.bytecodes({}, Object.keys(this.compiler.sources));
    for (const [name, code] of Object.entries(this.genuine)) {
      if (JSON.parse(readFileSync(this.#artefact(name), "utf8")).bytecode.object !== code) throw new Error(`forge compiles another ${name} than this process`);
    }
  }

  /** "stillborn" if it does not compile, "same" if it compiles to the genuine code, "killed" or "survived".
   *  @param used Which efforts, the cheapest first. */
  judge(mutant, used = Object.keys(efforts)) {
    const file = `${mutant.file}.sol`;
    const changed = { [file]: applied(this.compiler.sources[file], mutant) };
    const files = this.compiler.holders(file).filter((name) => this.#isDeployed(name));
    const codes = this.compiler.bytecodes(changed, files);
    if (!codes) return "stillborn";
    if (sameCodes(codes, this.genuine)) return "same";
    this.#install(codes);
    const survives = used.every((effort) => this.#passes(effort));
    this.#install(Object.fromEntries(Object.keys(codes).map((name) => [name, this.genuine[name]])));
    if (!survives) return "killed";
    this.optimized ??= this.compiler.bytecodes({}, Object.keys(this.compiler.sources), true);
    return sameCodes(this.compiler.bytecodes(changed, files, true), this.optimized) ? "same" : "survived";
  }

  close() {
    rmSync(this.folder, { recursive: true });
  }

  // Forge asks the compiler for its version in every run, for which Node.js loads all of it. There is nothing left to
  // compile: if forge tries to, this is no compiler and the run ends in an error.
  #freeze() {
    const path = join(this.folder, "solc.mjs");
    const { stdout } = spawnSync(process.execPath, [path, "--version"], { encoding: "utf8" });
    writeFileSync(path, `#!/bin/sh\ncat <<'END'\n${stdout}END\n`);
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
    return forge(["test", "--fail-fast", "--threads", "1"], options);
  }

  #install(codes) {
    for (const [name, code] of Object.entries(codes)) {
      const path = this.#artefact(name);
      const artefact = JSON.parse(readFileSync(path, "utf8"));
      artefact.bytecode.object = code;
      writeFileSync(path, JSON.stringify(artefact));
    }
  }

  #artefact(name) {
    return join(this.folder, "out", `${name}.sol`, `${name}.json`);
  }

  // What the tests do not create themselves is in what they create.
  #isDeployed(file) {
    return this.tests.some((test) => test.includes(`new ${file.replace(/\.sol$/, "")}(`));
  }
}

const sameCodes = (codes, genuine) => Object.entries(codes).every(([name, code]) => code === genuine[name]);

function applied(source, { start, end, replacement }) {
  const bytes = Buffer.from(source);
  return Buffer.concat([bytes.subarray(0, start), Buffer.from(replacement), bytes.subarray(end)]).toString();
}
