// The labelling queue: one conversation at a time, blind, by keyboard alone.
import { h, keep, kept, say, set } from "./dom.js";
import { words } from "./format.js";
import { foldAll, turns } from "./turns.js";
import { reference } from "./verdicts.js";

export async function render(app, at, main, current) {
  const rater = kept("rater", "");
  if (!rater || at.params.get("who")) {
    set(main, who(rater));
    return { title: "Label", keys: {}, focus: false };
  }
  const found = await app.source.gold(rater, false);
  if (!current()) return null;
  const page = h("article", { class: "label-page" });
  set(main, page);
  const state = { app, rater, page, found };
  draw(state);
  return { title: "Label", focus: false, keys: keys(state) };
}

const keys = (state) => ({
  x: () => state.skip?.(),
  b: () => next(state, true),
  r: () => state.page.querySelector("[aria-controls=reference]")?.click(),
  t: () => foldAll(state.page),
  i: () => state.page.querySelector(".label-form input")?.focus(),
});

/** Ask for the name that labels stand under. */
function who(before) {
  const form = h(
    "form",
    { class: "card who", autocomplete: "off" },
    h("h1", null, "Label"),
    h(
      "p",
      { class: "hint" },
      "You will read conversations and score them. You see neither which policy spoke nor what ",
      "a judge or anyone else said of it.",
    ),
    h(
      "label",
      { class: "stack" },
      "Your name",
      h("input", { name: "rater", required: true, maxlength: 80, value: before }),
    ),
    h("button", { type: "submit", class: "primary" }, "Begin"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = new FormData(form).get("rater").trim();
    if (!name) return;
    keep("rater", name);
    location.hash = "#/label";
    dispatchEvent(new HashChangeEvent("hashchange"));
  });
  queueMicrotask(() => form.querySelector("input").focus());
  return form;
}

async function next(state, back) {
  state.found = await state.app.source.gold(state.rater, back);
  if (back && !state.found.item) say("nothing to go back to");
  draw(state);
}

function draw(state) {
  const { found, page } = state;
  const { item } = found;
  if (!item) {
    state.skip = null;
    set(page, head(state), done(found));
    page.querySelector("h1").focus();
    return;
  }
  const last = item.turns.findLast((turn) => turn.policy)?.index;
  const form = scores(state, item);
  set(
    page,
    head(state),
    h(
      "div",
      { class: "talk-body" },
      h(
        "section",
        { class: "talk", "aria-label": "Conversation" },
        choices(item.question),
        turns({ turns: item.turns.map((turn) => ({ ...turn, tokens: null })), last }, null),
      ),
      h("aside", { "aria-label": "Your score" }, form, h("section", { class: "card" }, reference(item))),
    ),
  );
  scrollTo(0, 0);
  form.querySelector("input").focus({ preventScroll: true });
}

function head(state) {
  const { progress } = state.found;
  const sum = (name) => progress.reduce((all, one) => all + (one[name] ?? 0), 0);
  const mine = progress.reduce((all, one) => all + one.mine.scored, 0);
  return h(
    "header",
    { class: "label-head" },
    h("h1", { tabindex: -1 }, state.found.item?.question.text || "Label"),
    h(
      "p",
      { class: "chips" },
      h("span", { class: "chip" }, `${sum("left")} left for you`),
      h("span", { class: "chip" }, `${mine} scored by you`),
      h("span", { class: "chip" }, `${sum("done")} of ${sum("drawn")} done by all`),
      h("a", { href: "#/label?who=1" }, state.rater),
    ),
  );
}

function choices(question) {
  if (!question.choices.length) return null;
  return h(
    "section",
    { class: "question", "aria-label": "Question" },
    h(
      "ol",
      { class: "choices" },
      question.choices.map((one) => h("li", null, h("b", null, one.label), " ", one.text)),
    ),
  );
}

