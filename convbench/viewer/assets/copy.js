// A conversation as chat messages, in the clipboard.
import { h, say, set } from "./dom.js";

/** A button that copies what `load` gives, as JSON. */
export function copier(load) {
  const button = h(
    "button",
    {
      type: "button",
      class: "copy",
      title: "Copy as messages: as the policy saw and said them, in the chat API's shape (y)",
      onclick: async () => {
        try {
          const text = JSON.stringify(await load(), null, 2);
          await put(text);
          tell(button, "Copied");
        } catch (error) {
          tell(button, error.message);
        }
      },
    },
    "Copy as messages",
  );
  return button;
}

function tell(button, words) {
  say(words);
  button.textContent = words;
  setTimeout(() => (button.textContent = "Copy as messages"), 1800);
}

/** Into the clipboard; where a browser does not give it, in a window to copy from. */
async function put(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const dialog = document.getElementById("keys");
    const area = h("textarea", { rows: 14, readonly: true, "aria-label": "Messages", value: text });
    set(
      dialog,
      h("h2", { id: "keys-title" }, "Messages"),
      h("p", { class: "hint" }, "This browser gives no clipboard here: copy from this field."),
      area,
      h("form", { method: "dialog" }, h("button", { type: "submit" }, "Close")),
    );
    dialog.showModal();
    area.select();
  }
}
