// What a careless or dishonest hand may make of a contract: every mutant is one change of one place in the syntax
// tree that the compiler made of the source.
import { createHash } from "node:crypto";

const comparisons = { "<": ["<=", ">"], "<=": ["<", ">="], ">": [">=", "<"], ">=": [">", "<="], "==": ["!="], "!=": ["=="] };
const arithmetic = { "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "&": "|", "|": "&", "^": "&", "<<": ">>", ">>": "<<" };
const assignments = { "+=": ["-=", "="], "-=": ["+=", "="], "|=": ["&=", "="], "&=": ["|=", "="] };
const assembly = { add: "sub", sub: "add", and: "or", or: "and", xor: "and", shl: "shr", shr: "shl", lt: "gt" };
const deletable = new Set(["ExpressionStatement", "EmitStatement", "Return", "Continue", "YulExpressionStatement", "YulAssignment"]);

/** All mutants of a source, in the order of their places: [{ id, operator, start, end, replacement, line, original }]. */
export function mutantsOf(ast, source) {
  const bytes = Buffer.from(source);
  const found = [];
  for (const { node, parents } of walk(ast, [])) {
    const propose = (operator, target, replacement) => found.push(change(bytes, operator, target, replacement, scopeOf(parents, node)));
    for (const operator of operators) operator(node, parents, propose, (target) => textOf(bytes, target));
  }
  return named(found.sort((a, b) => a.start - b.start || a.end - b.end));
}

function* walk(node, parents) {
  yield { node, parents };
  // What an error says beside its name is for whoever reads it; no rule depends on it.
  if (node.nodeType === "RevertStatement") return;
  const below = [...parents, node];
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (child?.nodeType && child.src) yield* walk(child, below);
    }
  }
}

function spanOf(target) {
  if (!target.src) return [target.start, target.end];
  const [start, length] = target.src.split(":").map(Number);
  return [start, start + length];
}

const textOf = (bytes, target) => bytes.subarray(...spanOf(target)).toString();

function change(bytes, operator, target, replacement, scope) {
  const [start, end] = spanOf(target);
  const line = bytes.subarray(0, start).toString().split("\n").length;
  return { operator, scope, start, end, line, original: bytes.subarray(start, end).toString(), replacement };
}

function scopeOf(parents, node) {
  const chain = [...parents, node];
  const within = (type) => chain.find((parent) => parent.nodeType === type);
  const part = within("FunctionDefinition") ?? within("ModifierDefinition");
  const variable = chain.find((parent) => parent.nodeType === "VariableDeclaration" && parent.stateVariable);
  const contract = within("ContractDefinition")?.name ?? "";
  return `${contract}.${part?.name || part?.kind || variable?.name || ""}`;
}

// An id says what is changed and not where, so that it outlasts changes of other functions.
function named(mutants) {
  const seen = new Map();
  return mutants.map((mutant) => {
    const content = JSON.stringify([mutant.scope, mutant.operator, mutant.original, mutant.replacement]);
    const nth = seen.get(content) ?? 0;
    seen.set(content, nth + 1);
    const hash = createHash("sha256").update(`${content}${nth}`).digest("hex").slice(0, 8);
    return { id: `${mutant.scope}/${mutant.operator}/${hash}`, ...mutant };
  });
}

