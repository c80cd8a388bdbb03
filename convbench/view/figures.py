"""Figures of the viewer's overview: counts, costs, means with errors, comparisons with Base."""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from multidict import MultiDict

from convbench.errors import QueryError
from convbench.publish.figures import paid
from convbench.report.compare import differences
from convbench.report.policies import Policy, checkpoint_of
from convbench.stats.means import Estimate, McNemar, holm, of_groups
from convbench.store import Run
from convbench.view.filters import following, paired, result, tidy
from convbench.view.index import Index

METHOD = ("run_no", "run", "task", "protocol", "mode", "policy", "split")
BINS = 20
COUNTS = """
count(*) AS conversations, count(failure) AS failed,
count(correct) AS graded, count(*) FILTER (WHERE correct) AS correct,
count(*) FILTER (WHERE correct = false AND answer IS NULL) AS unparsed,
count(*) FILTER (WHERE len(flags) > 0) AS flagged, sum(cut_turns)::BIGINT AS cut,
avg(n_turns) AS n_turns, avg(words) AS words, sum(cost_usd) AS cost_usd,
sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(completion_tokens)::BIGINT AS completion_tokens
"""
JUDGING = """
SELECT sum(cost_usd) AS usd, bool_or(cost_usd IS NULL AND list_contains(?, fingerprint)) AS unknown
FROM raw.verdicts
"""
"""Dollars of the newest verdicts, and whether one is unknown whose judge calls a model."""


def overview(index: Index, *, drawings: bool = True) -> dict[str, Any]:
    """Return the data of the overview page: totals, filters with counts, figures by policy and
    temperature, and pictures, as SVG if `drawings` is true and there is one."""
    return {
        "judges": index.judges,
        "totals": _totals(index),
        "facets": following(index, MultiDict()),
        "runs": [_run(index, number) | cost for number, cost in enumerate(costs(index))],
        "methods": figures(index, METHOD),
        "temperatures": figures(index, (*METHOD, "temperature")),
        "rewards": [histogram(index, k) for k in range(len(index.judges))],
        "pictures": pictures(index, drawings),
    }


def _totals(index: Index) -> dict[str, Any]:
    """Return the counts of all runs, and dollars for judging and in total."""
    totals: dict[str, Any] = tidy(index.one(f"SELECT {COUNTS} FROM conversations"))
    totals |= index.one("SELECT count(DISTINCT hash(group_id)) AS groups FROM conversations")
    judged = _judge_usd(index.one(JUDGING, [paid(index.runs)]))
    talked = totals["cost_usd"]
    totals["judge_usd"] = judged
    totals["total_usd"] = None if judged is None or talked is None else talked + judged
    return totals


def costs(index: Index) -> list[dict[str, float | None]]:
    """Return for each run the dollars for conversations, for verdicts and in total; None if
    unknown."""
    talked = {
        row["run_no"]: row["usd"]
        for row in index.ask(
            "SELECT run_no, sum(cost_usd) AS usd FROM conversations GROUP BY run_no"
        )
    }
    judged = {
        row["run_no"]: _judge_usd(row)
        for row in index.ask(
            JUDGING.replace("SELECT", "SELECT run_no,") + " GROUP BY run_no", [paid(index.runs)]
        )
    }
    found: list[dict[str, float | None]] = []
    for number in range(len(index.runs)):
        talk, judge = talked.get(number), judged.get(number, 0.0)
        total = None if talk is None or judge is None else talk + judge
        found.append({"talk_usd": talk, "judge_usd": judge, "total_usd": total})
    return found


def _judge_usd(found: Mapping[str, Any]) -> float | None:
    """Return the dollars in a row of JUDGING, or None if unknown."""
    return None if found["unknown"] else found["usd"] or 0.0


def _run(index: Index, number: int) -> dict[str, Any]:
    run = index.runs[number]
    m = run.manifest
    policy = m.cast[m.protocol.policy].model if m.protocol.policy in m.cast else None
    return {
        "run_no": number,
        "run": m.id,
        "name": _name(run),
        "path": str(run.path),
        "kind": m.kind,
        "task": m.task.name,
        "protocol": m.protocol.name,
        "mode": m.mode,
        "policy": policy,
        "created": m.created,
        "parent": m.parent,
        "checkpoint": m.checkpoint,
        "turns": m.turns,
        "cast": {name: member.model for name, member in m.cast.items()},
    }


def _name(run: Run) -> str:
    """Return the name to show for a run: its folder, of an evaluation with the parent's before."""
    path = run.path.resolve()
    of = path.parent.parent.name + "/" if path.parent.name == "evals" else ""
    return of + path.name


