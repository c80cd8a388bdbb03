// One conversation: turns on the left, what became of it on the right.
import { h, set } from "./dom.js";
import { count, dollars, policy, result, temperature } from "./format.js";
import { task } from "./grids.js";
import { copier } from "./copy.js";
import { finder } from "./find.js";
import { changed, go, link } from "./route.js";
import { scorePanel } from "./score.js";
import { choose, setting } from "./settings.js";
import { foldAll, turns } from "./turns.js";
import { reference, verdict } from "./verdicts.js";

export async function render(app, at, main, current) {
  const [about, found] = await Promise.all([app.about, app.source.talk(at.id)]);
  if (!current()) return null;
  const { row } = found;
  const verdicts = h("section", { class: "verdicts", "aria-label": "Verdicts" });
  const show = (seen) =>
    set(
      verdicts,
      h("h2", null, found.verdicts.length > 1 ? "Judges" : "Judge"),
      !found.verdicts.length
        ? h("p", { class: "none" }, "Not judged yet.")
        : seen
          ? found.verdicts.map((one) => verdict(one))
          : [
              h("p", { class: "hint" }, "Hidden, so that your score is your own. "),
              h(
                "button",
                { type: "button", class: "text", onclick: () => show(true) },
                "Show it anyway",
              ),
            ],
    );
  show(true);
  const score =
    app.source.scoring && about.rubrics[row.run_no] && row.result !== "failed"
      ? scorePanel(app, found, about.rubrics[row.run_no], show)
      : null;
  const page = h(
    "article",
    { class: "talk-page" },
    header(found, at),
    tools(app, at, () => page),
    h(
      "div",
      { class: "talk-body" },
      h(
        "section",
        { class: "talk", "aria-label": "Conversation" },
        question(found),
        task(found),
        row.result === "failed" &&
          h("p", { class: "problem" }, "This attempt failed: ", row.failure),
        turns(
          found,
          () => app.source.prompts(at.id),
          app.source.calls && (() => app.source.calls(at.id)),
        ),
      ),
      h(
        "aside",
        { "aria-label": "Result, verdicts and scores" },
        outcome(found),
        verdicts,
        score?.panel,
        h("section", { class: "card" }, facts(found, about)),
      ),
    ),
  );
  set(main, page);
  page.querySelector(".find input").dispatchEvent(new Event("input"));
  const told = JSON.stringify(found);
  const move = (by) => neighbour(app, at, by);
  return {
    title: row.question?.slice(0, 60) || row.conversation_id,
    keys: {
      j: () => move(1),
      k: () => move(-1),
      u: () => back(app, at),
      t: () => foldAll(page),
      c: () => go("compare", at.id),
      s: () => (score ? score.open() : false),
      y: () => page.querySelector(".copy").click(),
    },
    // Somebody scores: nothing is drawn over it. Else only where the runs say something new of it.
    busy: () => page.querySelector(".score-form") !== null && page.isConnected,
    same: async () => JSON.stringify(await app.source.talk(at.id)) === told,
  };
}

/** Search inside, rendered or as written, copy. */
function tools(app, at, page) {
  const raw = h(
    "button",
    {
      type: "button",
      "aria-pressed": String(setting("raw")),
      title: "Markdown rendered, or text as it was written (m)",
      onclick: () => {
        choose("raw", !setting("raw"));
        app.again();
      },
    },
    "As written",
  );
  return h(
    "div",
    { class: "talk-tools" },
    finder(page, at.params.get("q") ?? ""),
    raw,
    copier(() => app.source.messages(at.id)),
  );
}

function header(found, at) {
  const { row } = found;
  const nav = h(
    "nav",
    { class: "crumbs", "aria-label": "Where this is" },
    h("a", { href: link("list", null, at.params) }, "← Conversations"),
    h("span", { class: "id", title: "conversation_id" }, row.conversation_id),
  );
  return h(
    "header",
    { class: "talk-head" },
    nav,
    h("h1", null, row.question || row.conversation_id),
    h(
      "p",
      { class: "chips" },
      [row.task, row.split, row.protocol, row.mode].map((text) =>
        h("span", { class: "chip" }, text),
      ),
      h("span", { class: "chip" }, policy(row.policy)),
      h("span", { class: "chip" }, "T ", temperature(row.temperature)),
      row.flags.map((flag) => h("span", { class: "flag" }, flag)),
    ),
    beside(found, at),
  );
}

