// The column of filters: what can be chosen stands there with its count.
import { h } from "./dom.js";
import { count, short, temperature } from "./format.js";
import { changed, here, replace } from "./route.js";

const NAMES = {
  result: "Result",
  split: "Split",
  temperature: "Temperature",
  policy: "Policy",
  task: "Task",
  protocol: "Protocol",
  mode: "Mode",
  run: "Run",
  flag: "Flags",
};
const ORDER = ["correct", "wrong", "unparsed", "failed", "ungraded"];

export function filters(app, about, params, counts) {
  // The address as it is when somebody acts: the page may not have caught up with it yet.
  const act = (values) => replace("list", null, changed(here().params, { ...values, offset: "" }));
  const active = [...params.keys()].some(
    (name) => !["offset", "sort", "desc", "limit"].includes(name),
  );
  return h(
    "div",
    { class: "filters" },
    h(
      "div",
      { class: "filters-head" },
      h("h2", null, "Filters"),
      active &&
        h(
          "button",
          {
            type: "button",
            class: "text",
            onclick: () =>
              replace(
                "list",
                null,
                changed(new URLSearchParams(), {
                  sort: params.get("sort") ?? "",
                  desc: params.get("desc") ?? "",
                }),
              ),
          },
          "Clear all",
        ),
    ),
    params.get("versus") && base(about, params, act),
    Object.keys(NAMES).map((name) => facet(name, about, params, act, counts)),
    about.judges.length > 0 && reward(about, params, act),
    app.source.scoring && free(params, act),
  );
}

function shown(name, value, about) {
  if (name === "temperature") return temperature(value);
  if (name === "policy") return short(value);
  return name === "run" ? (about.runs.find((run) => run.run === value)?.name ?? value) : value;
}

/** What Base's conversation was, where the list is of pairs. */
function base(about, params, act) {
  const run = about.runs.find((one) => one.run === params.get("versus"));
  const was = new Set(params.getAll("was"));
  const toggle = (value) => {
    const now = new Set(here().params.getAll("was"));
    if (!now.delete(value)) now.add(value);
    act({ was: [...now] });
  };
  return h(
    "fieldset",
    null,
    h("legend", null, `Base's result, in ${run?.name ?? "its run"}`),
    ORDER.map((value) =>
      h(
        "label",
        { class: "choice", title: value },
        h("input", {
          type: "checkbox",
          name: "was",
          checked: was.has(value),
          onchange: () => toggle(value),
        }),
        h("span", { class: "what" }, value),
      ),
    ),
    h(
      "button",
      { type: "button", class: "text", onclick: () => act({ versus: "", was: "" }) },
      "Unpaired ones too",
    ),
  );
}

/** Put other numbers beside the choices, and touch nothing else: somebody may be typing. */
export function recount(frame, counts) {
  const now = new Map();
  for (const [name, values] of Object.entries(counts))
    for (const [value, n] of values) now.set(JSON.stringify([name, String(value)]), n);
  for (const label of frame.querySelectorAll("[data-facet]")) {
    const n = now.get(label.dataset.facet) ?? 0;
    label.classList.toggle("spent", n === 0);
    label.querySelector(".n").textContent = count(n);
  }
}

function facet(name, about, params, act, counts) {
  const now = counts && new Map(counts[name].map(([value, n]) => [String(value), n]));
  const values = (about.facets[name] ?? []).map(([value, n]) => [
    value,
    now ? (now.get(String(value)) ?? 0) : n,
  ]);
  const chosen = new Set(params.getAll(name));
  if (values.length < 2 && name !== "flag" && !chosen.size) return null;
  if (!values.length) return null;
  const rows =
    name === "result"
      ? [...values].sort((a, b) => ORDER.indexOf(a[0]) - ORDER.indexOf(b[0]))
      : values;
  const all = name === "flag" && rows.length > 1 ? [["any", null], ...rows] : rows;
  const toggle = (value) => {
    const now = new Set(here().params.getAll(name));
    if (!now.delete(value)) now.add(value);
    act({ [name]: [...now] });
  };
  return h(
    "fieldset",
    null,
    h("legend", null, NAMES[name]),
    h(
      "div",
      { class: all.length > 8 ? "many" : "" },
      all.map(([value, n]) =>
        h(
          "label",
          {
            class: n === 0 ? "choice spent" : "choice",
            title: String(value),
            "data-facet": n === null ? null : JSON.stringify([name, String(value)]),
          },
          h("input", {
            type: "checkbox",
            name,
            checked: chosen.has(String(value)),
            onchange: () => toggle(String(value)),
          }),
          h("span", { class: "what" }, shown(name, value, about)),
          n !== null && h("span", { class: "n" }, count(n)),
        ),
      ),
    ),
  );
}

function reward(about, params, act) {
  const box = (name, text) =>
    h(
      "label",
      { class: "end" },
      h("span", { class: "unseen" }, text),
      h("input", {
        type: "number",
        step: "any",
        placeholder: name,
        value: params.get(name) ?? "",
        name,
        onchange: (event) => act({ [name]: event.target.value }),
      }),
    );
  return h(
    "fieldset",
    null,
    h("legend", null, "Reward"),
    h(
      "label",
      { class: "stack" },
      h("span", { class: "unseen" }, "Judge"),
      h(
        "select",
        { name: "judge", onchange: (event) => act({ judge: event.target.value }) },
        h(
          "option",
          { value: "" },
          about.judges.length > 1 ? `any judge (range: ${about.judges[0]})` : "any judge, or none",
        ),
        about.judges.map((judge) =>
          h(
            "option",
            { value: judge, selected: params.get("judge") === judge },
            "judged by " + judge,
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "range" },
      box("min", "Least reward"),
      h("span", { "aria-hidden": "true" }, "to"),
      box("max", "Greatest reward"),
    ),
  );
}

function free(params, act) {
  const area = h("textarea", {
    name: "where",
    rows: 3,
    spellcheck: "false",
    placeholder: "words > 200 AND NOT correct",
    value: params.get("where") ?? "",
    "aria-describedby": "where-about",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        act({ where: area.value.trim() });
      }
    },
  });
  return h(
    "fieldset",
    null,
    h("legend", null, h("label", { for: "where" }, "SQL condition")),
    ((area.id = "where"), area),
    h(
      "div",
      { class: "row" },
      h("small", { id: "where-about" }, "as after WHERE in convbench query"),
      h("button", { type: "button", onclick: () => act({ where: area.value.trim() }) }, "Apply"),
    ),
  );
}
