// Data from the server that `convbench view` runs.

async function get(path, signal) {
  const answer = await fetch("api/" + path, { signal, credentials: "same-origin" });
  return read(answer);
}

async function read(answer) {
  if (answer.status === 403)
    throw new Error(
      "The key of this page is no longer valid. Open the address that convbench view printed.",
    );
  const found = await answer.json();
  if (found?.error) throw new Error(found.error);
  return found;
}

export const scoring = true;
export const overview = () => get("overview");
export const list = (params, signal) => get("list?" + params, signal);
export const pulse = () => get("pulse");
export const versus = (base) => get("versus" + (base ? "?" + new URLSearchParams({ base }) : ""));
export const facets = (params, signal) => get("facets?" + params, signal);
export const messages = (id) => get("messages/" + encodeURIComponent(id));
export const calls = (id) => get("calls/" + encodeURIComponent(id));
export const runs = () => get("runs");
export const runCounts = (name) => get("runs/" + encodeURIComponent(name));
export const talk = (id) => get("talk/" + encodeURIComponent(id));
export const prompts = (id) => get("prompts/" + encodeURIComponent(id));
export const agreement = (run) => get("agreement/" + run);
export const compare = (id, some) =>
  get(
    `compare/${encodeURIComponent(id)}?${new URLSearchParams(some.map((name) => ["with", name]))}`,
  );
export const gold = (rater, back) =>
  get(`gold?${new URLSearchParams({ rater, back: back ? "1" : "" })}`);
const post = async (path, value) =>
  read(
    await fetch("api/" + path, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(value),
    }),
  );
export const keepGold = (said) => post("gold", said);
export const score = (label) => post("score", label);
