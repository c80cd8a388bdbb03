// Turns: what was said, thinking folded, and on demand the exact prompt a speaker saw.
import { calls, opener } from "./calls.js";
import { grow, h, set } from "./dom.js";
import { count, words } from "./format.js";
import { task, textGrid } from "./grids.js";
import { setting } from "./settings.js";

const length = (text) => text.split(/\s+/).filter(Boolean).length;

/** A text: its Markdown rendered, grids in it as pictures; or, where that is chosen, as written. */
function words_of(text, tree, grids) {
  if (setting("raw")) return h("div", { class: "said" }, text.trim());
  return [
    tree ? h("div", { class: "said marked" }, grow(tree)) : h("div", { class: "said" }, text.trim()),
    grids && textGrid(text),
  ];
}

export function body(parts, grids = false) {
  if (!parts.length) return h("p", { class: "none" }, "(nothing)");
  return parts.map((part) => {
    if (part.image)
      return h("img", { src: part.image, alt: "image of the conversation", loading: "lazy" });
    if (part.think === undefined) return words_of(part.text, part.tree, grids);
    return h(
      "details",
      { class: "think", open: setting("thinking") },
      h("summary", null, "Thinking ", h("span", { class: "n" }, words(length(part.think), "word"))),
      words_of(part.think, part.tree, grids),
    );
  });
}

export function turns(found, load, asked) {
  const grids = Boolean(found.question) && task(found) !== null;
  const last = found.turns.findLast((turn) => turn.policy)?.index;
  return h(
    "ol",
    { class: "turns", "aria-label": "Turns" },
    found.turns.map((turn) => one(turn, turn.index === last, load, asked, grids, found.row?.conversation_id),
    ),
  );
}

function one(turn, final, load, asked, grids, id) {
  const place = h("div", { class: "prompt", id: `prompt-${turn.index}`, hidden: true });
  const exact = h("div", { class: "prompt", id: `call-${turn.index}`, hidden: true });
  const cut = turn.finish === "length";
  return h(
    "li",
    { class: `turn ${turn.policy ? "policy" : "other"}${final ? " final" : ""}` },
    h(
      "header",
      null,
      h("h3", null, turn.speaker),
      h("span", { class: "step" }, turn.step),
      cut && h("span", { class: "flag" }, "cut by max_tokens"),
      turn.advantage !== null && worth(turn.advantage),
      turn.tokens !== null && h("span", { class: "n" }, count(turn.tokens), " tokens"),
      turn.asked &&
        h(
          "span",
          { class: "turn-tools" },
          ask(turn, place, load),
          asked && calls(turn, exact, asked),
        ),
    ),
    turn.instruction &&
      !turn.policy &&
      h("p", { class: "instruction" }, h("b", null, "Told: "), turn.instruction),
    place,
    exact,
    (turn.rounds || []).map(round),
    turn.reasoning && reasoning(turn.reasoning),
    body(turn.parts, grids),
    turn.page && asked && pagePicture(id, turn.index),
  );
}

/** A page that was written, as a picture, once somebody asks for it. */
export function pagePicture(id, place, words = "Show the page as a picture") {
  const box = h("div", { class: "page-picture" });
  const button = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        button.disabled = true;
        const image = h("img", {
          src: `pages/${encodeURIComponent(id)}/${encodeURIComponent(place)}`,
          alt: "the page as a browser without a network draws it",
          onload: () => button.remove(),
          onerror: () => set(box, h("p", { class: "none" }, "This page cannot be drawn here.")),
        });
        box.append(image);
      },
    },
    words,
  );
  box.append(button);
  return box;
}

/** What the turn was worth, as a critic says. */
function worth(advantage) {
  const sign = advantage < 0 ? "−" : "+";
  return h(
    "span",
    { class: "n worth", title: "Advantage of this turn" },
    `${sign}${Math.abs(advantage).toPrecision(3)} advantage`,
  );
}

/** What was thought in a channel of its own, folded. */
function reasoning(found) {
  const text = found.text.trim();
  const many = found.tokens === null ? words(length(text), "word") : words(found.tokens, "token");
  const hidden = found.hidden ? `, ${words(found.hidden, "part")} encrypted` : "";
  return h(
    "details",
    { class: "think reasoning" },
    h("summary", null, "Reasoning ", h("span", { class: "n" }, many, hidden)),
    h("div", { class: "said" }, text || "(not shown by the provider)"),
  );
}

/** What was called of tools before the turn was said, each call folded with its result. */
function round(one) {
  return h(
    "div",
    { class: "round" },
    one.reasoning && reasoning(one.reasoning),
    one.text.trim() && h("div", { class: "said" }, one.text),
    one.calls.map((call) =>
      h(
        "details",
        { class: "think call" },
        h("summary", null, `Calls ${call.name}`, call.error && h("span", { class: "flag" }, "failed")),
        h("p", { class: "hint" }, "Arguments"),
        h("div", { class: "said exact" }, call.arguments),
        h("p", { class: "hint" }, call.error ? "Result: an error" : "Result"),
        h("div", { class: "said exact" }, call.result === null ? "(no result)" : call.result),
      ),
    ),
  );
}

const ask = (turn, place, load) =>
  opener(
    place,
    { closed: "Prompt", open: "Hide the prompt", title: `The exact messages that ${turn.speaker} saw` },
    async () => messages((await load())[turn.index] ?? [], turn.speaker),
  );

function messages(all, speaker) {
  return [
    h(
      "p",
      { class: "prompt-title" },
      `What ${speaker} saw: ${words(all.length, "message")}, word for word`,
    ),
    h(
      "dl",
      null,
      all.map((message) => [
        h("dt", null, message.role, message.name && ` ${message.name}`),
        h(
          "dd",
          null,
          message.reasoning && h("div", { class: "said exact thought" }, message.reasoning),
          message.parts.map((part) =>
            part.image
              ? h("img", { src: part.image, alt: "image in the prompt" })
              : h("div", { class: "said exact" }, part.text),
          ),
          message.calls.map(([name, text]) =>
            h("div", { class: "said exact" }, h("b", null, `Calls ${name} `), text),
          ),
        ),
      ]),
    ),
  ];
}

/** Open all thinking, or fold it where all is open. */
export function foldAll(node) {
  const all = [...node.querySelectorAll("details.think")];
  const open = all.some((one) => !one.open);
  for (const one of all) one.open = open;
}