/** The form: Enter goes to the next field, and saves in the last one. */
function scores(state, item) {
  const alert = h("p", { role: "alert", class: "alert" });
  const why = h(
    "label",
    { class: "stack skip-why", hidden: true },
    "Why can this not be scored? Enter skips it.",
    h("input", { name: "skipped", maxlength: 10000, value: item.mine?.skipped ?? "" }),
  );
  const note = h("input", { name: "note", maxlength: 10000, value: item.mine?.note ?? "" });
  const form = h(
    "form",
    { class: "card label-form", autocomplete: "off", novalidate: true },
    h("h2", null, item.mine ? "Change your score" : "Your score"),
    item.metrics.map((metric) => field(metric, item.mine?.scores[metric.name])),
    h("label", { class: "stack" }, "Note", note),
    why,
    alert,
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", class: "primary" }, "Save"),
      h("button", { type: "button", onclick: () => state.skip() }, "Skip …"),
    ),
    h(
      "p",
      { class: "hint" },
      h("kbd", null, "Enter"),
      " next field, saves in the last · ",
      h("kbd", null, "Esc"),
      " then ",
      h("kbd", null, "x"),
      " skip, ",
      h("kbd", null, "b"),
      " back, ",
      h("kbd", null, "r"),
      " reference, ",
      h("kbd", null, "i"),
      " to the scores",
    ),
  );
  state.skip = () => {
    why.hidden = false;
    why.querySelector("input").focus();
  };
  const send = async (said) => {
    try {
      await state.app.source.keepGold({ key: item.key, rater: state.rater, ...said });
      say(said.skipped ? "skipped" : "score kept");
      await next(state, false);
    } catch (error) {
      alert.textContent = error.message;
    }
  };
  const save = () => {
    const data = new FormData(form);
    const given = item.metrics
      .map(({ name }) => [name, data.get(name).trim().replace(",", ".")])
      .filter(([, text]) => text !== "");
    const wrong = given.find(([, text]) => !Number.isFinite(Number(text)));
    const missing = item.metrics.find(
      (metric) => metric.needed && !given.some(([name]) => name === metric.name),
    );
    if (wrong || missing) {
      const name = wrong ? wrong[0] : missing.name;
      const label = item.metrics.find((metric) => metric.name === name).label;
      alert.textContent = wrong ? `${label}: not a number` : `Give ${label}: it is the reward.`;
      form.elements[name].focus();
      return;
    }
    send({
      scores: Object.fromEntries(given.map(([name, text]) => [name, Number(text)])),
      note: data.get("note"),
    });
  };
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    if (event.target.name === "skipped") {
      const reason = event.target.value.trim();
      if (reason) send({ skipped: reason });
      else alert.textContent = "Say why, in a word.";
      return;
    }
    const fields = [...form.querySelectorAll("input:not([name=skipped])")];
    const after = fields[fields.indexOf(event.target) + 1];
    if (after) after.select();
    else save();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  return form;
}

function field(metric, value) {
  return h(
    "label",
    { class: "stack metric" },
    h(
      "span",
      null,
      metric.label,
      h("span", { class: "n" }, ` ${metric.lowest}–${metric.highest}`),
      metric.needed && h("span", { class: "must" }, "needed"),
    ),
    metric.about && h("small", null, metric.about),
    h("input", { name: metric.name, inputmode: "decimal", size: 5, value: value ?? "" }),
  );
}

function done(found) {
  return h(
    "section",
    { class: "card" },
    h("p", null, "Nothing is left for you to label. Thank you."),
    h(
      "ul",
      null,
      found.progress.flatMap((one) =>
        one.raters.map((row) =>
          h(
            "li",
            null,
            `${row.rater}: ${words(row.scored, "score")}`,
            row.skipped > 0 && `, ${row.skipped} skipped`,
          ),
        ),
      ),
    ),
    h("p", { class: "hint" }, "convbench report tells what the labels say about the judge."),
  );
}
