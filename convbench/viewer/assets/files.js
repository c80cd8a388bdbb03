// The same data from files: rows are filtered here, conversations come in small shards.

const shelf = new Map();
let rows = null;
let texts = null;
let sizes = null;

function get(path) {
  if (!shelf.has(path)) {
    if (shelf.size > 400) shelf.clear();
    shelf.set(
      path,
      fetch("data/" + path)
        .then((answer) => {
          if (!answer.ok) throw new Error(`data/${path}: ${answer.status} ${answer.statusText}`);
          return answer.json();
        })
        .catch((error) => {
          shelf.delete(path);
          throw error;
        }),
    );
  }
  return shelf.get(path);
}

export const scoring = false;

export async function overview() {
  const found = await get("overview.json");
  sizes = found.sizes;
  return found;
}

async function shards(kind) {
  if (!sizes) await overview();
  const number = Math.ceil(sizes.total / sizes.rows);
  return Promise.all(Array.from({ length: number }, (_, i) => get(`${kind}/${i}.json`)));
}

async function load() {
  rows ??= (await shards("rows")).flatMap((shard) => {
    const names = Object.keys(shard);
    return shard[names[0]].map((_, i) =>
      Object.fromEntries(names.map((name) => [name, shard[name][i]])),
    );
  });
  return rows;
}

const FACETS = ["task", "split", "policy", "protocol", "mode", "result"];
const COUNTED = [...FACETS, "run", "temperature", "flag"];

function keeps(params, judge) {
  const tests = FACETS.filter((name) => params.has(name)).map((name) => {
    const wanted = new Set(params.getAll(name));
    return (row) => wanted.has(row[name]);
  });
  if (params.has("run")) {
    const wanted = new Set(params.getAll("run"));
    tests.push((row) => wanted.has(row.run));
  }
  if (params.has("temperature")) {
    const wanted = new Set(params.getAll("temperature").map(Number));
    tests.push((row) => wanted.has(row.temperature));
  }
  const flags = params.getAll("flag");
  if (flags.includes("any")) tests.push((row) => row.flags.length > 0);
  else if (flags.length) tests.push((row) => row.flags.some((flag) => flags.includes(flag)));
  if (params.get("judge")) tests.push((row) => row.rewards[judge] !== null || row.unscored[judge]);
  if (params.get("min"))
    tests.push(
      (row) => row.rewards[judge] !== null && row.rewards[judge] >= Number(params.get("min")),
    );
  if (params.get("max"))
    tests.push(
      (row) => row.rewards[judge] !== null && row.rewards[judge] <= Number(params.get("max")),
    );
  if (params.get("versus")) {
    const was = new Set(params.getAll("was"));
    tests.push((row) => {
      const base = partner(row, params.get("versus"));
      return base && (!was.size || was.has(base.result));
    });
  }
  return tests;
}

let partners = null;

/** The conversation of a run about the same question, of the same sample and temperature. */
function partner(row, run) {
  const key = (one, of) => [of, one.q, one.sample, one.temperature].join();
  partners ??= new Map(rows.map((one) => [key(one, one.run), one]));
  return row.run === run ? undefined : partners.get(key(row, run));
}

/** How many conversations each choice would have, every other filter kept. */
export async function facets(params) {
  const out = {};
  for (const name of COUNTED) {
    const rest = new URLSearchParams(params);
    rest.delete(name);
    const counts = new Map();
    for (const row of await matching(rest))
      for (const value of [row[name === "flag" ? "flags" : name]].flat())
        if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
    out[name] = [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  }
  return out;
}

async function matching(params, signal) {
  const { judges, runs } = await get("overview.json");
  const judge = Math.max(0, judges.indexOf(params.get("judge") ?? ""));
  let found = await load();
  for (const row of found) row.run ??= runs[row.run_no].run;
  for (const test of keeps(params, judge)) found = found.filter(test);
  const terms = [...(params.get("q") ?? "").matchAll(/"([^"]+)"|(\S+)/g)].map((match) =>
    (match[1] ?? match[2].replaceAll('"', "")).toLowerCase(),
  );
  if (terms.length) {
    texts ??= (await shards("text")).flat();
    found = found.filter((row) =>
      terms.every(
        (term) =>
          texts[row.n].includes(term) || (term.length > 5 && row.conversation_id.startsWith(term)),
      ),
    );
  }
  signal?.throwIfAborted();
  return found;
}

export async function list(params, signal) {
  let found = await matching(params, signal);
  const { judges } = await get("overview.json");
  const judge = Math.max(0, judges.indexOf(params.get("judge") ?? ""));
  const sort = params.get("sort") ?? "n";
  if (sort !== "n" || params.get("desc"))
    found = ordered(found, sort, judge, params.get("desc") ? -1 : 1);
  const offset = Number(params.get("offset") ?? 0);
  return {
    total: found.length,
    offset,
    rows: found.slice(offset, offset + Number(params.get("limit") ?? 50)).map((row) => {
      const base = params.get("versus") && partner(row, params.get("versus"));
      return base ? { ...row, was: base.result, base_id: base.conversation_id } : row;
    }),
  };
}

function ordered(found, sort, judge, sign) {
  const value = sort === "reward" ? (row) => row.rewards[judge] : (row) => row[sort];
  return [...found].sort((one, other) => {
    const [a, b] = [value(one) ?? null, value(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null) || one.n - other.n;
    return sign * (a < b ? -1 : a > b ? 1 : 0) || one.n - other.n;
  });
}

async function place(id) {
  const row = (await load()).find((one) => one.conversation_id === id);
  if (!row) throw new Error(`${id}: found no such conversation here`);
  return row;
}

const piece = async (kind, n) =>
  (await get(`${kind}/${Math.floor(n / sizes.talks)}.json`))[n % sizes.talks];

export async function talk(id) {
  const row = await place(id);
  return {
    ...(await piece("talks", row.n)),
    beside: rows.filter((one) => one.q === row.q).slice(0, 60),
  };
}

export const versus = async (base) => {
  const all = await get("versus.json");
  return all[base ?? ""] ?? { base, rows: [] };
};
export const messages = async (id) => piece("messages", (await place(id)).n);
export const prompts = async (id) => piece("prompts", (await place(id)).n);

export async function compare(id, some) {
  const { beside } = await talk(id);
  const about = beside.map((row) => row.conversation_id);
  const wanted = some.filter((name) => about.includes(name));
  return Promise.all((wanted.length ? wanted : about).slice(0, 24).map(talk));
}

export const agreement = async () => ({ labels: 0 });
