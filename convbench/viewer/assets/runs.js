// The picker: the runs of a folder, newest first, to open one or several together.
import { h, say, set } from "./dom.js";
import { count, dollars, policy, words } from "./format.js";

const EVERY = 4000;
const known = new Map();

export async function render(app, at, main, current) {
  const rows = await app.source.runs();
  if (!current()) return null;
  const chosen = new Set();
  const page = h("div", { class: "runs-page" });
  const draw = (all) => set(page, head(all, chosen), all.length ? table(all, chosen) : none());
  draw(rows);
  set(main, page);
  let counting = false; // many or large runs may take longer than until the next time
  const counts = async (all) => {
    if (counting) return;
    counting = true;
    await count_up(app, all, page, current).finally(() => (counting = false));
  };
  counts(rows);
  const timer = setInterval(async () => {
    if (!current()) return clearInterval(timer);
    if (document.visibilityState === "hidden") return;
    const now = await app.source.runs().catch(() => null);
    if (!now || !current()) return;
    if (now.map((row) => row.name).join() !== rows.map((row) => row.name).join()) {
      const held = [...chosen];
      draw(now);
      for (const name of held) chosen.add(name);
      rows.splice(0, rows.length, ...now);
    }
    counts(now);
  }, EVERY);
  return { title: "Runs", keys: keys(page, chosen) };
}

const none = () => h("p", { class: "empty" }, "There are no runs here yet: ", h("code", null, "convbench build"));

const address = (names) => `open/${names.map(encodeURIComponent).join(",")}/`;

function head(all, chosen) {
  const button = h(
    "button",
    {
      type: "button",
      class: "primary",
      id: "open-chosen",
      disabled: true,
      onclick: () => {
        if (chosen.size) location.href = address([...chosen]);
      },
    },
    "Open together",
  );
  const box = h("input", {
    type: "search",
    placeholder: "Filter by name, task, policy, tag",
    "aria-label": "Filter the runs",
    oninput: () => {
      const terms = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = [...document.querySelectorAll(".runs tbody tr")];
      for (const row of rows)
        row.hidden = !terms.every((term) => row.textContent.toLowerCase().includes(term));
      say(words(rows.filter((row) => !row.hidden).length, "run"));
    },
  });
  return [
    h("h1", null, "Runs"),
    h("div", { class: "row runs-head" }, h("div", { class: "search" }, box), button),
    h("p", { class: "hint" }, words(all.length, "run"), ", newest first. Evaluations open with their run."),
  ];
}

const HEADS = ["Run", "Task", "Policy", "Conversations", "Judges", "Cost", "Changed"];

function table(all, chosen) {
  const pick = (row, box) => {
    if (box.checked) chosen.add(row.name);
    else chosen.delete(row.name);
    const button = document.getElementById("open-chosen");
    button.disabled = !chosen.size;
    button.textContent = chosen.size > 1 ? `Open ${chosen.size} together` : "Open together";
  };
  return h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "runs figures" },
      h("caption", { class: "unseen" }, "Runs of this folder"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          h("th", { scope: "col" }, h("span", { class: "unseen" }, "Choose")),
          HEADS.map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        all.map((row) =>
          h(
            "tr",
            { "data-name": row.name },
            h(
              "td",
              null,
              h("input", {
                type: "checkbox",
                "aria-label": `Choose ${row.name}`,
                onchange: (event) => pick(row, event.target),
              }),
            ),
            h(
              "th",
              { scope: "row" },
              h("a", { href: address([row.name]) }, row.name),
              h("span", { class: "under about" }, row.kind),
            ),
            h("td", null, row.task, h("span", { class: "under" }, `${row.protocol} · ${row.mode}`)),
            h("td", null, policy(row.policy)),
            ["had", "judges", "cost"].map((name) => h("td", { class: `${name} figure` }, "…")),
            h("td", { class: "changed figure" }, ago(row.changed)),
          ),
        ),
      ),
    ),
  );
}

/** Fill in what must be counted, one run after the other, newest first; again where one changed. */
async function count_up(app, rows, page, current) {
  for (const row of rows) {
    const line = page.querySelector(`tr[data-name="${CSS.escape(row.name)}"]`);
    if (!line || !current()) return;
    line.querySelector(".changed").textContent = ago(row.changed);
    let found = known.get(row.name);
    if (found?.changed !== row.changed) {
      const told = await app.source.runCounts(row.name).catch((error) => ({ error: error.message }));
      found = { changed: row.changed, ...told }; // of a run that grows, of what was counted
      known.set(row.name, found);
    }
    fill(line, row, found);
  }
}

function fill(line, row, found) {
  const cell = (name, ...content) => set(line.querySelector("." + name), ...content);
  if (found.error) return cell("had", h("span", { class: "flag" }, found.error));
  cell(
    "had",
    count(found.conversations),
    found.planned > found.conversations &&
      h("span", { class: "n" }, ` of ${count(found.planned)}`),
    found.failed > 0 && h("span", { class: "flag" }, `${count(found.failed)} failed`),
  );
  cell("judges", found.judges.join(", ") || h("span", { class: "none" }, "–"));
  cell("cost", dollars(found.usd));
  cell(
    "about",
    [row.kind, found.evals > 0 && words(found.evals, "evaluation")].filter(Boolean).join(" · "),
  );
  return null;
}

function ago(seconds) {
  const past = Date.now() / 1000 - seconds;
  if (past < 60) return "just now";
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}

function keys(page, chosen) {
  const links = () => [...page.querySelectorAll("tbody tr:not([hidden]) a")];
  const move = (by) => {
    const all = links();
    const now = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, now + by))]?.focus();
  };
  return {
    j: () => move(1),
    k: () => move(-1),
    x: () => document.activeElement?.closest("tr")?.querySelector("input")?.click(),
    o: () => {
      if (chosen.size) location.href = address([...chosen]);
      else document.activeElement?.closest("tr")?.querySelector("a")?.click();
    },
  };
}
