// What section 6.4 says of the text of a completion.
import { textOf } from "./encoding.mjs";

const UNSEEN =
  /[\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{180b}-\u{180f}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{3164}\u{fe00}-\u{fe0e}\u{feff}\u{ffa0}\u{fff0}-\u{fffc}\u{fffe}\u{ffff}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;
// U+FE0F where it does not make a picture of the character before it.
const PLAIN_SELECTOR =
  /(?<![#*0-9\u{a9}\u{ae}\u{203c}-\u{2bff}\u{3030}\u{303d}\u{3297}\u{3299}\u{1f000}-\u{1faff}])\u{fe0f}|(?<=[#*0-9])\u{fe0f}(?!\u{20e3})/u;
const OPEN = "<answer>", CLOSE = "</answer>";
const WORD = /[0-9A-Za-z]+|[^\u{0}-\u{7f}]/gu;
const WORDS_OF_RUN = 8, LEAST_RUNS = 32;

export function hasUnseen(text) {
  return UNSEEN.test(text) || PLAIN_SELECTOR.test(text);
}

// Whether a group stands up to R9.1.
export function isSeen(texts) {
  return 4 * texts.filter(hasUnseen).length <= texts.length;
}

// {answer, beside} of a text, or null where it does not have one answer by the family's rule.
export function answerIn(text, rule) {
  if (rule === "plain") return { answer: text, beside: "" };
  const [opens, closes] = [text.split(OPEN).length - 1, text.split(CLOSE).length - 1];
  const [from, to] = [text.indexOf(OPEN), text.indexOf(CLOSE)];
  if (opens !== 1 || closes !== 1 || to < from) return null;
  const beside = `${text.slice(0, from)} ${text.slice(to + CLOSE.length)}`;
  return { answer: text.slice(from + OPEN.length, to), beside };
}

function wordsOf(text) {
  return (text.match(WORD) ?? []).map((word) => word.replace(/[A-Z]/g, (letter) => letter.toLowerCase()));
}

export function isLoop(beside) {
  const words = wordsOf(beside);
  const seen = new Set();
  let [runs, repeated] = [0, 0];
  for (let at = 0; at + WORDS_OF_RUN <= words.length; at++) {
    const run = words.slice(at, at + WORDS_OF_RUN);
    if (run.every((word) => /^[0-9]+$/.test(word))) continue;
    const key = run.join(" ");
    runs += 1;
    if (seen.has(key)) repeated += 1;
    seen.add(key);
  }
  return runs >= LEAST_RUNS && 2 * repeated > runs;
}

// Whether a completion may earn anything; `bytes` are as received, `most` is its family's cap.
export function mayEarn(bytes, rule, most) {
  const text = textOf(bytes);
  if (bytes.length > most || text === null || text.includes("\ufffd") || hasUnseen(text)) return false;
  const found = answerIn(text, rule);
  return found !== null && !isLoop(found.beside);
}
