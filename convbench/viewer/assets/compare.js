// The answers of several policies, samples and judges to one question, side by side.
import { h, set } from "./dom.js";
import { fixed, policy, result, temperature } from "./format.js";
import { diffed } from "./diff.js";
import { changed, go, link, replace } from "./route.js";
import { given } from "./score.js";
import { choose, setting } from "./settings.js";
import { body, foldAll } from "./turns.js";
import { has, reference, verdict } from "./verdicts.js";

const FIRST = 8;

export async function render(app, at, main, current) {
  const named = at.params.getAll("with");
  const [about, first] = await Promise.all([app.about, app.source.talk(at.id)]);
  const chosen = named.length ? named : spread(first);
  const all = await app.source.compare(at.id, chosen);
  if (!current()) return null;
  const base = all.find((found) => found.row.conversation_id === at.params.get("diff"));
  const page = h(
    "article",
    { class: "compare-page" },
    h(
      "header",
      { class: "talk-head" },
      h(
        "nav",
        { class: "crumbs", "aria-label": "Where this is" },
        h("a", { href: link("c", at.id) }, "← This conversation"),
      ),
      h("h1", null, first.row.question || first.row.example_id),
      choices(first),
      reference(first),
      picker(first, all, at),
      all.length > 1 && against(app, all, base, at),
    ),
    h(
      "div",
      { class: setting("narrow") ? "columns fitted" : "columns", tabindex: "0", role: "group", "aria-label": "Answers side by side" },
      all.map((found) => column(found, about, base)),
    ),
  );
  set(main, page);
  return { title: "Compare", keys: { u: () => go("c", at.id), t: () => foldAll(page) } };
}

/** Which answer the others are read against, and whether all of them fit into the window. */
function against(app, all, base, at) {
  return h(
    "div",
    { class: "row against" },
    h(
      "label",
      null,
      "Differences from ",
      h(
        "select",
        {
          name: "diff",
          onchange: (event) =>
            replace("compare", at.id, changed(at.params, { diff: event.target.value })),
        },
        h("option", { value: "" }, "none: texts as they are"),
        all.map(({ row }) =>
          h(
            "option",
            { value: row.conversation_id, selected: row === base?.row },
            `${row.policy ?? "imported"} · T ${temperature(row.temperature)} · sample ${row.sample}`,
          ),
        ),
      ),
    ),
    h(
      "label",
      { class: "choice" },
      h("input", {
        type: "checkbox",
        name: "narrow",
        checked: setting("narrow"),
        onchange: (event) => {
          choose("narrow", event.target.checked);
          app.again();
        },
      }),
      "Fit all into the window",
    ),
  );
}

/** The first choice: this one, then one of each policy in turn. */
function spread(first) {
  const groups = Map.groupBy(
    first.beside.filter((row) => row.conversation_id !== first.row.conversation_id),
    (row) => `${row.policy}|${row.protocol}|${row.mode}`,
  );
  const out = [first.row.conversation_id];
  for (let i = 0; out.length < FIRST && [...groups.values()].some((rows) => rows[i]); i++) {
    for (const rows of groups.values())
      if (rows[i] && out.length < FIRST) out.push(rows[i].conversation_id);
  }
  return first.beside.map((row) => row.conversation_id).filter((id) => out.includes(id));
}

const choices = (first) =>
  first.question.choices.length > 0 &&
  h(
    "ol",
    { class: "choices" },
    first.question.choices.map((choice) =>
      h("li", null, h("b", null, choice.label), " ", choice.text),
    ),
  );

function picker(first, all, at) {
  if (first.beside.length < 2) return null;
  const shown = new Set(all.map((found) => found.row.conversation_id));
  const toggle = (id) => {
    if (shown.has(id)) shown.delete(id);
    else shown.add(id);
    if (shown.size)
      go("compare", at.id, changed(at.params, { with: [...shown] }));
  };
  return h(
    "details",
    { class: "picker" },
    h("summary", null, `${all.length} of ${first.beside.length} answers shown`),
    h(
      "fieldset",
      null,
      h("legend", { class: "unseen" }, "Answers to show"),
      first.beside.map((row) =>
        h(
          "label",
          { class: "choice" },
          h("input", {
            type: "checkbox",
            checked: shown.has(row.conversation_id),
            onchange: () => toggle(row.conversation_id),
          }),
          h(
            "span",
            { class: "what" },
            policy(row.policy),
            " · T ",
            temperature(row.temperature),
            ` · sample ${row.sample} · `,
            result(row.result),
          ),
        ),
      ),
    ),
  );
}

