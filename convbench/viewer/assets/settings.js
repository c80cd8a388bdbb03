// What a reader has chosen of how pages look; kept in this browser alone.
import { h, keep, kept, set } from "./dom.js";

const CHOICES = {
  raw: "Show text as it was written, Markdown unrendered (m)",
  reference: "Show the reference at once",
  thinking: "Open thinking at once",
  narrow: "Fit all answers of a comparison into the window",
};

/** Whether a setting is on. */
export const setting = (name) => kept("set." + name, "") === "on";
export const choose = (name, on) => keep("set." + name, on ? "on" : "");

/** Let the reader choose; `changed` is called after each change. */
export function settings(dialog, changed) {
  set(
    dialog,
    h("h2", { id: "keys-title" }, "Settings"),
    Object.entries(CHOICES).map(([name, words]) =>
      h(
        "label",
        { class: "choice" },
        h("input", {
          type: "checkbox",
          name,
          checked: setting(name),
          onchange: (event) => {
            choose(name, event.target.checked);
            changed();
          },
        }),
        h("span", null, words),
      ),
    ),
    h("p", { class: "hint" }, "Kept in this browser."),
    h("form", { method: "dialog" }, h("button", { type: "submit" }, "Close")),
  );
  if (!dialog.open) dialog.showModal();
}
