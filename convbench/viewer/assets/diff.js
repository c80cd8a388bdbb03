// Which words of two texts differ: the longest common sequence of words, ends that agree first.
import { h } from "./dom.js";

const CELLS = 4_000_000;

const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/** Pieces of both texts in order: [0, same], [-1, only in the first], [1, only in the second].
 * Texts that are too long for words are compared by lines. */
export function pieces(first, second) {
  let [a, b] = [split(first), split(second)];
  if (a.length * b.length > CELLS) [a, b] = [lines(first), lines(second)];
  let from = 0;
  while (from < a.length && from < b.length && a[from] === b[from]) from++;
  let [endA, endB] = [a.length, b.length];
  while (endA > from && endB > from && a[endA - 1] === b[endB - 1]) [endA, endB] = [endA - 1, endB - 1];
  const out = [];
  const put = (kind, text) => {
    if (!text) return;
    if (out.length && out[out.length - 1][0] === kind) out[out.length - 1][1] += text;
    else out.push([kind, text]);
  };
  put(0, a.slice(0, from).join(""));
  for (const [kind, text] of middle(a.slice(from, endA), b.slice(from, endB))) put(kind, text);
  put(0, a.slice(endA).join(""));
  return out;
}

const lines = (text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

function* middle(a, b) {
  if (a.length * b.length > CELLS) {
    yield [-1, a.join("")];
    yield [1, b.join("")];
    return;
  }
  const wide = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * wide + j] =
        a[i] === b[j]
          ? longest[(i + 1) * wide + j + 1] + 1
          : Math.max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      yield [0, a[i]];
      [i, j] = [i + 1, j + 1];
    } else if (longest[(i + 1) * wide + j] >= longest[i * wide + j + 1]) yield [-1, a[i++]];
    else yield [1, b[j++]];
  }
  yield [-1, a.slice(i).join("")];
  yield [1, b.slice(j).join("")];
}

/** The second text with what is new in it marked, and what it lacks of the first struck out. */
export function diffed(first, second) {
  return h(
    "div",
    { class: "said diffed" },
    pieces(first, second).map(([kind, text]) =>
      kind === 0 ? text : h(kind < 0 ? "del" : "ins", null, text),
    ),
  );
}
