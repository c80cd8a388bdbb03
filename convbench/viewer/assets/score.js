// A person scores a conversation on the rubric; the labels lie in the run.
import { h, keep, kept, say, set } from "./dom.js";
import { fixed, words } from "./format.js";

/** The panel. `changed` is told whether the judges' verdicts may be seen now. */
export function scorePanel(app, found, rubric, changed) {
  const panel = h("section", { class: "card score", "aria-labelledby": "score-title" });
  let rater = kept("rater", "");
  const mine = () => found.labels.find((label) => label.rater === rater);
  const closed = () => {
    changed(true);
    const own = mine();
    set(
      panel,
      h("h2", { id: "score-title" }, "People"),
      found.labels.map((label) => scored(label, rubric)),
      h(
        "button",
        { type: "button", class: "primary", onclick: open },
        own ? "Change my score" : "Score this conversation",
      ),
      found.labels.length > 0 && agreement(app, found.row.run_no),
    );
  };
  const open = () => {
    changed(Boolean(mine()));
    const form = draw(rubric, mine(), rater);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(form, false);
    });
    form.querySelector(".cancel").addEventListener("click", closed);
    form.addEventListener("keydown", digit);
    form.querySelector(".remove")?.addEventListener("click", () => send(form, true));
    set(panel, h("h2", { id: "score-title" }, "Your score"), form);
    panel.scrollIntoView({ block: "nearest" });
    form.querySelector(rater ? "input[type=radio], input[type=number]" : "[name=rater]").focus();
  };
  const send = async (form, remove) => {
    const data = new FormData(form);
    const names = rubric.metrics.map((metric) => metric.name);
    const scores = remove
      ? {}
      : Object.fromEntries(
          names
            .filter((name) => (data.get(name) ?? "") !== "")
            .map((name) => [name, Number(data.get(name))]),
        );
    const problem = form.querySelector("[role=alert]");
    try {
      const missing = rubric.metrics.find((metric) => metric.needed && !(metric.name in scores));
      if (!remove && missing) throw new Error(`Give ${missing.label}: the reward is made of it.`);
      if (!remove && rubric.note && !data.get("note").trim())
        throw new Error("Write a note: this rubric requires words for the scores.");
      const row = await app.source.score({
        conversation_id: found.row.conversation_id,
        rater: data.get("rater"),
        scores,
        note: data.get("note"),
      });
      rater = row.rater;
      keep("rater", rater);
      found.labels = [
        ...found.labels.filter((one) => one.rater !== rater),
        ...(remove ? [] : [row]),
      ];
      say(remove ? "score removed" : "score kept");
      closed();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  closed();
  return { panel, open };
}

let pressed = { value: "", scale: null, time: 0 };

/** A digit scores the metric in focus and goes on to the next; 1 and then 0, quickly, are 10. */
function digit(event) {
  const focused = event.target.closest?.(".scale");
  if (!/^[0-9]$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  const ten = event.key === "0" && pressed.value === "1" && event.timeStamp - pressed.time < 700;
  const scale = ten ? pressed.scale : focused;
  const input = scale?.querySelector(`input[value="${ten ? 10 : event.key}"]`);
  if (!scale || (!ten && event.target.type !== "radio")) return;
  event.preventDefault();
  event.stopPropagation();
  if (!input) return;
  input.checked = true;
  pressed = { value: ten ? "" : event.key, scale, time: event.timeStamp };
  const all = [...event.currentTarget.querySelectorAll(".scale")];
  const next = all[all.indexOf(scale) + 1];
  const goal = next ? (next.querySelector("input:checked") ?? next.querySelector("input")) : null;
  (goal ?? event.currentTarget.querySelector("textarea")).focus();
}

function draw(rubric, own, rater) {
  return h(
    "form",
    { class: "score-form", autocomplete: "off", novalidate: true },
    h(
      "label",
      { class: "stack" },
      "Your name",
      h("input", { name: "rater", required: true, maxlength: 80, value: rater }),
    ),
    rubric.metrics.map((metric) => scale(metric, own?.[metric.name])),
    h(
      "label",
      { class: "stack" },
      h("span", null, "Note", rubric.note && h("span", { class: "must" }, "needed")),
      h("textarea", { name: "note", rows: 2, maxlength: 10000, value: own?.note ?? "" }),
    ),
    h("p", { role: "alert", class: "alert" }),
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", class: "primary" }, "Save"),
      h("button", { type: "button", class: "cancel" }, "Cancel"),
      own && h("button", { type: "button", class: "remove text" }, "Remove my score"),
    ),
  );
}

function scale(metric, value) {
  const { lowest, highest } = metric;
  const title = [
    metric.label,
    metric.needed && h("span", { class: "must" }, "needed"),
    metric.weight && h("span", { class: "must" }, `weight ${metric.weight}`),
  ];
  const about = metric.about && h("small", null, metric.about);
  if (highest - lowest > 10 || !Number.isInteger(lowest) || !Number.isInteger(highest)) {
    return h(
      "label",
      { class: "stack" },
      title,
      about,
      h("input", {
        type: "number",
        name: metric.name,
        min: lowest,
        max: highest,
        step: "any",
        placeholder: `${lowest} to ${highest}`,
        value: value ?? "",
      }),
    );
  }
  const steps = Array.from({ length: highest - lowest + 1 }, (_, i) => lowest + i);
  return h(
    "fieldset",
    { class: "scale" },
    h("legend", null, title),
    about,
    h(
      "div",
      { class: "steps" },
      steps.map((step) =>
        h(
          "label",
          null,
          h("input", {
            type: "radio",
            name: metric.name,
            value: step,
            checked: value !== undefined && Math.round(value) === step,
          }),
          h("span", null, step),
        ),
      ),
    ),
  );
}

const PLAIN = ["conversation_id", "rater", "note"];

/** Name and title of what a label scores; by name where it was given by another rubric. */
export const given = (label, rubric) => {
  const titles = new Map(rubric?.metrics.map((metric) => [metric.name, metric.label]));
  const order = [...titles.keys(), ...Object.keys(label)];
  return [...new Set(order)]
    .filter((name) => label[name] !== undefined && !PLAIN.includes(name))
    .map((name) => [name, titles.get(name) ?? name]);
};

function scored(one, rubric) {
  return h(
    "div",
    { class: "given" },
    h("b", null, one.rater),
    h(
      "span",
      { class: "n" },
      given(one, rubric).map(([name, title], i) => [i ? " · " : "", title, " ", one[name]]),
    ),
    one.note && h("p", { class: "said" }, one.note),
  );
}

function agreement(app, run) {
  const place = h(
    "div",
    { class: "agreement" },
    h("p", { class: "wait" }, "Comparing with the judges …"),
  );
  app.source
    .agreement(run)
    .then((found) => set(place, agreementTable(found)))
    .catch((error) => set(place, h("p", { role: "alert" }, error.message)));
  return place;
}

export function agreementTable(found) {
  if (!found.labels) return null;
  const head = ["Judge", "Common", "Equal", "κ", "ρ", "Δ"];
  const about = [
    "",
    "Conversations that both scored",
    "Share of them with the same score",
    "Quadratically weighted kappa",
    "Spearman",
    "Judge minus people, mean",
  ];
  return [
    h("h3", null, `Agreement on “${found.metric}”`),
    found.judges.length > 0
      ? h(
          "div",
          { class: "wide" },
          h(
            "table",
            { class: "small" },
            h("caption", { class: "unseen" }, "People and judges"),
            h(
              "thead",
              null,
              h(
                "tr",
                null,
                head.map((name, i) =>
                  h("th", { scope: "col", title: about[i], class: i ? "num" : "" }, name),
                ),
              ),
            ),
            h(
              "tbody",
              null,
              found.judges.map((row) =>
                h(
                  "tr",
                  null,
                  h("th", { scope: "row" }, row.judge),
                  h("td", { class: "num" }, row.common),
                  [row.equal, row.kappa, row.correlation, row.difference].map((value) =>
                    h("td", { class: "num" }, fixed(value)),
                  ),
                ),
              ),
            ),
          ),
        )
      : h("p", { class: "none" }, "No judge has scored these yet."),
    h(
      "p",
      { class: "hint" },
      words(found.labels, "label"),
      " in ",
      h("code", null, found.file),
      ". As a judge: ",
      h("code", null, found.command),
    ),
  ];
}
