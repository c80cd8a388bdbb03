// The overview: what there is, how good it is and how sure that is, and the report's pictures.
import { h, s, set } from "./dom.js";
import { count, dollars, fixed, mean, percent, policy, temperature, words } from "./format.js";
import { agreementTable } from "./score.js";
import { link } from "./route.js";

const BIN = 14;

export async function render(app, at, main, current) {
  const about = await app.source.overview();
  if (!current()) return null;
  app.about = Promise.resolve(about);
  const people = h("section");
  set(main, h("div", { class: "overview-page" }, h("h1", null, title(about)), totals(about), methods(about), temperatures(about),
    rewards(about), people, pictures(about), runs(about)));
  for (const [run, labels] of (about.labels ?? []).entries()) {
    if (labels) app.source.agreement(run).then((found) => people.append(h("div", { class: "card agreement" }, h("h2", null, "People"), agreementTable(found)))).catch(() => {});
  }
  return { title: "Overview", keys: { o: () => { location.hash = "#/list"; } } };
}

const title = (about) => {
  const tasks = about.facets.task.map(([name]) => name);
  return tasks.length === 1 ? tasks[0] : words(tasks.length, "task");
};

function totals(about) {
  const t = about.totals;
  const graded = t.conversations - t.failed;
  const to = (params) => link("list", null, new URLSearchParams(params));
  const cards = [
    ["Conversations", count(t.conversations), words(t.groups, "group"), to({})],
    ["Correct", count(t.correct), graded ? percent(t.correct / graded) + " of those that ended" : null, to({ result: "correct" })],
    ["Unparsed", count(t.unparsed), "no answer could be read", to({ result: "unparsed" })],
    ["Failed", count(t.failed), "attempts without an end", to({ result: "failed" })],
    ["Flagged", count(t.flagged), "by the fidelity checks", to({ flag: "any" })],
    ["Cost", dollars(t.cost_usd), t.completion_tokens === null ? "tokens unknown" : `${count(t.prompt_tokens)} tokens in, ${count(t.completion_tokens)} out`, null],
  ];
  return h("ul", { class: "totals" }, cards.map(([name, value, hint, href]) => h("li", null,
    href ? h("a", { href }, name) : h("span", null, name), h("strong", null, value), hint && h("small", null, hint))));
}

/** A mean as a dot, its standard error twice as a line, on a scale from 0 to 1. */
function dot(figure) {
  if (!figure) return null;
  const x = (value) => 2 + 96 * Math.max(0, Math.min(1, value));
  const { mean: at, error } = figure;
  return s("svg", { class: "plot", viewBox: "0 0 100 14", "aria-hidden": "true" },
    s("line", { x1: 2, x2: 98, y1: 7, y2: 7, class: "axis" }), [0, 0.5, 1].map((v) => s("line", { x1: x(v), x2: x(v), y1: 4, y2: 10, class: "axis" })),
    error !== null && s("line", { x1: x(at - 2 * error), x2: x(at + 2 * error), y1: 7, y2: 7, class: "whisker" }), s("circle", { cx: x(at), cy: 7, r: 3.2, class: "point" }));
}

function methodName(about, row) {
  const many = (name) => about.facets[name]?.length > 1;
  const run = about.runs[row.run_no];
  const more = [many("task") && row.task, many("protocol") && row.protocol, many("mode") && row.mode, many("split") && row.split, run?.kind === "eval" && "eval",
    many("run") && !run?.checkpoint && row.run.slice(0, 15)].filter(Boolean);
  const params = new URLSearchParams({ run: row.run, split: row.split ?? "" });
  return [h("a", { href: link("list", null, params) }, policy(row.policy)), more.length > 0 && h("span", { class: "under" }, more.join(" · "))];
}

function methods(about) {
  return h("section", null, h("h2", null, "Policies"), h("p", { class: "hint" }, "Mean ± standard error, by group: the independent unit. The line is two standard errors to each side, on a scale from 0 to 1."),
    h("div", { class: "wide" }, h("table", { class: "figures" }, h("caption", { class: "unseen" }, "Figures by policy"),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Policy"), h("th", { scope: "col", class: "num" }, "Count"), h("th", { scope: "col", colspan: 2 }, "Accuracy"),
        about.judges.map((judge) => h("th", { scope: "col", colspan: 2 }, "Reward ", h("span", { class: "n" }, judge))), ["Unparsed", "Failed", "Flagged", "Turns", "Words"].map((name) => h("th", { scope: "col", class: "num" }, name)))),
      h("tbody", null, about.methods.map((row) => h("tr", null, h("th", { scope: "row" }, methodName(about, row)), h("td", { class: "num" }, count(row.conversations)),
        h("td", { class: "p" }, dot(row.accuracy)), h("td", null, mean(row.accuracy, percent)), row.rewards.map((one) => [h("td", { class: "p" }, dot(one)), h("td", null, mean(one))]),
        [row.unparsed, row.failed, row.flagged].map((n) => h("td", { class: `num${n ? "" : " zero"}` }, count(n))), h("td", { class: "num" }, fixed(row.n_turns, 1)), h("td", { class: "num" }, fixed(row.words, 0))))))));
}

