// Numbers and small marks, the same everywhere.
import { h } from "./dom.js";

const MARKS = { correct: "✓", wrong: "✗", unparsed: "?", failed: "!", ungraded: "–" };

export const count = (value) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en");
export const fixed = (value, digits = 2) =>
  value === null || value === undefined ? "–" : value.toFixed(digits);
export const percent = (value) =>
  value === null || value === undefined ? "–" : (100 * value).toFixed(1) + "%";
export const dollars = (value) =>
  value === null || value === undefined
    ? "unknown"
    : "$" + value.toFixed(value && value < 1 ? 4 : 2);
export const words = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

/** `0.53 ± 0.02`, the standard error by group. */
export function mean(figure, show = fixed) {
  if (!figure) return h("span", { class: "none" }, "–");
  const error =
    figure.error === null ? null : h("span", { class: "error" }, " ± ", show(figure.error));
  return h(
    "span",
    {
      class: "figure",
      title: `${words(figure.n, "conversation")} in ${words(figure.groups, "group")}`,
    },
    show(figure.mean),
    error,
  );
}

/** What became of a conversation: a mark and a word, so that colour is never alone. */
export function result(name, withWord = true) {
  return h(
    "span",
    { class: `result ${name}`, title: name },
    h("span", { "aria-hidden": "true", class: "mark" }, MARKS[name] ?? "–"),
    h("span", { class: withWord ? "" : "unseen" }, name),
  );
}

export const temperature = (value) =>
  value === null || value === undefined
    ? "not sent"
    : Number.isInteger(value)
      ? value.toFixed(1)
      : String(value);

/** The last parts of a long model name or path. */
export function short(name) {
  if (!name) return "imported";
  const kept = name.lastIndexOf("checkpoints/");
  if (kept >= 0) name = name.slice(kept);
  if (name.length <= 34) return name;
  const parts = name.split("/");
  const tail = parts.slice(-2).join("/");
  return "…" + (tail.length < 34 ? "/" + tail : tail.slice(-33));
}

export function policy(name) {
  return h("span", { class: "policy", title: name ?? "imported" }, breakable(short(name)));
}

/** A name that may end a line after each of its parts, and nowhere else. */
export const breakable = (name) =>
  name.split(/(?<=[/@:])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
