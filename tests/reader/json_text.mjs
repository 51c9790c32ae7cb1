// JSON as manifests and successors need it: doubled fields and too many brackets are refused, integers keep all
// their digits, and a number with a point or an exponent is told from one without.
// Values: BigInt, Double, string, boolean, null, Array, Map.

const MAX_BRACKETS = 16, MAX_DIGITS = 4300;
const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;
const PLAIN = /[^"\\\u0000-\u001f]+/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const SHORT_ESCAPES = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f" };

export class BadDocument extends Error {}

// A number that was written with a point or an exponent.
export class Double {
  constructor(value) {
    this.value = value;
  }
}

export function check(holds, why) {
  if (!holds) throw new BadDocument(why);
}

class Parser {
  constructor(text, mostBrackets) {
    this.text = text;
    this.mostBrackets = mostBrackets;
    this.at = 0;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at += found[0].length;
    return found;
  }

  expect(token) {
    check(this.text.startsWith(token, this.at), `no ${token} at ${this.at}`);
    this.at += token.length;
  }

  next() {
    this.match(SPACE);
    return this.text[this.at];
  }

  value(depth) {
    const first = this.next();
    if (first === "{") return this.object(depth + 1);
    if (first === "[") return this.array(depth + 1);
    if (first === '"') return this.string();
    for (const [word, value] of [["true", true], ["false", false], ["null", null]]) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  number() {
    const found = this.match(NUMBER);
    check(found !== null, `no value at ${this.at}`);
    if (found[1] === undefined && found[2] === undefined) {
      check(found[0].replace("-", "").length <= MAX_DIGITS, "too many digits");
      return BigInt(found[0]);
    }
    const value = Number(found[0]);
    check(Number.isFinite(value), "a number beyond every double");
    return new Double(value);
  }

  string() {
    this.expect('"');
    let text = "";
    for (;;) {
      text += this.match(PLAIN)?.[0] ?? "";
      const sign = this.text[this.at++];
      if (sign === '"') {
        check(text.isWellFormed(), "half of a character beyond U+FFFF");
        return text;
      }
      check(sign === "\\", "a text without an end, or with a control character");
      text += this.escape();
    }
  }

  escape() {
    const sign = this.text[this.at++];
    if (Object.hasOwn(ESCAPES, sign ?? "")) return ESCAPES[sign];
    const digits = this.text.slice(this.at, this.at + 4);
    check(sign === "u" && /^[0-9a-fA-F]{4}$/.test(digits), "an escape of no meaning");
    this.at += 4;
    return String.fromCharCode(parseInt(digits, 16));
  }

  // The items up to the bracket that closes them; `item` reads one.
  items(closing, depth, item) {
    check(depth <= this.mostBrackets, "too many levels of brackets");
    this.at += 1;
    if (this.next() === closing) {
      this.at += 1;
      return;
    }
    for (;;) {
      item();
      if (this.next() === closing) break;
      this.expect(",");
    }
    this.at += 1;
  }

  array(depth) {
    const values = [];
    this.items("]", depth, () => values.push(this.value(depth)));
    return values;
  }

  object(depth) {
    const fields = new Map();
    this.items("}", depth, () => {
      this.next();
      const name = this.string();
      check(!fields.has(name), `the field ${name} twice`);
      this.next();
      this.expect(":");
      fields.set(name, this.value(depth));
    });
    return fields;
  }
}

export function parseJson(text, mostBrackets = MAX_BRACKETS) {
  const parser = new Parser(text, mostBrackets);
  const value = parser.value(0);
  check(parser.next() === undefined, "something behind the value");
  return value;
}

// --- the one spelling of a configuration (section 2) ---------------------------------------------------------

export function compareCodePoints(a, b) {
  const [left, right] = [[...a], [...b]];
  for (let at = 0; at < Math.min(left.length, right.length); at++) {
    const difference = left[at].codePointAt(0) - right[at].codePointAt(0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

export function spellString(text) {
  let spelt = '"';
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    const short = SHORT_ESCAPES[text[at]];
    if (short !== undefined) spelt += short;
    else if (unit >= 0x20 && unit <= 0x7e) spelt += text[at];
    else spelt += `\\u${unit.toString(16).padStart(4, "0")}`;
  }
  return `${spelt}"`;
}

function spellDouble(value) {
  if (Object.is(value, -0)) return "-0.0";
  if (value === 0) return "0.0";
  const [mantissa, exponentText] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e16) {
    const digits = String(Math.abs(exponent)).padStart(2, "0");
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${digits}`;
  }
  const sign = value < 0 ? "-" : "";
  const figures = mantissa.replace(/[-.]/g, "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${figures}`;
  const whole = figures.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${figures.slice(exponent + 1) || "0"}`;
}

export function spell(value) {
  if (value instanceof Double) return spellDouble(value.value);
  if (typeof value === "string") return spellString(value);
  if (Array.isArray(value)) return `[${value.map(spell).join(",")}]`;
  if (!(value instanceof Map)) return String(value);
  const names = [...value.keys()].sort(compareCodePoints);
  return `{${names.map((name) => `${spellString(name)}:${spell(value.get(name))}`).join(",")}}`;
}
