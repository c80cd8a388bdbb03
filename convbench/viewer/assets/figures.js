// Figures by policy and by temperature, each with its standard error.
import { h, s } from "./dom.js";
import { breakable, count, fixed, mean, percent, policy, temperature } from "./format.js";
import { link } from "./route.js";

/** A mean as a dot, its standard error twice as a line, on a scale from 0 to 1. */
function dot(figure) {
  if (!figure) return null;
  const x = (value) => 2 + 96 * Math.max(0, Math.min(1, value));
  const { mean: at, error } = figure;
  return s(
    "svg",
    { class: "plot", viewBox: "0 0 100 14", "aria-hidden": "true" },
    s("line", { x1: 2, x2: 98, y1: 7, y2: 7, class: "axis" }),
    [0, 0.5, 1].map((v) => s("line", { x1: x(v), x2: x(v), y1: 4, y2: 10, class: "axis" })),
    error !== null &&
      s("line", { x1: x(at - 2 * error), x2: x(at + 2 * error), y1: 7, y2: 7, class: "whisker" }),
    s("circle", { cx: x(at), cy: 7, r: 3.2, class: "point" }),
  );
}

function methodName(about, row) {
  const many = (name) => about.facets[name]?.length > 1;
  const run = about.runs[row.run_no];
  const more = [
    many("task") && row.task,
    many("protocol") && row.protocol,
    many("mode") && row.mode,
    many("split") && row.split,
    run?.kind === "eval" && "eval",
    about.runs.filter((one) => !one.checkpoint).length > 1 && run?.name,
  ].filter(Boolean);
  const params = new URLSearchParams({ run: row.run, split: row.split ?? "" });
  return [
    h("a", { href: link("list", null, params) }, policy(row.policy)),
    more.length > 0 && h("span", { class: "under" }, more.join(" · ")),
  ];
}

/** Judges with any score of these rows: a column without a number is left out. */
const scoring = (about, rows) =>
  about.judges.map((_, k) => k).filter((k) => rows.some((row) => row.rewards[k] !== null));

export function methods(about) {
  const judges = scoring(about, about.methods);
  const graded = about.methods.some((row) => row.accuracy !== null);
  const counts = [
    ["Unparsed", "unparsed"],
    ["Failed", "failed"],
    ["Flagged", "flagged"],
  ].filter(([, key]) => about.methods.some((row) => row[key] > 0));
  return h(
    "section",
    null,
    h("h2", null, "Policies"),
    h(
      "p",
      { class: "hint" },
      "Mean ± standard error, by group: the independent unit. The line is two standard errors to each side, on a scale from 0 to 1, to which judges' scores are brought.",
    ),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "figures" },
        h("caption", { class: "unseen" }, "Figures by policy"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "Policy"),
            h("th", { scope: "col", class: "num" }, "Count"),
            graded && h("th", { scope: "col" }, "Accuracy"),
            judges.map((k) =>
              h(
                "th",
                { scope: "col" },
                "Reward ",
                h("span", { class: "under" }, breakable(about.judges[k])),
              ),
            ),
            [...counts.map(([name]) => name), "Turns", "Words"].map((name) =>
              h("th", { scope: "col", class: "num" }, name),
            ),
          ),
        ),
        h(
          "tbody",
          null,
          about.methods.map((row) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, methodName(about, row)),
              h("td", { class: "num" }, count(row.conversations)),
              graded && h("td", { class: "p" }, mean(row.accuracy, percent), dot(row.accuracy)),
              judges.map((k) =>
                h("td", { class: "p" }, mean(row.rewards[k]), dot(row.rewards[k])),
              ),
              counts.map(([, key]) =>
                h("td", { class: `num${row[key] ? "" : " zero"}` }, count(row[key])),
              ),
              h("td", { class: "num" }, fixed(row.n_turns, 1)),
              h("td", { class: "num" }, fixed(row.words, 0)),
            ),
          ),
        ),
      ),
    ),
  );
}

export function temperatures(about) {
  if (about.facets.temperature.length < 2) return null;
  const heads = about.facets.temperature.map(([value]) => value);
  const key = (row) => `${row.run_no}|${row.policy}|${row.split}`;
  const byMethod = Map.groupBy(about.temperatures, key);
  const cells = (row, pick, show) =>
    heads.map((value) => {
      const one = byMethod.get(key(row))?.find((each) => each.temperature === value);
      return h("td", null, mean(one && pick(one), show));
    });
  const measures = [
    ["Accuracy", (one) => one.accuracy, percent],
    ...about.judges.map((judge, k) => ["Reward " + judge, (one) => one.rewards[k], fixed]),
  ].filter(([, pick]) => about.temperatures.some((one) => pick(one) !== null));
  if (!measures.length) return null;
  return h(
    "section",
    null,
    h("h2", null, "By temperature"),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "figures" },
        h("caption", { class: "unseen" }, "Figures by temperature"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "Policy"),
            h("th", { scope: "col" }, "Measure"),
            heads.map((value) => h("th", { scope: "col" }, "T ", temperature(value))),
          ),
        ),
        h(
          "tbody",
          null,
          about.methods.map((row) =>
            measures.map(([name, pick, show], i) =>
              h(
                "tr",
                { class: i ? "" : "first" },
                i === 0
                  ? h("th", { scope: "row", rowspan: measures.length }, methodName(about, row))
                  : null,
                h("td", null, name),
                cells(row, pick, show),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}
