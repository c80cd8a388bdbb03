// Each policy against Base on the same questions: the difference, and what became of both.
import { h, s, set } from "./dom.js";
import { count, fixed, percent, policy, words } from "./format.js";
import { changed, here, link, replace } from "./route.js";

const ORDER = ["correct", "wrong", "unparsed", "failed", "ungraded"];

/** The section; `source` is asked for the pairs. Nothing where there is nothing to pair. */
export function versus(app, about, params) {
  const place = h("section", { class: "versus", "aria-label": "Against Base" });
  if (about.runs.length < 2) return place;
  set(place, h("p", { class: "wait" }, "Pairing …"));
  app.source
    .versus(params.get("base") ?? "")
    .then((found) => set(place, drawn(about, found)))
    .catch((error) => set(place, h("p", { class: "problem", role: "alert" }, error.message)));
  return place;
}

function drawn(about, found) {
  const first = found.rows.filter((row) => row.split !== "train");
  const rest = found.rows.filter((row) => row.split === "train");
  return [
    h(
      "div",
      { class: "versus-head" },
      h("h2", null, "Against Base, on the same questions"),
      baseChoice(about, found.base),
    ),
    h(
      "p",
      { class: "hint" },
      "Paired: the same question, sample and temperature. Difference with its 95% interval by group; p by Holm over these rows. Click a number to see its conversations.",
    ),
    !found.rows.length && h("p", { class: "empty" }, "No two of these runs share a question."),
    h("div", { class: "pairings" }, (first.length ? first : rest).map((row) => card(about, row))),
    first.length > 0 &&
      rest.length > 0 &&
      h(
        "details",
        null,
        h("summary", null, "The questions of split train, which training may have seen"),
        h("div", { class: "pairings" }, rest.map((row) => card(about, row))),
      ),
  ];
}

function baseChoice(about, base) {
  if (about.runs.length < 3) return null;
  return h(
    "label",
    { class: "base-choice" },
    "Base ",
    h(
      "select",
      {
        name: "base",
        onchange: (event) =>
          replace("overview", null, changed(here().params, { base: event.target.value })),
      },
      h("option", { value: "" }, "each run's own"),
      about.runs.map((run) => h("option", { value: run.run, selected: base === run.run }, run.name)),
    ),
  );
}

function card(about, row) {
  const [base, run] = [about.runs[row.base_no], about.runs[row.run_no]];
  const names = ["Accuracy", ...about.judges.map((judge) => "Reward " + judge)];
  return h(
    "article",
    { class: "card pairing" },
    h(
      "h3",
      null,
      policy(run.policy),
      h("span", { class: "n" }, " against ", policy(base.policy)),
    ),
    h(
      "p",
      { class: "n" },
      [
        run.name !== run.policy && run.name,
        row.split && `split ${row.split}`,
        words(row.pairs, "pair"),
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    row.apart.length > 0 &&
      h(
        "p",
        { class: "apart" },
        h("span", { class: "flag" }, "not alike"),
        " ",
        row.apart.join("; "),
      ),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "small differences" },
        h("caption", { class: "unseen" }, "Paired differences"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, h("span", { class: "unseen" }, "Measure")),
            ["Base", "Policy", "Difference"].map((name) => h("th", { scope: "col", class: "num" }, name)),
            h("th", { scope: "col" }, h("span", { class: "unseen" }, "Interval")),
            h("th", { scope: "col", class: "num" }, "p"),
          ),
        ),
        h(
          "tbody",
          null,
          names.map((name, k) => row.measures[k] && measure(name, row.measures[k], k ? fixed : percent)),
        ),
      ),
    ),
    flips(about, row, base, run),
    matrix(row, base, run),
  );
}

const signed = (value, show) => (value < 0 ? "−" : "+") + show(Math.abs(value));

/** `[−0.05, +0.10]`: the ends of the 95% interval; ± stands for a standard error elsewhere. */
const bounds = (one, show) =>
  `[${[-1, 1].map((side) => signed(one.difference + side * one.margin, show)).join(", ")}]`;

function measure(name, one, show) {
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, name),
    h("td", { class: "num" }, show(one.was)),
    h("td", { class: "num" }, show(one.now)),
    h(
      "td",
      { class: "num figure", title: `${words(one.n, "pair")} in ${words(one.groups, "group")}` },
      h("b", null, signed(one.difference, show)),
      one.margin !== null && h("span", { class: "error" }, " ", bounds(one, show)),
    ),
    h("td", null, interval(one)),
    h("td", { class: "num" }, one.adjusted === null ? "–" : one.adjusted < 0.001 ? "<.001" : fixed(one.adjusted, 3)),
  );
}

/** The difference as a dot and its interval as a line around no difference. */
function interval(one) {
  const reach = Math.max(0.05, Math.abs(one.difference) + (one.margin ?? 0));
  const x = (value) => 50 + (46 * value) / reach;
  return s(
    "svg",
    { class: "plot", viewBox: "0 0 100 14", "aria-hidden": "true" },
    s("line", { x1: 50, x2: 50, y1: 1, y2: 13, class: "axis" }),
    one.margin !== null &&
      s("line", {
        x1: x(one.difference - one.margin),
        x2: x(one.difference + one.margin),
        y1: 7,
        y2: 7,
        class: "whisker",
      }),
    s("circle", { cx: x(one.difference), cy: 7, r: 3.2, class: "point" }),
  );
}

function at(row, base, run, was, now) {
  const params = new URLSearchParams({ run: run.run, versus: base.run });
  if (row.split) params.set("split", row.split);
  for (const name of was) params.append("was", name);
  for (const name of now) params.append("result", name);
  return link("list", null, params);
}

const MISSED = ["wrong", "unparsed"];

function flips(about, row, base, run) {
  if (!row.matrix.correct && !row.gained) return null;
  return h(
    "p",
    { class: "flips" },
    h(
      "a",
      { class: "button gained", href: at(row, base, run, MISSED, ["correct"]) },
      `${count(row.gained)} gained`,
    ),
    h(
      "a",
      { class: "button lost", href: at(row, base, run, ["correct"], MISSED) },
      `${count(row.lost)} lost`,
    ),
  );
}

function matrix(row, base, run) {
  const columns = ORDER.filter((name) => Object.values(row.matrix).some((one) => one[name]));
  const rows = ORDER.filter((name) => row.matrix[name]);
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "small matrix" },
      h("caption", null, "Base's results down, the policy's across"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, "Base ↓"),
          columns.map((name) => h("th", { scope: "col", class: "num" }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((was) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, was),
            columns.map((now) => {
              const n = row.matrix[was][now] ?? 0;
              const kind = was === now ? "same" : now === "correct" ? "up" : was === "correct" ? "down" : "";
              return h(
                "td",
                { class: `num ${kind}${n ? "" : " zero"}` },
                n ? h("a", { href: at(row, base, run, [was], [now]), "aria-label": `${n} ${was}, then ${now}` }, count(n)) : "0",
              );
            }),
          ),
        ),
      ),
    ),
  );
}
