// `node tests/reader/vectors.mjs` runs every case of tests/vectors/, prints those that differ and their number.
import { deepStrictEqual } from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { ADMISSION, CHECKS } from "./checks.mjs";
import { readCases, readManifests } from "./judging.mjs";

const FOLDER = new URL("../vectors/", import.meta.url);
const MAX_SHOWN = 20;

// Whether what came out, of the fields that a check computes, is what the vector says.
function differs(expected, found) {
  try {
    for (const [name, value] of Object.entries(found)) deepStrictEqual(value, expected[name] ?? null);
    return null;
  } catch (error) {
    if (error.code === "ERR_ASSERTION") return error.message.split("\n").slice(0, 30).join("\n");
    throw error;
  }
}

function run() {
  const manifests = readManifests(readFileSync(new URL("manifests.json", FOLDER), "utf8"));
  const files = readdirSync(FOLDER).filter((name) => name.endsWith(".json") && name !== "manifests.json");
  const totals = {};
  const failures = [];
  for (const file of files) {
    const name = file.replace(".json", "");
    const lists = readCases(readFileSync(new URL(file, FOLDER), "utf8"), ["suite_value"]);
    const checks = name.startsWith("admission_") ? ADMISSION : CHECKS[name];
    for (const [list, check] of Object.entries(checks)) {
      totals[`${name}.${list}`] = lists[list].length;
      lists[list].forEach((vector, at) => {
        const difference = differs(vector, check(vector, { manifests, lists }));
        if (difference !== null) failures.push(`${name}.${list}[${at}] ${vector.name ?? ""}\n${difference}`);
      });
    }
    const unread = Object.keys(lists).filter((list) => Array.isArray(lists[list]) && !(list in checks));
    if (unread.length > 0) failures.push(`${name}: nothing reads ${unread}`);
  }
  return { totals, failures };
}

const { totals, failures } = run();
const cases = Object.values(totals).reduce((sum, count) => sum + count, 0);
console.log(JSON.stringify({ totals, cases, failures: failures.length }));
for (const failure of failures.slice(0, MAX_SHOWN)) console.error(failure);
process.exitCode = failures.length > 0 ? 1 : 0;
