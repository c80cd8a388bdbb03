// Which columns the list shows: the usual ones, less and more as the reader picks.
import { h, keep, kept } from "./dom.js";
import { breakable, count, dollars, fixed, policy, result, temperature } from "./format.js";
import { link } from "./route.js";

/** Every column there can be; `usual` ones are shown where nothing was picked. */
export function columns(about, params) {
  const many = (name) => (about.facets[name] ?? []).length > 1;
  const text = (sort, head, cell, usual = false) => ({ sort, head, usual, cls: "c-text", cell });
  const number = (sort, head, title, usual, cls = "") => ({
    sort,
    head,
    title,
    usual,
    cls: "num " + cls,
    cell: (row) => count(row[sort]),
  });
  return [
    {
      sort: "result",
      head: "Result",
      usual: true,
      cls: "c-result",
      cell: (row) => [
        row.was && [result(row.was, false), h("span", { class: "n", "aria-label": "then" }, " → ")],
        result(row.result, false),
      ],
    },
    {
      sort: "question",
      head: "Question",
      usual: true,
      always: true,
      cls: "c-question",
      cell: (row) => [
        h("a", { href: link("c", row.conversation_id, params) }, row.question || row.conversation_id),
        h(
          "span",
          { class: "under" },
          many("task") && [row.task, " · "],
          row.split,
          many("mode") && [" · ", row.mode],
          many("policy") && h("span", { class: "narrow" }, " · ", policy(row.policy)),
          row.base_id && [
            " · ",
            h(
              "a",
              {
                class: "beside-base",
                href: link(
                  "compare",
                  row.conversation_id,
                  new URLSearchParams([
                    ["with", row.base_id],
                    ["with", row.conversation_id],
                    ["diff", row.base_id],
                  ]),
                ),
              },
              "beside Base's",
            ),
          ],
          row.flags.map((flag) => h("span", { class: "flag" }, flag)),
        ),
      ],
    },
    {
      sort: "policy",
      head: "Policy",
      usual: many("policy"),
      cls: "c-policy",
      cell: (row) => policy(row.policy),
    },
    {
      sort: "temperature",
      head: "T",
      title: "Temperature",
      usual: true,
      cls: "num",
      cell: (row) => temperature(row.temperature),
    },
    {
      sort: "answer",
      head: "Answer",
      usual: true,
      cls: "c-answer",
      cell: (row) => row.answer ?? h("span", { class: "none" }, "–"),
    },
    number("n_turns", "Turns", "Turns of the policy", true, "c-turns"),
    number("words", "Words", "Words of the policy", true, "c-words"),
    ...about.judges.map((judge, k) => ({
      sort: "reward",
      judge,
      head: judge,
      title: "Reward by " + judge,
      usual: k < 4 && (about.rewards[k]?.scored > 0 || about.rewards[k]?.failed > 0),
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
    {
      sort: "cost_usd",
      head: "Cost",
      usual: about.totals.cost_usd > 0,
      cls: "num c-cost",
      cell: (row) => dollars(row.cost_usd),
    },
    number("prompt_tokens", "Tokens in", "Prompt tokens", false),
    number("completion_tokens", "Tokens out", "Completion tokens", false),
    number("sample", "Sample", "Number among the samples of the question", false),
    number("attempts", "Attempts", "Attempts of this conversation", false),
    text("stop", "Stop", (row) => row.stop ?? "–"),
    text("task", "Task", (row) => row.task),
    text("split", "Split", (row) => row.split),
    text("protocol", "Protocol", (row) => row.protocol),
    text("mode", "Mode", (row) => row.mode),
    text("run", "Run", (row) => about.runs[row.run_no]?.name ?? "–"),
    {
      sort: "n",
      head: "Id",
      cls: "c-text id",
      cell: (row) => row.conversation_id,
    },
  ];
}

const name = (column) => column.judge ?? column.head;
const picks = () => {
  try {
    return JSON.parse(kept("columns", "{}")) ?? {};
  } catch {
    return {};
  }
};

/** The columns that are shown now. */
export const shown = (about, params) => {
  const picked = picks();
  return columns(about, params).filter(
    (column) => column.always || (picked[name(column)] ?? column.usual),
  );
};

let opened = false;

/** What picks them; `changed` is called after each change. */
export function picker(about, params, changed) {
  const now = new Set(shown(about, params).map(name));
  const pick = (column, on) => {
    keep("columns", JSON.stringify({ ...picks(), [name(column)]: on }));
    changed();
  };
  return h(
    "details",
    { class: "columns-picker", open: opened, ontoggle: (event) => (opened = event.target.open) },
    h("summary", null, "Columns"),
    h(
      "fieldset",
      { class: "card" },
      h("legend", { class: "unseen" }, "Columns to show"),
      columns(about, params)
        .filter((column) => !column.always)
        .map((column) =>
          h(
            "label",
            { class: "choice" },
            h("input", {
              type: "checkbox",
              checked: now.has(name(column)),
              onchange: (event) => pick(column, event.target.checked),
            }),
            h("span", null, breakable(column.judge ? "Reward " + column.judge : (column.title ?? column.head))),
          ),
        ),
      h(
        "button",
        {
          type: "button",
          class: "text",
          onclick: () => {
            keep("columns", "{}");
            changed();
          },
        },
        "Default columns",
      ),
    ),
  );
}
