// A run that grows: ask now and then what is new, tell it in a line, and let the page be redrawn.
import { count, dollars, words as plural } from "./format.js";
import { h, set } from "./dom.js";
import { here } from "./route.js";

const EVERY = 2500;

/** Ask again and again while the page is in sight; `grown` is called for a new version. */
export function follow(app, grown) {
  const bar = document.getElementById("live");
  let version = null;
  const ask = async () => {
    if (document.visibilityState !== "hidden") {
      try {
        const found = await app.source.pulse();
        tell(bar, found, (await app.about).runs);
        if (version !== null && found.version !== version) await grown();
        version = found.version;
      } catch {
        tell(bar, { gone: true, growing: [] }, []);
      }
    }
    setTimeout(ask, EVERY);
  };
  app.about.then((about) => {
    version = about.version;
    ask();
  }, ask);
}

function tell(bar, found, runs) {
  // Who labels sees no names: those of runs tell policies apart.
  const grows = found.growing.length > 0;
  bar.hidden = here().page === "label" || !(found.gone || found.problem || making(found) || grows);
  set(
    bar,
    bar.hidden ? null : [found.gone && "convbench view has ended: this page is as it was then.",
    found.problem && `${found.first ? "Not everything can be read" : "What is new cannot be read"}: ${found.problem}`,
    making(found) && h("span", { class: "making" }, making(found)),
    found.growing.map((one) => h("span", { class: "growing" }, words(one, runs[one.run_no])))],
  );
}

/** What answers while a large run is read: never its first conversations unsaid. */
function making(found) {
  const since = found.making_s == null ? "" : `, for ${span(found.making_s)} now`;
  if (found.first)
    return `Only the first ${count(found.first)} conversations of each run are shown and counted` +
      (since && ` until all are read: that is under way${since}.`);
  return since && `The runs have changed and are being read again${since}; this is how they were.`;
}

function words(one, run) {
  const parts = [
    `${count(one.conversations)}${one.planned ? ` of ${count(one.planned)}` : ""} conversations`,
    one.pace >= 0.05 && `${one.pace.toFixed(one.pace < 10 ? 1 : 0)} a minute`,
    one.left_s !== null && `about ${span(one.left_s)} left`,
    one.failed > 0 && `${count(one.failed)} failed`,
    one.verdicts > 0 && plural(one.verdicts, "verdict"),
    one.judged_pace >= 0.05 && `${one.judged_pace.toFixed(0)} judged a minute`,
    one.usd === null ? "cost unknown" : dollars(one.usd),
  ].filter(Boolean);
  const ago = one.since_s < 10 ? "just now" : `${Math.round(one.since_s)} s ago`;
  return [h("b", null, run?.name ?? "run"), ` grew ${ago}: `, parts.join(" · ")];
}

const span = (seconds) =>
  seconds < 90
    ? `${Math.ceil(seconds)} s`
    : seconds < 5400
      ? `${Math.round(seconds / 60)} min`
      : `${(seconds / 3600).toFixed(1)} h`;