/** Every conversation about this question, as small marks; the way to compare them. */
function beside(found, at) {
  if (found.beside.length < 2) return null;
  return h(
    "nav",
    { class: "beside", "aria-label": "Other conversations about this question" },
    h("span", { class: "beside-title" }, `${found.beside.length} answers to this question`),
    h(
      "span",
      { class: "dots" },
      found.beside.map((row) =>
        h(
          "a",
          {
            href: link("c", row.conversation_id, at.params),
            class: `dot ${row.result}`,
            "aria-current": row.conversation_id === found.row.conversation_id ? "true" : null,
            title: `${row.policy ?? "imported"}, T ${temperature(row.temperature)}: ${row.answer ?? "–"}, ${row.result}`,
          },
          row.answer && row.answer.length < 3 ? row.answer : "·",
          h(
            "span",
            { class: "unseen" },
            ` ${row.result}, temperature ${temperature(row.temperature)}, ${row.policy ?? ""}`,
          ),
        ),
      ),
    ),
    h(
      "a",
      { class: "button", href: link("compare", found.row.conversation_id) },
      "Compare side by side",
    ),
  );
}

function question(found) {
  const { question: asked } = found;
  if (!asked.choices.length) return null;
  return h(
    "section",
    { class: "question", "aria-label": "Question" },
    h(
      "ol",
      { class: "choices" },
      asked.choices.map((choice) =>
        h(
          "li",
          { class: choice.label === found.row.answer ? "picked" : "" },
          h("b", null, choice.label),
          " ",
          choice.text,
          choice.label === found.row.answer && h("span", { class: "n" }, " answered"),
        ),
      ),
    ),
  );
}

function outcome(found) {
  const { row } = found;
  return h(
    "section",
    { class: "card outcome", "aria-label": "Result" },
    h(
      "p",
      { class: "outcome-line" },
      result(row.result),
      h(
        "span",
        { class: "answer" },
        row.answer ?? (row.result === "unparsed" ? "no answer could be read" : ""),
      ),
    ),
    reference(found),
  );
}

function facts(found, about) {
  const { row } = found;
  const run = about.runs[row.run_no];
  const rows = [
    ["Example", found.question.example_id],
    ["Group", found.question.group_id],
    ["Run", run?.path ?? run?.name],
    ["Sample", row.sample],
    ["Turns", row.n_turns],
    ["Words", count(row.words)],
    ["Tokens", `${count(row.prompt_tokens)} in, ${count(row.completion_tokens)} out`],
    ["Cost", dollars(row.cost_usd)],
    ["Stop", row.stop ?? "–"],
    ...Object.entries(run?.cast ?? {}).map(([name, model]) => [name, model]),
  ];
  return [
    h("h2", null, "Facts"),
    h(
      "dl",
      { class: "facts" },
      rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value ?? "–"))),
    ),
  ];
}

function back(app, at) {
  const offset = app.last?.offset || "";
  go("list", null, app.last ? changed(app.last.params, { offset }) : at.params);
}

/** Go on within the list this came from; without one, within the whole list. */
async function neighbour(app, at, by) {
  app.last ??= { params: new URLSearchParams(at.params), offset: 0, total: Infinity, ids: [] };
  const { last } = app;
  let place = last.ids.indexOf(at.id);
  if (place < 0) return;
  if (!last.ids[place + by]) {
    const offset = last.offset + by * 50;
    if (offset < 0 || offset >= last.total) return;
    const found = await app.source.list(changed(last.params, { limit: 50, offset }));
    Object.assign(last, {
      offset,
      total: found.total,
      ids: found.rows.map((row) => row.conversation_id),
    });
    place = by > 0 ? -1 : last.ids.length;
  }
  if (last.ids[place + by]) go("c", last.ids[place + by], at.params);
}
