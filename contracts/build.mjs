// Compiles src/ with the pinned compiler and writes the artefacts that the Python package ships.
// Usage: node build.mjs [OUTPUT_FOLDER]
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const here = dirname(fileURLToPath(import.meta.url));
const output = process.argv[2] ?? join(here, "..", "client", "sapo_client", "ledger", "artifacts");

const settings = {
  // The lowest target that the OpenZeppelin release compiles for, and the highest that every chain we know runs.
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 200 },
  // Without metadata a comment edit leaves the bytecode as it is, and any machine compiles the same bytes.
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: {
    "*": {
      "*": [
        "abi",
        "evm.bytecode.object",
        "evm.deployedBytecode.object",
        "evm.deployedBytecode.immutableReferences",
      ],
    },
  },
};

const sha256 = (text) => createHash("sha256").update(text).digest("hex");

// Libraries and interfaces are compiled into their users; they have no artefact of their own.
const shipped = [
  "AccountBond",
  "EpochLedger",
  "Faucet",
  "FraudVerifier",
  "NodeRegistry",
  "RewardDistributor",
  "SapoToken",
  "StakeVault",
];

function readSources() {
  const names = readdirSync(join(here, "src")).filter((name) => name.endsWith(".sol")).sort();
  return Object.fromEntries(
    names.map((name) => [`src/${name}`, { content: readFileSync(join(here, "src", name), "utf8") }]),
  );
}

const imported = {};

function findImport(path) {
  const contents = readFileSync(join(here, "node_modules", path), "utf8");
  imported[path] = sha256(contents);
  return { contents };
}

function compile(solc, sources) {
  const input = { language: "Solidity", sources, settings };
  const result = JSON.parse(solc.compile(JSON.stringify(input), { import: findImport }));
  const problems = (result.errors ?? []).filter((problem) => problem.severity !== "info");
  if (problems.length > 0) {
    console.error(problems.map((problem) => problem.formattedMessage).join("\n"));
    process.exit(1);
  }
  return result.contracts;
}

// Byte offsets only: the keys are syntax tree numbers, which shift with unrelated edits.
function immutableSpans(references) {
  return Object.values(references ?? {})
    .flat()
    .map(({ start, length }) => [start, length])
    .sort((a, b) => a[0] - b[0]);
}

function artefact(name, contract, compiler, sourceHashes) {
  return {
    contractName: name,
    compiler,
    settings: { ...settings, outputSelection: undefined },
    sources: sourceHashes,
    abi: contract.abi,
    bytecode: `0x${contract.evm.bytecode.object}`,
    deployedBytecode: `0x${contract.evm.deployedBytecode.object}`,
    immutableSpans: immutableSpans(contract.evm.deployedBytecode.immutableReferences),
  };
}

const solc = require("solc");
const sources = readSources();
const contracts = compile(solc, sources);
const compiler = { version: solc.version(), soljson: sha256(readFileSync(require.resolve("solc/soljson.js"))) };
const own = Object.entries(sources).map(([path, { content }]) => [path, sha256(content)]);
const sourceHashes = Object.fromEntries([...own, ...Object.entries(imported)].sort());

mkdirSync(output, { recursive: true });
for (const name of shipped) {
  const built = artefact(name, contracts[`src/${name}.sol`][name], compiler, sourceHashes);
  writeFileSync(join(output, `${name}.json`), `${JSON.stringify(built, null, 1)}\n`);
}
