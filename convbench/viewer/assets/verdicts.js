// Verdicts: scores as bars with numbers, the judge's words beside them.
import { h } from "./dom.js";
import { fixed } from "./format.js";
import { setting } from "./settings.js";
import { pagePicture } from "./turns.js";

const server = document.documentElement.dataset.source === "server";

/** A bar from 0, or from the end of the scale that is nearest to it. */
export function bar(score, low, high) {
  const fill = h("span", { class: "fill" });
  const at = (value) => Math.max(0, Math.min(1, (value - low) / (high - low || 1))) * 100;
  fill.style.marginLeft = `${Math.min(at(0), at(score))}%`;
  fill.style.width = `${Math.abs(at(score) - at(0))}%`;
  return h("span", { class: "bar-of", "aria-hidden": "true" }, fill);
}

export function verdict(found, short = false) {
  if (found.failure)
    return h(
      "article",
      { class: "verdict failed" },
      h("header", null, h("h3", null, found.judge), h("span", { class: "none" }, "no score")),
      h("p", null, found.failure),
      !short &&
        found.reply &&
        h(
          "details",
          null,
          h("summary", null, "Its reply"),
          h("div", { class: "said exact" }, found.reply),
        ),
    );
  return h(
    "article",
    { class: "verdict" },
    h(
      "header",
      null,
      h("h3", { title: found.model ?? found.judge }, found.judge),
      h("span", { class: "reward", title: "reward" }, fixed(found.reward)),
    ),
    short
      ? null
      : h(
          "dl",
          { class: "scores" },
          found.scores.filter((one) => has(one) || one.why).map((one) => metric(one, found)),
        ),
    !short &&
      found.details &&
      h(
        "details",
        null,
        h("summary", null, "Details"),
        h("pre", null, JSON.stringify(found.details, null, 1)),
      ),
  );
}

/** A score of 0 to 1 needs one digit more than one of 0 to 10. */
const digits = ({ score, limits: [low, high] }) =>
  Number.isInteger(score) ? 0 : high - low > 1 ? 1 : 2;

/** Whether a metric has a number: one without is left out, but for what was said of it. */
export const has = (one) => one.score !== null && one.score !== undefined;

function metric(one, found) {
  return h(
    "div",
    { class: one.name === found.headline ? "headline" : "" },
    h("dt", null, one.label),
    h(
      "dd",
      null,
      has(one) && bar(one.score, ...one.limits),
      h(
        "span",
        { class: "num" },
        has(one) ? fixed(one.score, digits(one)) : "–",
      ),
    ),
    one.why && h("dd", { class: "why" }, one.why),
  );
}

/** What the question's reference says; in the page only once somebody asks, here or for good in the
 * settings. */
export function reference(found) {
  const place = h("div", { class: "reference", id: "reference" });
  const button = h(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      "aria-controls": "reference",
      onclick: () => {
        const open = button.getAttribute("aria-expanded") !== "true";
        button.setAttribute("aria-expanded", String(open));
        button.textContent = open ? "Hide the reference" : "Show the reference";
        place.replaceChildren(
          ...(open
            ? [
                h(
                  "dl",
                  null,
                  Object.entries(found.reference).map(([name, value]) => [
                    h("dt", null, name),
                    found.pages?.includes(name) &&
                      found.row &&
                      server &&
                      h(
                        "dd",
                        null,
                        pagePicture(found.row.conversation_id, `reference.${name}`),
                      ),
                    h(
                      "dd",
                      { class: "said" },
                      value === null
                        ? "none"
                        : typeof value === "string"
                          ? value
                          : JSON.stringify(value, null, 1),
                    ),
                  ]),
                ),
              ]
            : []),
        );
      },
    },
    "Show the reference",
  );
  if (setting("reference")) button.click();
  return h("div", null, button, place);
}