const operators = [
  function deletion(node, parents, propose, text) {
    if (!deletable.has(node.nodeType)) return;
    const [start, end] = spanOf(node);
    propose("delete", { start, end: text({ start: end, end: end + 1 }) === ";" ? end + 1 : end }, node.nodeType.startsWith("Yul") ? "" : "{}");
  },

  // A guard whose condition is false is a guard deleted.
  function condition(node, parents, propose) {
    if (node.nodeType !== "IfStatement" && node.nodeType !== "Conditional") return;
    for (const value of ["true", "false"]) propose("condition", node.condition ?? node, value);
  },

  function loop(node, parents, propose) {
    if (node.nodeType === "ForStatement" && node.condition) propose("condition", node.condition, "false");
  },

  function operand(node, parents, propose, text) {
    if (node.nodeType !== "BinaryOperation" || !["&&", "||"].includes(node.operator)) return;
    propose("operand", node, text(node.leftExpression));
    propose("operand", node, text(node.rightExpression));
  },

  function binary(node, parents, propose, text) {
    if (node.nodeType !== "BinaryOperation") return;
    const between = { start: spanOf(node.leftExpression)[1], end: spanOf(node.rightExpression)[0] };
    const gap = text(between);
    for (const other of comparisons[node.operator] ?? []) propose("comparison", between, gap.replace(node.operator, other));
    const other = arithmetic[node.operator];
    if (other) propose("arithmetic", between, gap.replace(node.operator, other));
  },

  function assignment(node, parents, propose, text) {
    if (node.nodeType !== "Assignment") return;
    const between = { start: spanOf(node.leftHandSide)[1], end: spanOf(node.rightHandSide)[0] };
    for (const other of assignments[node.operator] ?? []) {
      propose("arithmetic", between, text(between).replace(node.operator, other));
    }
  },

  function unary(node, parents, propose, text) {
    if (node.nodeType !== "UnaryOperation") return;
    const other = { "++": "--", "--": "++", "!": "", "~": "" }[node.operator];
    if (other !== undefined) propose("arithmetic", node, text(node).replace(node.operator, other));
  },

  function constant(node, parents, propose, text) {
    const isNumber = node.nodeType === "Literal" && node.kind === "number";
    if (isNumber && node.typeDescriptions.typeString === "address") return propose("constant", node, "address(0)");
    if (!isNumber && !(node.nodeType === "YulLiteral" && node.kind === "number")) return;
    const value = BigInt(node.value);
    const others = new Set([0n, 1n, value + 1n, value - 1n].filter((other) => other >= 0n && other !== value));
    for (const other of others) propose("constant", node, text(node).replace(node.value, other.toString()));
  },

  function bool(node, parents, propose) {
    if (node.nodeType === "Literal" && node.kind === "bool") propose("constant", node, String(node.value !== "true"));
  },

  function string(node, parents, propose) {
    if (node.nodeType === "Literal" && node.kind === "string" && node.value) propose("constant", node, '""');
  },

  function swappedArguments(node, parents, propose, text) {
    if (node.nodeType !== "FunctionCall" || node.names?.length) return;
    for (let i = 0; i + 1 < node.arguments.length; ++i) {
      const [one, two] = [node.arguments[i], node.arguments[i + 1]];
      if (kindOf(one) !== kindOf(two)) continue;
      const between = text({ start: spanOf(one)[1], end: spanOf(two)[0] });
      propose("arguments", { start: spanOf(one)[0], end: spanOf(two)[1] }, `${text(two)}${between}${text(one)}`);
    }
  },

  function eventArgument(node, parents, propose) {
    if (node.nodeType !== "EmitStatement") return;
    for (const argument of node.eventCall.arguments) {
      const none = { number: "0", address: "address(0)", bytes32: "bytes32(0)" }[kindOf(argument)];
      if (none) propose("event", argument, none);
    }
  },

  function modifier(node, parents, propose) {
    if (node.nodeType === "ModifierInvocation" && node.kind === "modifierInvocation") propose("modifier", node, "");
  },

  function cast(node, parents, propose, text) {
    const bits = node.nodeType === "FunctionCall" && /^toUint(\d+)$/.exec(node.expression.memberName ?? "")?.[1];
    if (bits) propose("cast", node, `uint${bits}(${text(node.expression.expression)})`);
  },

  function location(node, parents, propose, text) {
    const isLocal = node.nodeType === "VariableDeclaration" && parents.at(-1).nodeType === "VariableDeclarationStatement";
    const other = { storage: "memory", memory: "storage" }[isLocal && node.storageLocation];
    if (other) propose("location", node, text(node).replace(node.storageLocation, other));
  },

  // Who is called while an effect is not written yet can call back; who is asked first decides by another state. Of two
  // guards the first says which error is told, and what stands behind a `return` or `continue` is not always done.
  function order(node, parents, propose, text) {
    const statements = ["Block", "UncheckedBlock"].includes(node.nodeType) ? node.statements : [];
    const silent = statements.filter((statement) => statement.nodeType !== "EmitStatement");
    for (let i = 0; i + 1 < silent.length; ++i) {
      const [one, two] = [silent[i], silent[i + 1]];
      if (!orderMatters(effectsOf(one), effectsOf(two)) && !guardsMatter(one, two)) continue;
      // A semicolon is not in the span of its statement.
      const between = text({ start: spanOf(one)[1], end: spanOf(two)[0] }).replace(/^;/, "");
      const end = spanOf(two)[1] + (text(two).endsWith("}") ? 0 : 1);
      propose("order", { start: spanOf(one)[0], end }, `${closed(text(two))}${between}${closed(text(one))}`);
    }
  },
];

