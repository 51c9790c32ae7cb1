#!/usr/bin/env node
// The pinned compiler as the program that forge expects: it takes standard JSON with every source in it.
import { createRequire } from "node:module";

const solc = createRequire(import.meta.url)("solc");

if (process.argv.includes("--standard-json")) {
  let input = "";
  for await (const chunk of process.stdin) input += chunk;
  process.stdout.write(solc.compile(input));
} else {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version().replace(".Emscripten.clang", "")}`);
}