function temperatures(about) {
  if (about.facets.temperature.length < 2) return null;
  const heads = about.facets.temperature.map(([value]) => value);
  const key = (row) => `${row.run_no}|${row.policy}|${row.split}`;
  const byMethod = Map.groupBy(about.temperatures, key);
  const cells = (row, pick, show) => heads.map((value) => {
    const one = byMethod.get(key(row))?.find((each) => each.temperature === value);
    return h("td", null, mean(one && pick(one), show));
  });
  const measures = [["Accuracy", (one) => one.accuracy, percent], ...about.judges.map((judge, k) => ["Reward " + judge, (one) => one.rewards[k], fixed])];
  return h("section", null, h("h2", null, "By temperature"), h("div", { class: "wide" }, h("table", { class: "figures" }, h("caption", { class: "unseen" }, "Figures by temperature"),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Policy"), h("th", { scope: "col" }, "Measure"), heads.map((value) => h("th", { scope: "col" }, "T ", temperature(value))))),
    h("tbody", null, about.methods.map((row) => measures.map(([name, pick, show], i) => h("tr", { class: i ? "" : "first" },
      i === 0 ? h("th", { scope: "row", rowspan: measures.length }, methodName(about, row)) : null, h("td", null, name), cells(row, pick, show))))))));
}

function rewards(about) {
  const some = about.rewards.filter((one) => one.scored);
  if (!some.length) return null;
  return h("section", null, h("h2", null, "Rewards"), h("div", { class: "histograms" }, some.map((one) => {
    const top = Math.max(...one.counts);
    return h("figure", { class: "card" }, h("figcaption", null, h("b", null, one.judge), h("span", { class: "n" }, ` ${words(one.scored, "score")}`, one.failed > 0 && `, ${count(one.failed)} without`)),
      s("svg", { viewBox: `0 0 ${BIN * one.counts.length} 96`, role: "img", "aria-label": `Rewards by ${one.judge}, from ${fixed(one.low)} to ${fixed(one.high)}` },
        one.counts.map((n, i) => s("rect", { x: i * BIN + 1, width: BIN - 2, y: 76 - 72 * n / top, height: 72 * n / top, rx: 1.5, class: "column-bar" }, s("title", null, `${count(n)} from ${fixed(one.low + (one.high - one.low) * i / one.counts.length)}`))),
        s("line", { x1: 0, x2: BIN * one.counts.length, y1: 76.5, y2: 76.5, class: "axis" }),
        [0, 0.5, 1].map((part) => s("text", { x: part * BIN * one.counts.length, y: 91, "text-anchor": ["start", "middle", "end"][part * 2] }, fixed(one.low + (one.high - one.low) * part)))));
  })));
}

function pictures(about) {
  return h("section", null, h("h2", null, "Pictures"), about.pictures.length ? h("div", { class: "pictures" }, about.pictures.map((one) => h("figure", { class: "card" },
    h("a", { href: one.src, target: "_blank", rel: "noopener" }, h("img", { src: one.src, alt: one.name.replaceAll("-", " "), loading: "lazy" })), h("figcaption", null, one.name.replaceAll("-", " ")))))
    : h("p", { class: "hint" }, "The report draws some: ", h("code", null, "convbench report --plots")));
}

function runs(about) {
  return h("section", null, h("h2", null, about.runs.length > 1 ? "Runs" : "Run"), h("div", { class: "wide" }, h("table", { class: "figures" }, h("caption", { class: "unseen" }, "Runs"),
    h("thead", null, h("tr", null, ["Run", "Kind", "Task", "Protocol", "Mode", "Policy", "Made"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, about.runs.map((run) => h("tr", null, h("th", { scope: "row" }, h("a", { href: link("list", null, new URLSearchParams({ run: run.run })) }, run.path ?? run.run)),
      [run.kind, run.task, run.protocol, run.mode].map((text) => h("td", null, text)), h("td", null, policy(run.policy)), h("td", null, run.created.slice(0, 16).replace("T", " "))))))));
}