const closed = (statement) => (statement.endsWith("}") || statement.endsWith(";") ? statement : `${statement};`);

function kindOf(argument) {
  const type = argument.typeDescriptions?.typeString ?? "";
  if (/^(uint|int_const)/.test(type)) return "number";
  return type.startsWith("address") ? "address" : type;
}

/** Which state a statement reads and writes, and whether it calls a contract that may change something. */
function effectsOf(statement) {
  const effects = { reads: [], writes: [], calls: false, changes: false };
  for (const { node, parents } of walk(statement, [])) {
    if (node.nodeType === "Assignment") effects.writes.push(pathOf(node.leftHandSide));
    if (["++", "--", "delete"].includes(node.operator)) effects.writes.push(pathOf(node.subExpression));
    const parent = parents.at(-1);
    const isWhole = !(parent?.expression === node && parent.nodeType === "MemberAccess") && parent?.baseExpression !== node;
    if (isWhole) effects.reads.push(pathOf(node));
    if (node.nodeType !== "FunctionCall" || node.kind !== "functionCall") continue;
    const type = node.expression.typeDescriptions?.typeString ?? "";
    if (!type.startsWith("function") || / (view|pure)/.test(type)) continue;
    // The library's transfers are calls of the token.
    if (type.includes(" external") || /^safeTransfer/.test(node.expression.memberName ?? "")) effects.calls = true;
    else effects.changes = true;
  }
  return { ...effects, reads: effects.reads.filter(Boolean), writes: effects.writes.filter(Boolean) };
}

/** What an expression names, as "_bonds[].bonded"; undefined where it names nothing. */
function pathOf(node) {
  if (node.nodeType === "Identifier") return node.name;
  if (node.nodeType === "IndexAccess") return below(node.baseExpression, "[]");
  if (node.nodeType === "MemberAccess") return below(node.expression, `.${node.memberName}`);
  return undefined;
}

function below(base, rest) {
  const path = pathOf(base);
  return path && path + rest;
}

/** How an `if` without an `else` leaves its block: the node type of its only statement; undefined for anything else. */
function exitOf(statement) {
  if (statement.nodeType !== "IfStatement" || statement.falseBody) return undefined;
  const body = statement.trueBody.nodeType === "Block" ? statement.trueBody.statements : [statement.trueBody];
  const isExit = body.length === 1 && ["RevertStatement", "Return", "Continue", "Break"].includes(body[0].nodeType);
  return isExit ? body[0].nodeType : undefined;
}

function guardsMatter(one, two) {
  const [first, second] = [exitOf(one), exitOf(two)];
  if (first && second) return first !== second || first === "RevertStatement";
  const acts = (statement) => ["ExpressionStatement", "UncheckedBlock", "ForStatement"].includes(statement.nodeType);
  return (first ? first !== "RevertStatement" && acts(two) : false) || (second ? second !== "RevertStatement" && acts(one) : false);
}

function orderMatters(one, two) {
  const acts = (effects) => effects.calls || effects.changes || effects.writes.length > 0;
  if (one.calls || two.calls) return acts(one) && acts(two);
  const within = (path, other) => path === other || (path.startsWith(other) && /[.[]/.test(path[other.length]));
  const meet = (a, b) => a.some((path) => b.some((other) => within(path, other) || within(other, path)));
  return meet(one.reads, two.writes) || meet(two.reads, one.writes);
}
