// Start, show the page that the address names, keep the keyboard.
import { h, keep, say, set } from "./dom.js";
import { here } from "./route.js";

const root = document.documentElement;
const main = document.getElementById("main");

// The key came once in the address; the cookie has it now, so it need not stay in sight.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

const source = await (root.dataset.source === "files"
  ? import("./files.js")
  : import("./server.js"));
const pages = {
  overview: () => import("./overview.js"),
  list: () => import("./list.js"),
  c: () => import("./talk.js"),
  compare: () => import("./compare.js"),
  label: () => import("./label.js"),
};
const app = { source, about: source.overview(), keys: {}, last: null, turn: 0 };

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
    app.shown = `${page}/${at.id ?? ""}`;
    main.removeAttribute("aria-busy");
    if (moved && drawn?.focus !== false) arrive(drawn?.title);
  } catch (error) {
    if (turn === app.turn && error.name !== "AbortError") fail(error);
  }
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
  ["/", "search"],
  ["t", "open or fold all thinking"],
  ["c", "compare the answers to this question"],
  ["s", "score this conversation"],
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
      KEYS.filter(([key]) => source.scoring || key !== "s").map(([key, what]) =>
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

const always = {
  "?": help,
  d: theme,
  g: () => {
    location.hash = "#/overview";
  },
  "/": () => {
    const box = main.querySelector("input[type=search]");
    if (box) box.select();
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
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
app.about
  .then((about) => {
    document.getElementById("to-label").hidden = !about.gold;
    const stale = document.getElementById("stale");
    stale.hidden = !about.stale;
    stale.textContent = about.stale
      ? "The runs have grown since this page was made. Start convbench view again to see all."
      : "";
  })
  .catch(() => {});
show();