/** What was said in a turn, as one text. */
const text = (turn) => turn.parts.map((part) => part.text ?? part.think ?? "[picture]").join("\n");

function column(found, about, base) {
  const { row } = found;
  const said = found.turns.filter((turn) => turn.policy);
  const first = base && base !== found ? base.turns.filter((turn) => turn.policy) : null;
  const run = about.runs[row.run_no];
  const variant = [
    about.facets.protocol?.length > 1 && row.protocol,
    about.facets.mode?.length > 1 && row.mode,
    run?.checkpoint && "eval",
  ]
    .filter(Boolean)
    .join(" · ");
  return h(
    "section",
    {
      class: "column",
      "aria-label": `${row.policy ?? "imported"}, temperature ${temperature(row.temperature)}`,
    },
    h(
      "header",
      null,
      h("h2", null, h("a", { href: link("c", row.conversation_id) }, policy(row.policy))),
      h(
        "p",
        { class: "n" },
        "T ",
        temperature(row.temperature),
        ` · sample ${row.sample}`,
        variant && " · " + variant,
      ),
      h(
        "p",
        { class: "outcome-line" },
        result(row.result),
        h("span", { class: "answer" }, row.answer ?? ""),
      ),
      grid([...found.verdicts, ...people(found, about.rubrics[found.row.run_no])]),
      why(found),
    ),
    said.length
      ? said.map((turn, i) =>
          h(
            "details",
            { class: "stage", open: i === said.length - 1 },
            h(
              "summary",
              null,
              `${i + 1}. ${turn.step}`,
              base === found && h("span", { class: "chip" }, "the others differ from this"),
            ),
            first ? diffed(first[i] ? text(first[i]) : "", text(turn)) : body(turn.parts),
          ),
        )
      : h("p", { class: "none" }, row.failure ?? "The policy said nothing."),
  );
}

/** What the judges said, folded. */
function why(found) {
  const said = found.verdicts.filter((one) => one.failure || one.scores.some((each) => each.why));
  if (!said.length) return null;
  return h(
    "details",
    { class: "stage" },
    h("summary", null, "Why"),
    said.map((one) => verdict(one)),
  );
}

/** People's labels as verdicts. */
const people = (found, rubric) =>
  found.labels.map((label) => ({
    judge: label.rater,
    scores: given(label, rubric).map(([name, title]) => ({
      name,
      label: title,
      score: label[name],
    })),
  }));

/** `gpt-4o` of `openai/gpt-4o`, `rubric@gpt-4o` of `rubric@openai/gpt-4o`. */
const tail = (judge) => judge.replace(/(^|@)[^@]*\//, "$1");

/** Judges and people by column, metrics by row, the reward last. */
function grid(given) {
  if (!given.length) return null;
  const metrics = [
    ...new Map(given.flatMap((one) => one.scores.filter(has)).map((one) => [one.name, one.label])).entries(),
  ];
  const cell = (one, name) => {
    const score = one.scores.find((each) => each.name === name);
    return h("td", { class: "num", title: score?.why }, one.failure ? "–" : fixed(score?.score, 1));
  };
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "small judges" },
      h("caption", { class: "unseen" }, "Verdicts"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, h("span", { class: "unseen" }, "Metric")),
          given.map((one) =>
            h(
              "th",
              { scope: "col", class: "num", title: one.judge },
              h("span", { class: "upright" }, tail(one.judge)),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        metrics.map(([name, label]) =>
          h(
            "tr",
            null,
            h("th", { scope: "row" }, label),
            given.map((one) => cell(one, name)),
          ),
        ),
        h(
          "tr",
          { class: "headline" },
          h("th", { scope: "row" }, "Reward"),
          given.map((one) =>
            h(
              "td",
              { class: "num", title: one.failure ?? undefined },
              one.failure
                ? [h("span", { "aria-hidden": "true" }, "✗"), h("span", { class: "unseen" }, "no score")]
                : fixed(one.reward),
            ),
          ),
        ),
      ),
    ),
  );
}
