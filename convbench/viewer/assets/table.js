// The table of the list, and the order of its rows.
import { shown } from "./columns.js";
import { h } from "./dom.js";
import { breakable } from "./format.js";
import { changed, go, here, replace } from "./route.js";

export function table(app, about, found, params) {
  if (!found.rows.length)
    return h("p", { class: "empty" }, "No conversation matches. Remove a filter.");
  const all = shown(about, params);
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
            all.map((column) => h("td", { class: column.cls }, column.cell(row))),
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
