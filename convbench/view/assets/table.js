// The table of the list: which columns there are, and their order.
import { h } from "./dom.js";
import { breakable, count, dollars, fixed, policy, result, temperature } from "./format.js";
import { changed, go, here, link, replace } from "./route.js";

function columns(about) {
  const many = (name) => (about.facets[name] ?? []).length > 1;
  return [
    { sort: "result", head: "Result", cls: "c-result", cell: (row) => result(row.result, false) },
    {
      sort: "question",
      head: "Question",
      cls: "c-question",
      cell: (row, params) => [
        h(
          "a",
          { href: link("c", row.conversation_id, params) },
          row.question || row.conversation_id,
        ),
        h(
          "span",
          { class: "under" },
          many("task") && [row.task, " · "],
          row.split,
          many("mode") && [" · ", row.mode],
          many("policy") && h("span", { class: "narrow" }, " · ", policy(row.policy)),
          row.flags.map((flag) => h("span", { class: "flag" }, flag)),
        ),
      ],
    },
    many("policy") && {
      sort: "policy",
      head: "Policy",
      cls: "c-policy",
      cell: (row) => policy(row.policy),
    },
    {
      sort: "temperature",
      head: "T",
      title: "Temperature",
      cls: "num",
      cell: (row) => temperature(row.temperature),
    },
    {
      sort: "answer",
      head: "Answer",
      cls: "c-answer",
      cell: (row) => row.answer ?? h("span", { class: "none" }, "–"),
    },
    {
      sort: "n_turns",
      head: "Turns",
      title: "Turns of the policy",
      cls: "num c-turns",
      cell: (row) => row.n_turns,
    },
    {
      sort: "words",
      head: "Words",
      title: "Words of the policy",
      cls: "num c-words",
      cell: (row) => count(row.words),
    },
    ...about.judges.slice(0, 4).map((judge, k) => ({
      sort: "reward",
      judge,
      head: judge,
      title: "Reward by " + judge,
      cls: "num c-reward",
      cell: (row) =>
        row.rewards[k] !== null
          ? fixed(row.rewards[k])
          : h(
              "span",
              {
                class: "none",
                title: row.unscored[k] ? "the judge gave no score" : "not judged",
              },
              row.unscored[k] ? "✗" : "–",
            ),
    })),
    about.totals.cost_usd > 0 && {
      sort: "cost_usd",
      head: "Cost",
      cls: "num c-cost",
      cell: (row) => dollars(row.cost_usd),
    },
  ].filter(Boolean);
}

export function table(app, about, found, params) {
  if (!found.rows.length)
    return h("p", { class: "empty" }, "No conversation is like that. Take a filter away.");
  const all = columns(about);
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "rows" },
      h("caption", { class: "unseen" }, "Conversations, one a row"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          all.map((column) => heading(about, column, params)),
        ),
      ),
      h(
        "tbody",
        null,
        found.rows.map((row) =>
          h(
            "tr",
            {
              "data-id": row.conversation_id,
              onclick: (event) => {
                if (!event.target.closest("a") && !getSelection().toString())
                  go("c", row.conversation_id, params);
              },
            },
            all.map((column) => h("td", { class: column.cls }, column.cell(row, params))),
          ),
        ),
      ),
    ),
  );
}

function heading(about, column, params) {
  const judged = (judge) =>
    judge === undefined || (params.get("judge") || about.judges[0]) === judge;
  const on = params.get("sort") === column.sort && judged(column.judge);
  const desc = Boolean(params.get("desc"));
  const click = () => {
    const values = {
      sort: column.sort,
      desc: on ? (desc ? "" : "1") : column.judge ? "1" : "",
      offset: "",
    };
    if (on && desc !== Boolean(column.judge)) Object.assign(values, { sort: "", desc: "" });
    if (column.judge && about.judges.length > 1) values.judge = column.judge;
    replace("list", null, changed(here().params, values));
  };
  return h(
    "th",
    {
      scope: "col",
      class: column.cls,
      "aria-sort": on ? (desc ? "descending" : "ascending") : null,
    },
    h(
      "button",
      { type: "button", title: column.title ?? column.head, onclick: click },
      breakable(column.head),
      h("span", { class: "arrow", "aria-hidden": "true" }, on ? (desc ? " ↓" : " ↑") : ""),
    ),
  );
}
