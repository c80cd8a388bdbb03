// Search inside one conversation: every place marked, Enter goes to the next.
import { h, say } from "./dom.js";

const MOST = 5000;
const WHERE = ".talk .said, .talk .instruction, .verdicts, .choices, .talk-head h1";

/** A search box over the text of `page()`; `first` is what is looked for at once. */
export function finder(page, first) {
  let found = [];
  let at = -1;
  const told = h("span", { class: "n", role: "status" });
  const tell = () => {
    told.textContent = !box.value.trim() ? "" : found.length ? `${at + 1} of ${found.length}` : "nothing";
  };
  const look = () => {
    found = places(page(), terms(box.value));
    at = -1;
    paint("found", found);
    paint("found-now", []);
    if (found.length && box === document.activeElement) go(1);
    tell();
  };
  const go = (by) => {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    const range = found[at];
    for (let node = range.startContainer.parentElement; node; node = node.parentElement)
      if (node.tagName === "DETAILS") node.open = true;
    paint("found-now", [range]);
    range.startContainer.parentElement.scrollIntoView({ block: "center" });
    tell();
    say(`${at + 1} of ${found.length}`);
  };
  const box = h("input", {
    type: "search",
    value: first,
    placeholder: "Search in here",
    "aria-label": "Search in this conversation",
    autocomplete: "off",
    spellcheck: "false",
    oninput: look,
    onkeydown: (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      go(event.shiftKey ? -1 : 1);
    },
  });
  const step = (text, by, name) =>
    h("button", { type: "button", "aria-label": name, title: name, onclick: () => go(by) }, text);
  return h(
    "div",
    { class: "find", role: "search" },
    box,
    step("↑", -1, "Place before"),
    step("↓", 1, "Next place"),
    told,
  );
}

/** Words and "quoted phrases", as in the list. */
const terms = (text) =>
  [...text.matchAll(/"([^"]+)"|(\S+)/g)].map((one) => (one[1] ?? one[2]).replaceAll('"', "").toLowerCase()).filter(Boolean);

/** Ranges of every place, in the order of the page; text that is split by markup is looked at whole. */
function places(page, wanted) {
  const out = [];
  if (!wanted.length) return out;
  for (const part of page.querySelectorAll(WHERE)) {
    if (part.querySelector(".said")) continue;
    const nodes = [];
    const walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    let text = "";
    while (walk.nextNode()) {
      nodes.push([text.length, walk.currentNode]);
      text += walk.currentNode.data;
    }
    const low = lower(text);
    for (const term of wanted) {
      for (let i = low.indexOf(term); i >= 0 && out.length < MOST; i = low.indexOf(term, i + term.length))
        out.push(range(nodes, i, i + term.length));
    }
  }
  return out.sort((a, b) => a.compareBoundaryPoints(Range.START_TO_START, b));
}

/** Small letters, as many as there were: a few characters become two. */
const lower = (text) => {
  const low = text.toLowerCase();
  return low.length === text.length ? low : [...text].map((one) => (one.toLowerCase().length === one.length ? one.toLowerCase() : one)).join("");
};

function range(nodes, from, to) {
  const place = (offset, end) => {
    let i = nodes.length - 1;
    while (i > 0 && (end ? nodes[i][0] >= offset : nodes[i][0] > offset)) i--;
    return [nodes[i][1], offset - nodes[i][0]];
  };
  const out = document.createRange();
  out.setStart(...place(from, false));
  out.setEnd(...place(to, true));
  return out;
}

/** Mark ranges without touching the page; a browser that cannot shows only where one is. */
function paint(name, ranges) {
  if (!globalThis.CSS?.highlights) return;
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}