def figures(index: Index, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each combination of `keys`: counts, accuracy and rewards, as means with the
    same errors as the report (`convbench.stats.means`).

    Rows are grouped by a hash of the keys: the texts of a million rows would take 300 MB.
    """
    listed = ", ".join(keys)
    rows = index.ask(
        f"SELECT hash({listed}) AS key, {listed}, {COUNTS} FROM conversations "
        f"GROUP BY {listed} ORDER BY {listed}"
    )
    values = ["correct::INT", *(f"reward_{k}" for k in range(len(index.judges)))]
    table = f"(SELECT *, hash({listed}) AS key FROM conversations)"
    found = means(index, table, "key", values)
    for row in rows:
        key = row.pop("key")
        row["accuracy"], *row["rewards"] = (told(mean) for mean in found[key])
    return [tidy(row) for row in rows]


def means(
    index: Index, table: str, key: str, values: Sequence[str]
) -> dict[Any, list[Estimate | None]]:
    """Return by `key` the mean of each column in `values`, clustered by `group_id`; None for a
    column without numbers. The database computes the sums, one row a group."""
    each = range(len(values))
    sums = "".join(f", count({v}) AS n{k}, fsum({v}) AS s{k}" for k, v in enumerate(values))
    whole = "".join(f", sum(n{k}) AS all{k}, fsum(s{k}) / sum(n{k}) AS mean{k}" for k in each)
    out = "".join(
        f", any_value(all{k})::BIGINT AS n{k}, any_value(mean{k}) AS mean{k}, "
        f"count(*) FILTER (n{k} > 0) AS groups{k}, "
        f"fsum(power(s{k} - n{k} * mean{k}, 2)) FILTER (n{k} > 0) AS squares{k}"
        for k in each
    )
    rows = index.ask(
        f"WITH g AS MATERIALIZED (SELECT {key}{sums} FROM {table} GROUP BY {key}, hash(group_id)), "
        f"m AS (SELECT {key}{whole} FROM g GROUP BY {key}) "
        f"SELECT g.{key}{out} FROM g JOIN m ON g.{key} IS NOT DISTINCT FROM m.{key} GROUP BY ALL"
    )
    return {
        row[key]: [
            of_groups(row[f"mean{k}"], row[f"n{k}"], row[f"groups{k}"], row[f"squares{k}"])
            if row[f"n{k}"]
            else None
            for k in each
        ]
        for row in rows
    }


def told(mean: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate for the page, None for None."""
    if mean is None:
        return None
    return {"mean": mean.mean, "error": mean.error, "groups": mean.groups, "n": mean.n}


def histogram(index: Index, judge: int) -> dict[str, Any]:
    """Return the counts of one judge's rewards in BINS equal bins, from the least reward or 0 to
    the greatest or 1."""
    column = f"reward_{judge}"
    ends = index.one(
        f"SELECT least(min({column}), 0) AS low, greatest(max({column}), 1) AS high "
        "FROM conversations"
    )
    low, high = ends["low"], ends["high"]
    counts = [0] * BINS
    if low is not None:
        for row in index.ask(
            f"SELECT least(floor(({column} - ?) / ? * {BINS}), {BINS - 1})::INT AS bin, "
            f"count(*) AS n FROM conversations WHERE {column} IS NOT NULL GROUP BY 1",
            [low, high - low],
        ):
            counts[row["bin"]] = row["n"]
    failed = index.one(
        f"SELECT count(*) AS n FROM conversations WHERE failed_{judge} AND {column} IS NULL"
    )["n"]
    return {
        "judge": index.judges[judge],
        "low": low,
        "high": high,
        "counts": counts,
        "scored": sum(counts),
        "failed": failed,
    }


def pictures(index: Index, drawings: bool) -> list[dict[str, Any]]:
    """Return the pictures in the reports of each run; SVG is preferred if `drawings` is true."""
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


MISSED = ("wrong", "unparsed")
"""Results of graded conversations that are not correct."""
NAMED = 4
"""Largest number of differences between two runs that are listed."""


def versus(index: Index, base: str | None = None) -> dict[str, Any]:
    """Return the comparison of every run with its Base, by split.

    `base` is the id of a run. Without it a child's Base is its parent, and the first of several
    runs of one task is the Base of the others. Raises QueryError for an unknown id.
    """
    rows = []
    for number, first in sorted(_bases(index, base).items()):
        rows += _against(index, first, number)
    for split in {row["split"] for row in rows}:
        for k in range(1 + len(index.judges)):
            _adjust([row["measures"][k] for row in rows if row["split"] == split])
    return {"base": base, "rows": rows}


def _bases(index: Index, base: str | None) -> dict[int, int]:
    """Return the number of a run's Base by the run's number."""
    ids = [run.manifest.id for run in index.runs]
    if base is not None:
        if base not in ids:
            raise QueryError(f"base: found {base!r:.80}; expected the id of one of these runs")
        return {k: ids.index(base) for k in range(len(ids)) if ids[k] != base}
    found: dict[int, int] = {}
    firsts: dict[str, int] = {}
    for number, run in enumerate(index.runs):
        m = run.manifest
        if m.parent in ids:
            found[number] = ids.index(m.parent)
        elif firsts.setdefault(m.task.name, number) != number:
            found[number] = firsts[m.task.name]
    return found


def _against(index: Index, first: int, other: int) -> list[dict[str, Any]]:
    """Return a row for each split: the matrix of results and each measure's paired difference."""
    cells = index.ask(
        paired(f"b.split, {result('a')} AS was, {result('b')} AS now, count(*) AS n", first, other)
        + " GROUP BY ALL"
    )
    measures = ["correct::INT", *(f"reward_{k}" for k in range(len(index.judges)))]
    columns, values = ["b.split", "b.group_id"], []
    for k, name in enumerate(measures):
        both = f"a.{name} IS NOT NULL AND b.{name} IS NOT NULL"
        columns += [
            f"CASE WHEN {both} THEN a.{name}::DOUBLE END AS was{k}",
            f"CASE WHEN {both} THEN b.{name}::DOUBLE END AS now{k}",
            f"b.{name}::DOUBLE - a.{name}::DOUBLE AS less{k}",
        ]
        values += [f"was{k}", f"now{k}", f"less{k}"]
    table = f"({paired(', '.join(columns), first, other)})"
    found = means(index, table, "split", values)
    apart = _apart(index.runs[first], index.runs[other])
    rows = []
    for split, each in sorted(found.items(), key=str):
        matrix: dict[str, dict[str, int]] = {}
        for cell in cells:
            if cell["split"] == split:
                matrix.setdefault(cell["was"], {})[cell["now"]] = cell["n"]
        lost = sum(matrix.get("correct", {}).get(name, 0) for name in MISSED)
        gained = sum(matrix.get(name, {}).get("correct", 0) for name in MISSED)
        pairs = [each[k : k + 3] for k in range(0, len(each), 3)]
        rows.append(
            {
                "base_no": first,
                "run_no": other,
                "split": split,
                "matrix": matrix,
                "pairs": sum(n for row in matrix.values() for n in row.values()),
                "lost": lost,
                "gained": gained,
                "p": McNemar(lost + gained, lost, gained).p,
                "measures": [_measure(*three) for three in pairs],
                "apart": apart,
            }
        )
    return rows


def _measure(
    was: Estimate | None, now: Estimate | None, less: Estimate | None
) -> dict[str, Any] | None:
    """Return both means over the pairs and their difference with the margin of its 95% interval,
    or None if one is missing."""
    if was is None or now is None or less is None:
        return None
    return {
        "was": was.mean,
        "now": now.mean,
        "difference": less.mean,
        "margin": less.margin,
        "p": less.p,
        "adjusted": None,
        "n": less.n,
        "groups": less.groups,
    }


def _adjust(measures: list[dict[str, Any] | None]) -> None:
    """Add to each measure its p adjusted by Holm's method over these runs."""
    told = [one for one in measures if one is not None]
    for one, p in zip(told, holm([one["p"] for one in told]), strict=True):
        one["adjusted"] = p


def _apart(first: Run, other: Run) -> list[str]:
    """Return the differences between two runs, besides their policies, for which the report would
    not compare them."""
    child = other.manifest.parent == first.manifest.id
    one, two = (
        Policy(name="", run=run, split="all", rows=(), planned=0, family="")
        for run in (first, other)
    )
    if child:
        recipe, _ = checkpoint_of(other, first)
        two = replace(two, recipe=recipe)
    return differences(one, two, questions=False)[:NAMED]


FILE = re.compile(r"[A-Za-z0-9_-][\w.-]{0,199}", re.ASCII)
"""A file name that is served: without a folder, and not hidden."""
RASTER = (".png", ".jpg", ".jpeg", ".webp", ".gif")
"""Suffixes of pictures made of pixels."""
LARGEST = 32 << 20
"""Largest number of bytes of a picture."""
_STARTS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


def raster(path: Path) -> str | None:
    """Return the media type of a picture made of pixels, by its content; None for other files."""
    good = FILE.fullmatch(path.name) and path.suffix in RASTER
    if not good or path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    with path.open("rb") as file:
        start = file.read(16)
    return next((kind for look, kind in _STARTS if look.match(start)), None)


def rasters(folder: Path) -> Iterator[Path]:
    """Yield the pictures made of pixels in a folder, sorted by name."""
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir()) if raster(path))
