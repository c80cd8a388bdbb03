// Tasks of grids as pictures: demonstrations, what was predicted, the truth.
import { h, s } from "./dom.js";

const SIDE = 30;
const COLOURS = 10;

/** Whether a value from a run is a grid; anything else stays text. */
export function isGrid(value) {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= SIDE &&
    Array.isArray(value[0]) &&
    value[0].length > 0 &&
    value[0].length <= SIDE &&
    value.every(
      (row) =>
        Array.isArray(row) &&
        row.length === value[0].length &&
        row.every((cell) => Number.isInteger(cell) && cell >= 0 && cell < COLOURS),
    )
  );
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const grids = (value) => (Array.isArray(value) ? value.filter(isGrid) : []);

/** A grid as a picture with its caption; in words for a screen reader. */
export function picture(cells, caption, mark = "") {
  const high = cells.length;
  const wide = cells[0].length;
  const size = Math.max(6, Math.min(22, Math.floor(200 / Math.max(high, wide))));
  const words = cells.map((row) => row.join(" ")).join(" / ");
  return h(
    "figure",
    { class: `grid ${mark}` },
    s(
      "svg",
      {
        width: wide * size,
        height: high * size,
        viewBox: `0 0 ${wide} ${high}`,
        role: "img",
        "aria-label": `${caption}: ${high} by ${wide}: ${words}`,
      },
      cells.map((row, y) =>
        row.map((cell, x) => s("rect", { x, y, width: 1, height: 1, class: `cell c${cell}` })),
      ),
    ),
    h("figcaption", null, caption),
  );
}

/** The demonstrations of a conversation's task, then each test with what every judge's adaptation
 * predicted and the truth; null where it is no task of grids. */
export function task(found) {
  const { demonstrations, tests } = found.question.inputs ?? {};
  const shown = (Array.isArray(demonstrations) ? demonstrations : []).filter(
    (one) => one && isGrid(one.input) && isGrid(one.output),
  );
  const asked = grids(tests);
  if (!shown.length || !asked.length) return null;
  return h(
    "section",
    { class: "grids", "aria-label": "Task" },
    h("h2", null, `${shown.length} ${shown.length === 1 ? "demonstration" : "demonstrations"}`),
    h(
      "div",
      { class: "pairs" },
      shown.map((one) => pair(picture(one.input, "input"), picture(one.output, "output"))),
    ),
    asked.map((input, number) => test(found, input, number, asked.length)),
  );
}

function pair(...figures) {
  return h("div", { class: "pair" }, figures[0], h("span", { "aria-hidden": "true" }, "→"), figures.slice(1));
}

function test(found, input, number, many) {
  const outputs = found.reference?.outputs;
  const value = Array.isArray(outputs) ? outputs[number] : null;
  const truth = isGrid(value) ? value : null;
  const judged = found.verdicts.filter((one) => Array.isArray(one.details?.attempts));
  return [
    h("h2", null, many > 1 ? `Test ${number + 1}` : "Test"),
    judged.map((one) => {
      const attempts = grids(one.details.attempts[number]);
      return h(
        "div",
        { class: "pair" },
        picture(input, "input"),
        h("span", { "aria-hidden": "true" }, "→"),
        attempts.map((grid, at) => {
          const right = truth && same(grid, truth);
          const word = truth ? (right ? ", right" : ", wrong") : "";
          const mark = truth ? (right ? "right" : "wrong") : "";
          return picture(grid, `prediction ${at + 1} (${one.judge})${word}`, mark);
        }),
        !attempts.length && h("p", { class: "none" }, `${one.judge}: no grid could be read`),
        truth && picture(truth, "truth"),
      );
    }),
    !judged.length &&
      h(
        "div",
        { class: "pair" },
        picture(input, "input"),
        h("p", { class: "none" }, "Not judged yet."),
      ),
  ];
}

const LISTS = /\[\s*\[[\d\s,[\]]{1,4000}?\]\s*\]/g;
const LINES = /(?:^|\n)((?:[0-9](?: ?[0-9])+\n){1,29}[0-9](?: ?[0-9])+)(?=\n|#|$)/g;
const MOST = 8;

/** Grids that a text holds, as lists or as lines of digits, drawn; null where it holds none. */
export function textGrid(text) {
  if (text.length > 40_000) return null;
  const found = [];
  for (const [whole] of text.matchAll(LISTS)) {
    try {
      found.push(JSON.parse(whole));
    } catch {
      /* not a grid */
    }
  }
  for (const [, lines] of found.length ? [] : text.matchAll(LINES))
    found.push(lines.split("\n").map((line) => [...line.replaceAll(" ", "")].map(Number)));
  const drawn = found.filter((one) => isGrid(one) && one.length > 1).slice(0, MOST);
  if (!drawn.length) return null;
  return h(
    "div",
    { class: "grids" },
    h(
      "div",
      { class: "pair" },
      drawn.map((one, i) => picture(one, drawn.length > 1 ? `grid ${i + 1}` : "grid")),
    ),
  );
}
