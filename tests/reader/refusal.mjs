// Rules, verdicts and reasons, read from the table of section 6.1: the specification itself is the list.
import { readFileSync } from "node:fs";

const PAGE = new URL("../../protocol/README.md", import.meta.url);
const ROW = /^\| (R[\d.]+) \| .* \| (ACCEPT|IGNORE|REJECT) \| `(\w+)` \| [^|]*\|$/;

function readRules() {
  const rules = new Map();
  for (const line of readFileSync(PAGE, "utf8").split("\n")) {
    const row = ROW.exec(line);
    if (row) rules.set(row[1], { verdict: row[2].toLowerCase(), reason: row[3] });
  }
  return rules;
}

export const RULES = readRules();

// A message breaks a rule. `rule` is its number, e.g. "R6.1".
export class Refusal extends Error {
  constructor(rule) {
    super(rule);
    if (!RULES.has(rule)) throw new RangeError(`section 6.1 has no rule ${rule}`);
    this.rule = rule;
  }
}

export function demand(holds, rule) {
  if (!holds) throw new Refusal(rule);
}

// What a node says: {verdict, reason, rule}, both null where the message is accepted.
export function outcome(rule) {
  if (rule === null) return { verdict: "accept", reason: null, rule: null };
  return { ...RULES.get(rule), rule };
}

// Runs `work` and returns the rule that it breaks, or null.
export function brokenRule(work) {
  try {
    work();
    return null;
  } catch (error) {
    if (error instanceof Refusal) return error.rule;
    throw error;
  }
}
