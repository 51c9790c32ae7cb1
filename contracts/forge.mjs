#!/usr/bin/env node
// Runs forge and ends as it ends. The package "@foundry-rs/forge" has a launcher for this that ends with success
// whatever happens, so only the programs of the platforms are installed.
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";

const platform = { linux: "linux", darwin: "darwin", win32: "win32" }[process.platform];
const machine = { x64: "amd64", arm64: "arm64" }[process.arch];
const suffix = platform === "win32" ? ".exe" : "";
const binary = createRequire(import.meta.url).resolve(`@foundry-rs/forge-${platform}-${machine}/bin/forge${suffix}`);

export const forge = (args, options) => spawnSync(binary, args, options);

if (process.argv[1]?.endsWith("forge.mjs")) {
  process.exit(forge(process.argv.slice(2), { stdio: "inherit" }).status ?? 1);
}
