// Start, show the page that the address names, keep the keyboard.
import { h, keep, say, set } from "./dom.js";
import { follow } from "./live.js";
import { here } from "./route.js";
import { choose, setting, settings } from "./settings.js";

const root = document.documentElement;
const main = document.getElementById("main");

// The key came once in the address; the cookie has it now, so it need not stay in sight.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

const picking = root.dataset.source === "picker";
const source = await (root.dataset.source === "files"
  ? import("./files.js")
  : import("./server.js"));
const pages = picking ? { overview: () => import("./runs.js") } : {
  overview: () => import("./overview.js"),
  list: () => import("./list.js"),
  c: () => import("./talk.js"),
  compare: () => import("./compare.js"),
  label: () => import("./label.js"),
};
const about = () => (picking ? Promise.resolve({}) : source.overview());
const app = { source, about: about(), keys: {}, last: null, turn: 0, busy: () => false };

async function show() {
  const turn = ++app.turn;
  const at = here();
  const page = pages[at.page] ? at.page : "overview";
  for (const node of document.querySelectorAll("[data-page]")) {
    if (node.dataset.page === page || (["c", "compare"].includes(page) && node.dataset.page === "list"))
      node.setAttribute("aria-current", "page");
    else node.removeAttribute("aria-current");
  }
  try {
    const { render } = await pages[page]();
    if (turn !== app.turn) return;
    const moved = app.shown !== `${page}/${at.id ?? ""}`;
    const drawn = await render(app, at, main, () => turn === app.turn);
    if (turn !== app.turn) return;
    app.keys = drawn?.keys ?? {};
    app.busy = drawn?.busy ?? (() => false);
    app.same = drawn?.same ?? (() => false);
    app.shown = `${page}/${at.id ?? ""}`;
    main.removeAttribute("aria-busy");
    if (moved && drawn?.focus !== false) arrive(drawn?.title);
  } catch (error) {
    if (turn === app.turn && error.name !== "AbortError") fail(error);
  }
}

/** Draw the page again where it stands: what was unfolded stays so, and the focus. */
async function again() {
  if (app.busy()) return;
  const folds = () => [...main.querySelectorAll("details")];
  const open = folds().map((one) => one.open);
  const held = main.contains(document.activeElement) ? document.activeElement : null;
  const place = held && [...main.querySelectorAll(TABBED)].indexOf(held);
  const top = scrollY;
  await show();
  const now = folds();
  if (now.length === open.length) now.forEach((one, i) => (one.open = open[i]));
  if (held && !main.contains(document.activeElement))
    main.querySelectorAll(TABBED)[place]?.focus({ preventScroll: true });
  scrollTo(0, top);
}
app.again = again;
const TABBED = "a[href], button, input, select, textarea, summary";

/** The runs grew: the figures are asked for anew, and the page where it shows something else. */
async function grown() {
  app.about = about();
  await app.about;
  if (!(await app.same())) await again();
}

/** A new page starts at its top, with the focus where a keyboard or a reader goes on. */
function arrive(title) {
  document.title = title ? `${title} · convbench` : "convbench";
  scrollTo(0, 0);
  const heading = main.querySelector("h1");
  if (heading) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

function fail(error) {
  main.removeAttribute("aria-busy");
  set(
    main,
    h(
      "div",
      { class: "problem", role: "alert" },
      h("h1", null, "This cannot be shown"),
      h("p", null, error.message),
      h("p", null, h("a", { href: "#/list" }, "All conversations")),
    ),
  );
}

const KEYS = [
  ["j, k", "next, previous: row of the list, or conversation"],
  ["Enter, o", "open the row"],
  ["u", "back to the list"],
  ["[, ]", "page before, page after"],
  ["/", "search: the list, or inside a conversation"],
  ["t", "open or fold all thinking"],
  [",", "settings"],
  ["m", "Markdown rendered, or text as it was written"],
  ["y", "copy the conversation as messages"],
  ["c", "compare the answers to this question"],
  ["s", "score this conversation"],
  ["0, …, 9", "while scoring: the score of the metric in focus, and on to the next"],
  ["g", "overview"],
  ["d", "light or dark"],
  ["?", "this help"],
];

function help() {
  const dialog = document.getElementById("keys");
  set(
    dialog,
    h("h2", { id: "keys-title" }, "Keyboard"),
    h(
      "dl",
      null,
      KEYS.filter(([key]) => source.scoring || !["s", "0, …, 9"].includes(key)).map(([key, what]) =>
        h(
          "div",
          null,
          h(
            "dt",
            null,
            key.split(", ").map((one) => h("kbd", null, one)),
          ),
          h("dd", null, what),
        ),
      ),
    ),
    h("form", { method: "dialog" }, h("button", { type: "submit" }, "Close")),
  );
  if (!dialog.open) dialog.showModal();
}

function theme() {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  keep("theme", root.dataset.theme);
  say(`${root.dataset.theme} colours`);
}

const adjust = () => settings(document.getElementById("keys"), again);

const always = {
  "?": help,
  ",": adjust,
  d: theme,
  m: () => {
    choose("raw", !setting("raw"));
    say(setting("raw") ? "text as it was written" : "Markdown rendered");
    again();
  },
  g: () => {
    location.hash = "#/overview";
  },
  "/": () => {
    const box = main.querySelector("input[type=search]");
    if (box) box.select();
    else if (picking) return;
    else {
      app.search = true;
      location.hash = "#/list";
    }
  },
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.(
    "input:not([type=checkbox]):not([type=radio]), textarea, select",
  );
  if (event.key === "Escape" && typing) {
    event.target.blur();
    return;
  }
  if (
    typing ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    document.querySelector("dialog[open]")
  )
    return;
  const act = app.keys[event.key] ?? always[event.key];
  if (act && act(event) !== false) event.preventDefault();
});

document.getElementById("theme").addEventListener("click", theme);
document.getElementById("help").addEventListener("click", help);
document.getElementById("settings").addEventListener("click", adjust);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
app.about
  .then((found) => {
    document.getElementById("to-label").hidden = !found.gold;
  })
  .catch(() => {});
const home = document.getElementById("home");
home.hidden = !root.dataset.home;
if (root.dataset.home) home.href = root.dataset.home;
for (const node of document.querySelectorAll("[data-page]")) if (picking) node.hidden = true;
if (source.pulse && !picking) follow(app, grown);
show();
