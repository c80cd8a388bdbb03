"""The overview: what there is, how good it is, how sure that is."""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.publish.figures import JUDGING, judging, paid
from convbench.stats.estimate import Estimate, estimate
from convbench.store import Run
from convbench.view.filters import CHOICES, RESULT, tidy
from convbench.view.index import Index
from convbench.view.pictures import FILE, rasters

METHOD = ("run_no", "run", "task", "protocol", "mode", "policy", "split")
BINS = 20
COUNTS = """
count(*) AS conversations, count(DISTINCT group_id) AS groups,
count(failure) AS failed, count(correct) AS graded, count(*) FILTER (WHERE correct) AS correct,
count(*) FILTER (WHERE correct = false AND answer IS NULL) AS unparsed,
count(*) FILTER (WHERE len(flags) > 0) AS flagged, sum(cut_turns)::BIGINT AS cut,
avg(n_turns) AS n_turns, avg(words) AS words, sum(cost_usd) AS cost_usd,
sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(completion_tokens)::BIGINT AS completion_tokens
"""


def overview(index: Index, *, drawings: bool = True) -> dict[str, Any]:
    """Return totals, what can be chosen, figures by policy and temperature, and pictures: as
    `drawings` (SVG) where there are."""
    return {
        "judges": index.judges,
        "totals": _totals(index),
        "facets": facets(index),
        "runs": [_run(index, number) for number in range(len(index.runs))],
        "methods": figures(index, METHOD),
        "temperatures": figures(index, (*METHOD, "temperature")),
        "rewards": [histogram(index, k) for k in range(len(index.judges))],
        "pictures": pictures(index, drawings),
    }


def _totals(index: Index) -> dict[str, Any]:
    """Return the counts of all runs, with what judging cost and what all of it did."""
    totals: dict[str, Any] = tidy(index.one(f"SELECT {COUNTS} FROM conversations"))
    found = index.one(JUDGING, [paid(index.runs)])
    judged = judging(found["usd"], found["unknown"])
    talked = totals["cost_usd"]
    totals["judge_usd"] = judged
    totals["total_usd"] = None if judged is None or talked is None else talked + judged
    return totals


def facets(index: Index) -> dict[str, list[list[Any]]]:
    """Return the values of each filter with how many conversations have them."""
    columns = {name: name for name in (*CHOICES, "temperature")} | {
        "result": RESULT,
        "flag": "unnest(flags)",
    }
    return {name: _values(index, sql) for name, sql in columns.items()}


def _values(index: Index, column: str) -> list[list[Any]]:
    rows = index.ask(
        f"SELECT {column} AS value, count(*) AS n FROM conversations GROUP BY 1 ORDER BY value"
    )
    return [[row["value"], row["n"]] for row in rows if row["value"] is not None]


def _run(index: Index, number: int) -> dict[str, Any]:
    run = index.runs[number]
    m = run.manifest
    policy = m.cast[m.protocol.policy].model if m.protocol.policy in m.cast else None
    return {
        "run_no": number, "run": m.id, "name": _name(run), "path": str(run.path),
        "kind": m.kind, "task": m.task.name,
        "protocol": m.protocol.name, "mode": m.mode, "policy": policy, "created": m.created,
        "parent": m.parent, "checkpoint": m.checkpoint, "turns": m.turns,
        "cast": {name: member.model for name, member in m.cast.items()},
    }  # fmt: skip


def _name(run: Run) -> str:
    """What a person calls it: its folder, with its parent's for an evaluation."""
    path = run.path.resolve()
    of = path.parent.parent.name + "/" if path.parent.name == "evals" else ""
    return of + path.name


def figures(index: Index, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each combination of `keys`: counts, accuracy and rewards, as means with
    the errors that the report and the cards tell (`convbench.stats.estimate`)."""
    listed = ", ".join(keys)
    rows = {
        tuple(row[key] for key in keys): tidy(row)
        for row in index.ask(
            f"SELECT {listed}, {COUNTS} FROM conversations GROUP BY {listed} ORDER BY {listed}"
        )
    }
    for row in rows.values():
        row["accuracy"], row["rewards"] = None, [None] * len(index.judges)
    for key, mean in _means(index, keys, "correct::INT").items():
        rows[key]["accuracy"] = mean
    for k in range(len(index.judges)):
        for key, mean in _means(index, keys, f"reward_{k}").items():
            rows[key]["rewards"][k] = mean
    return list(rows.values())


def _means(index: Index, keys: Sequence[str], value: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    listed = ", ".join(keys)
    pairs: dict[tuple[Any, ...], list[tuple[str, float]]] = {}
    for row in index.ask(
        f"SELECT {listed}, group_id, {value} AS value FROM conversations WHERE {value} IS NOT NULL"
    ):
        key = tuple(row[name] for name in keys)
        pairs.setdefault(key, []).append((row["group_id"], row["value"]))
    found = {key: estimate(values) for key, values in pairs.items()}
    return {key: _told(mean) for key, mean in found.items() if mean is not None}


def _told(mean: Estimate) -> dict[str, Any]:
    return {"mean": mean.mean, "error": mean.error, "groups": mean.groups, "n": mean.n}


def histogram(index: Index, judge: int) -> dict[str, Any]:
    """Return the counts of one judge's rewards in equal bins from the least to the greatest."""
    column = f"reward_{judge}"
    ends = index.one(f"SELECT least(min({column}), 0) AS low, greatest(max({column}), 1) AS high "
                     "FROM conversations")  # fmt: skip
    low, high = ends["low"], ends["high"]
    counts = [0] * BINS
    if low is not None:
        for row in index.ask(
            f"SELECT least(floor(({column} - ?) / ? * {BINS}), {BINS - 1})::INT AS bin, "
            f"count(*) AS n FROM conversations WHERE {column} IS NOT NULL GROUP BY 1",
            [low, high - low],
        ):
            counts[row["bin"]] = row["n"]
    failed = index.one(f"SELECT count(*) AS n FROM conversations WHERE failed_{judge} "
                       f"AND {column} IS NULL")["n"]  # fmt: skip
    return {"judge": index.judges[judge], "low": low, "high": high, "counts": counts,
            "scored": sum(counts), "failed": failed}  # fmt: skip


def pictures(index: Index, drawings: bool) -> list[dict[str, Any]]:
    """Return the report's pictures of each run, SVG where there is one and `drawings` may be."""
    found = []
    for number, run in enumerate(index.runs):
        files = {path.stem: path.name for path in rasters(run.reports)}
        if drawings and run.reports.is_dir():
            drawn = (path for path in sorted(run.reports.glob("*.svg")) if not path.is_symlink())
            files |= {path.stem: path.name for path in drawn if FILE.fullmatch(path.name)}
        found += [
            {"run_no": number, "name": stem, "src": f"reports/{number}/{name}"}
            for stem, name in files.items()
        ]
    return found
