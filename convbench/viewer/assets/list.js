// The list: search, filters, order, pages.
import { h, say, set } from "./dom.js";
import { count, words } from "./format.js";
import { filters, recount } from "./filters.js";
import { picker } from "./columns.js";
import { table } from "./table.js";
import { changed, go, here, replace } from "./route.js";

const PAGE = 50;
let asking = null;

export async function render(app, at, main, current) {
  asking?.abort();
  asking = new AbortController();
  const { params } = at;
  const frame = main.querySelector(".list-page") ?? (await build(app, main, params));
  const [about, found] = await Promise.all([app.about, ask(app, params, asking.signal)]);
  if (!current()) return null;
  refresh(app, frame, about, params);
  const held = document.activeElement?.closest?.("tbody tr")?.dataset.id;
  const rows = found.error ? null : table(app, about, found, params);
  set(
    frame.querySelector(".found"),
    found.error
      ? problem(found.error)
      : [head(found, about, params), rows, foot(found, params)],
  );
  if (held) frame.querySelector(`tr[data-id="${CSS.escape(held)}"] a`)?.focus({ preventScroll: true });
  if (!found.error) follow(app, frame, about, params, current);
  const total = found.error ?? words(found.total, "conversation");
  say(total);
  app.last = found.error
    ? null
    : {
        params: new URLSearchParams(params),
        offset: found.offset,
        total: found.total,
        ids: found.rows.map((row) => row.conversation_id),
      };
  if (app.search) {
    app.search = false;
    frame.querySelector("input[type=search]").focus();
  }
  return { title: "Conversations", focus: false, keys: keys(frame, found, params) };
}

/** Put beside every choice how many conversations it would have, the other filters kept. */
async function follow(app, frame, about, params, current) {
  if (![...params.keys()].some((name) => !PLAIN.includes(name))) {
    frame.counts = undefined;
    recount(frame, about.facets);
    return;
  }
  try {
    const counts = await app.source.facets(params, asking.signal);
    if (current()) recount(frame, (frame.counts = counts));
  } catch {
    /* another filter came, or the condition is wrong: the list says so */
  }
}
const PLAIN = ["offset", "sort", "desc", "limit"];

async function ask(app, params, signal) {
  try {
    return await app.source.list(changed(params, { limit: PAGE }), signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { error: error.message };
  }
}

async function build(app, main, params) {
  const frame = h(
    "div",
    { class: "list-page" },
    h("h1", { class: "unseen" }, "Conversations"),
    h(
      "aside",
      { "aria-label": "Filters" },
      h(
        "details",
        { class: "drawer", open: innerWidth > 860 },
        h("summary", null, "Filters"),
        h("div", { class: "chosen" }),
      ),
    ),
    h(
      "section",
      { "aria-label": "Conversations found" },
      searchBox(params),
      h("div", { class: "found" }, h("p", { class: "wait" }, "Loading …")),
    ),
  );
  set(main, frame);
  return frame;
}

function searchBox(params) {
  let timer = 0;
  const box = h("input", {
    type: "search",
    name: "q",
    autocomplete: "off",
    spellcheck: "false",
    value: params.get("q") ?? "",
    placeholder: 'Search questions and answers, "in quotes" for a phrase',
    "aria-label": "Search the conversations",
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (here().page === "list")
          replace("list", null, changed(here().params, { q: box.value, offset: "" }));
      }, 120);
    },
  });
  return h(
    "div",
    { class: "search", role: "search" },
    box,
    h("kbd", { "aria-hidden": "true" }, "/"),
  );
}

/** Draw the filters anew, and put the focus back where it was. */
function refresh(app, frame, about, params) {
  const box = frame.querySelector("input[type=search]");
  if (document.activeElement !== box) box.value = params.get("q") ?? "";
  const held = document.activeElement?.closest?.(".chosen") ? document.activeElement : null;
  const same = held && [held.name, held.type === "checkbox" ? held.closest("label").title : null];
  set(frame.querySelector(".chosen"), filters(app, about, params, frame.counts));
  if (!same) return;
  for (const node of frame.querySelectorAll(`.chosen [name="${CSS.escape(same[0])}"]`)) {
    if (!same[1] || node.closest("label").title === same[1]) {
      if (!same[1] && node.tagName !== "SELECT") node.value = held.value; // half typed
      node.focus();
      break;
    }
  }
}

const problem = (text) => h("div", { class: "problem", role: "alert" }, h("p", null, text));

function head(found, about, params) {
  const versus = about.runs.find((run) => run.run === params.get("versus"));
  return h(
    "div",
    { class: "count" },
    picker(about, params, () => replace("list", null, here().params)),
    h("strong", null, count(found.total)),
    found.total === 1 ? " conversation" : " conversations",
    params.get("q") && [" with ", h("q", null, params.get("q"))],
    versus && [" beside Base's in ", h("b", null, versus.name)],
    params.getAll("was").length > 0 && [", where Base's was ", params.getAll("was").join(" or ")],
  );
}

function foot(found, params) {
  if (found.total <= PAGE) return null;
  const last = Math.min(found.offset + PAGE, found.total);
  return h(
    "nav",
    { class: "pages", "aria-label": "Pages of the list" },
    step("← Before", found.offset - PAGE, found, params),
    h("span", null, `${count(found.offset + 1)}–${count(last)} of ${count(found.total)}`),
    step("After →", found.offset + PAGE, found, params),
  );
}

function step(text, offset, found, params) {
  const there = offset >= 0 && offset < found.total;
  return h(
    "button",
    { type: "button", disabled: !there, onclick: () => turnTo(offset, found, params) },
    text,
  );
}

function turnTo(offset, found, params) {
  if (offset < 0 || offset >= found.total) return;
  go("list", null, changed(params, { offset: offset || "" }));
  scrollTo(0, 0);
}

function keys(frame, found, params) {
  const rows = () => [...frame.querySelectorAll("tbody tr")];
  const move = (by) => {
    const all = rows();
    const now = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[Math.max(0, Math.min(all.length - 1, now + by))] ?? all[0];
    next?.querySelector("a").focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const open = () => {
    const row = rows().find((one) => one.contains(document.activeElement));
    if (!row) return false;
    go("c", row.dataset.id, params);
    return true;
  };
  return found.error
    ? {}
    : {
        j: () => move(1),
        k: () => move(-1),
        o: open,
        "]": () => turnTo(found.offset + PAGE, found, params),
        "[": () => turnTo(found.offset - PAGE, found, params),
      };
}
