// The overview: what there is, how good it is and how sure that is, and the report's pictures.
import { h, s, set } from "./dom.js";
import { count, dollars, fixed, percent, policy, words } from "./format.js";
import { methods, temperatures } from "./figures.js";
import { agreementTable } from "./score.js";
import { link } from "./route.js";
import { versus } from "./versus.js";

const BIN = 14;

export async function render(app, at, main, current) {
  const about = await app.source.overview();
  if (!current()) return null;
  app.about = Promise.resolve(about);
  const people = h("section");
  set(
    main,
    h(
      "div",
      { class: "overview-page" },
      h("h1", null, title(about)),
      totals(about),
      versus(app, about, at.params),
      methods(about),
      temperatures(about),
      rewards(about),
      people,
      pictures(about),
      runs(about),
    ),
  );
  for (const [run, labels] of (about.labels ?? []).entries()) {
    if (labels)
      app.source
        .agreement(run)
        .then((found) =>
          people.append(
            h("div", { class: "card agreement" }, h("h2", null, "People"), agreementTable(found)),
          ),
        )
        .catch(() => {});
  }
  return {
    title: "Overview",
    keys: {
      o: () => {
        location.hash = "#/list";
      },
    },
  };
}

const title = (about) => {
  const tasks = about.facets.task.map(([name]) => name);
  return tasks.length === 1 ? tasks[0] : words(tasks.length, "task");
};

function totals(about) {
  const t = about.totals;
  const to = (params) => link("list", null, new URLSearchParams(params));
  const some = (n) => n > 0;
  const cards = [
    [
      "Conversations",
      count(t.conversations),
      [words(t.groups, "group"), about.methods.length > 1 && words(about.runs.length, "run")]
        .filter(Boolean)
        .join(", "),
      to({}),
    ],
    // Of several policies there is no one accuracy: a pool of Base and trained says nothing.
    about.runs.length === 1 && [
      "Correct",
      count(t.correct),
      t.graded ? `${percent(t.correct / t.graded)} of ${count(t.graded)} graded` : "none is graded",
      to({ result: "correct" }),
    ],
    some(t.unparsed) && [
      "Unparsed",
      count(t.unparsed),
      "no answer could be read",
      to({ result: "unparsed" }),
    ],
    some(t.failed) && ["Failed", count(t.failed), "attempts that did not finish", to({ result: "failed" })],
    some(t.flagged) && ["Flagged", count(t.flagged), "by the fidelity checks", to({ flag: "any" })],
    [
      "Cost",
      dollars(t.total_usd),
      `${dollars(t.judge_usd)} of it for judging; ` +
        (t.completion_tokens === null
          ? "tokens unknown"
          : `${count(t.prompt_tokens)} tokens in, ${count(t.completion_tokens)} out`),
      null,
    ],
  ].filter(Boolean);
  return h(
    "ul",
    { class: "totals" },
    cards.map(([name, value, hint, href]) =>
      h(
        "li",
        null,
        href ? h("a", { href }, name) : h("span", null, name),
        h("strong", null, value),
        hint && h("small", null, hint),
      ),
    ),
  );
}

function rewards(about) {
  const some = about.rewards.filter((one) => one.scored);
  if (!some.length) return null;
  return h(
    "section",
    null,
    h("h2", null, "Rewards"),
    h(
      "div",
      { class: "histograms" },
      some.map((one) => {
        const top = Math.max(...one.counts);
        return h(
          "figure",
          { class: "card" },
          h(
            "figcaption",
            null,
            h("b", null, one.judge),
            h(
              "span",
              { class: "n" },
              ` ${words(one.scored, "score")}`,
              one.failed > 0 && `, ${count(one.failed)} without`,
            ),
          ),
          s(
            "svg",
            {
              viewBox: `0 0 ${BIN * one.counts.length} 96`,
              role: "img",
              "aria-label": `Rewards by ${one.judge}, from ${fixed(one.low)} to ${fixed(one.high)}`,
            },
            one.counts.map((n, i) =>
              s(
                "rect",
                {
                  x: i * BIN + 1,
                  width: BIN - 2,
                  y: 76 - (72 * n) / top,
                  height: (72 * n) / top,
                  rx: 1.5,
                  class: "column-bar",
                },
                s(
                  "title",
                  null,
                  `${count(n)} from ${fixed(one.low + ((one.high - one.low) * i) / one.counts.length)}`,
                ),
              ),
            ),
            s("line", { x1: 0, x2: BIN * one.counts.length, y1: 76.5, y2: 76.5, class: "axis" }),
            [0, 0.5, 1].map((part) =>
              s(
                "text",
                {
                  x: part * BIN * one.counts.length,
                  y: 91,
                  "text-anchor": ["start", "middle", "end"][part * 2],
                },
                fixed(one.low + (one.high - one.low) * part),
              ),
            ),
          ),
        );
      }),
    ),
  );
}

function pictures(about) {
  return h(
    "section",
    null,
    h("h2", null, "Pictures"),
    about.pictures.length
      ? h(
          "div",
          { class: "pictures" },
          about.pictures.map((one) =>
            h(
              "figure",
              { class: "card" },
              h(
                "a",
                { href: one.src, target: "_blank", rel: "noopener" },
                h("img", { src: one.src, alt: one.name.replaceAll("-", " "), loading: "lazy" }),
              ),
              h("figcaption", null, one.name.replaceAll("-", " ")),
            ),
          ),
        )
      : h(
          "p",
          { class: "hint" },
          "The report draws them: ",
          h("code", null, "convbench report --plots"),
        ),
  );
}

function runs(about) {
  return h(
    "section",
    null,
    h("h2", null, about.runs.length > 1 ? "Runs" : "Run"),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "figures" },
        h("caption", { class: "unseen" }, "Runs"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["Run", "Kind", "Task", "Protocol", "Mode", "Policy", "Made"].map((name) =>
              h("th", { scope: "col" }, name),
            ),
            ["Generation", "Judging", "Total"].map((name) =>
              h("th", { scope: "col", class: "num" }, name),
            ),
          ),
        ),
        h(
          "tbody",
          null,
          about.runs.map((run) =>
            h(
              "tr",
              null,
              h(
                "th",
                { scope: "row" },
                h(
                  "a",
                  { href: link("list", null, new URLSearchParams({ run: run.run })) },
                  run.path ?? run.name,
                ),
              ),
              [run.kind, run.task, run.protocol, run.mode].map((text) => h("td", null, text)),
              h("td", null, policy(run.policy)),
              h("td", null, run.created.slice(0, 16).replace("T", " ")),
              [run.talk_usd, run.judge_usd, run.total_usd].map((usd) =>
                h("td", { class: "num figure" }, dollars(usd)),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}
