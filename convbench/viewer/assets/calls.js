// The calls behind a turn: the request as it was asked, each attempt, and the reply as it came.
import { h, set } from "./dom.js";
import { count, dollars, words } from "./format.js";

/** A button that opens the calls of a turn in `place`; `load` gives those of all turns. */
export const calls = (turn, place, load) =>
  opener(
    place,
    { closed: "Call", open: "Hide the call", title: "The request and the reply of this turn's calls, with what was tried again" },
    async () => shown((await load())[turn.index] ?? []),
  );

/** A button that shows in `place`, and hides again, what `load` gives when it is first asked. */
export function opener(place, { closed, open, title }, load) {
  const button = h(
    "button",
    {
      type: "button",
      class: "text",
      "aria-expanded": "false",
      "aria-controls": place.id,
      title,
      onclick: async () => {
        const opened = place.hidden;
        place.hidden = !opened;
        button.setAttribute("aria-expanded", String(opened));
        button.textContent = opened ? open : closed;
        if (!opened || place.childNodes.length) return;
        set(place, h("p", { class: "wait" }, "Loading …"));
        try {
          set(place, await load());
        } catch (error) {
          set(place, h("p", { role: "alert" }, error.message));
        }
      },
    },
    closed,
  );
  return button;
}

const json = (value) => h("pre", { class: "exact" }, typeof value === "string" ? value : JSON.stringify(value, null, 1));

function shown(all) {
  if (!all.length)
    return h("p", { class: "none" }, "The run's journal has no call of this turn: it was imported, pulled, or the journal was removed.");
  return all.map((call, number) =>
    h(
      "section",
      { class: "call-of" },
      h(
        "p",
        { class: "prompt-title" },
        all.length > 1 ? `Call ${number + 1} of ${all.length}` : "Call",
        " ",
        h("span", { class: "id" }, call.key),
        call.lost.length > 0 && h("span", { class: "flag" }, words(call.lost.length + 1, "attempt")),
      ),
      call.lost.length > 0 &&
        h(
          "ol",
          { class: "attempts" },
          call.lost.map((one) =>
            h(
              "li",
              null,
              one.lost,
              h("span", { class: "n" }, ` ${count(one.tokens)} tokens, ${dollars(one.usd)} booked`),
            ),
          ),
        ),
      h("h4", null, "Asked"),
      h("p", { class: "hint" }, call.proof),
      call.request && json(call.request),
      h("h4", null, "Replied"),
      call.reply ? json(call.reply) : h("p", { class: "none" }, "no reply"),
    ),
  );
}
