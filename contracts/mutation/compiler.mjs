// The pinned compiler in this process, warm from the second call on, with the settings under which forge builds the
// tests here: what it compiles can take the place of forge's own artefact.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const solc = createRequire(import.meta.url)("solc");

export class Compiler {
  /** @param folder With `src` and `node_modules`. */
  constructor(folder) {
    this.folder = folder;
    const names = readdirSync(join(folder, "src")).filter((name) => name.endsWith(".sol")).sort();
    this.sources = Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, "src", name), "utf8")]));
  }

  /** The syntax tree of each source, by file name. */
  trees() {
    const { sources } = this.#run(this.sources, { "*": { "": ["ast"] } }, false);
    return Object.fromEntries(Object.keys(this.sources).map((name) => [name, sources[`src/${name}`].ast]));
  }

  /** Files that hold code of a file: itself, what creates its contract or is built with its library, and so on. */
  holders(file) {
    const found = new Set([file]);
    for (const held of found) {
      const name = held.replace(/\.sol$/, "");
      const holds = new RegExp(`\\bnew ${name}\\(|\\b${name}\\.\\w+\\(`);
      for (const [other, text] of Object.entries(this.sources)) if (holds.test(text)) found.add(other);
    }
    return [...found].sort();
  }

  /** Creation code of the contracts in `files`, by name, or undefined if the changed source does not compile.
   *  @param changed Sources by file name, in place of those in the folder. */
  bytecodes(changed, files, optimized = false) {
    const selection = Object.fromEntries(files.map((name) => [`src/${name}`, { "*": ["evm.bytecode.object"] }]));
    const { contracts, errors = [] } = this.#run({ ...this.sources, ...changed }, selection, optimized);
    if (errors.some(({ severity }) => severity === "error")) return undefined;
    const own = Object.entries(contracts).filter(([path]) => path.startsWith("src/"));
    const built = own.flatMap(([, byName]) => Object.entries(byName)).filter(([, { evm }]) => evm?.bytecode.object);
    return Object.fromEntries(built.map(([name, { evm }]) => [name, `0x${evm.bytecode.object}`]));
  }

  #run(sources, outputSelection, optimized) {
    const input = {
      language: "Solidity",
      sources: Object.fromEntries(Object.entries(sources).map(([name, content]) => [`src/${name}`, { content }])),
      settings: {
        remappings: ["@openzeppelin/=node_modules/@openzeppelin/"],
        evmVersion: "cancun",
        optimizer: { enabled: optimized, runs: 200 },
        metadata: { bytecodeHash: "none", appendCBOR: false },
        outputSelection,
      },
    };
    const read = (path) => ({ contents: readFileSync(join(this.folder, path), "utf8") });
    return JSON.parse(solc.compile(JSON.stringify(input), { import: read }));
  }
}
