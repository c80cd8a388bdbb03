"""Figures of the viewer's overview: counts, costs, means with errors, comparisons with Base."""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidict import MultiDict

from convbench.errors import QueryError
from convbench.hub.figures import paid_judges
from convbench.reports.comparable import differences
from convbench.reports.frame import mean_of, paired
from convbench.reports.policies import read_policy
from convbench.stats.estimates import Estimate, estimate, holm
from convbench.store import Run
from convbench.viewer.filters import facet_counts, finite_row, pairs_sql, result_sql
from convbench.viewer.index import ViewIndex

if TYPE_CHECKING:
    from pandas import DataFrame

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


def overview_figures(index: ViewIndex, *, drawings: bool = True) -> dict[str, Any]:
    """Return the data of the overview page, with the keys judges, totals, facets, runs, methods,
    temperatures, rewards and pictures.

    `methods` has figures by run, policy and split, `temperatures` also by temperature; `rewards`
    has a histogram for each judge. With `drawings` a picture's SVG is preferred.
    """
    return {
        "judges": index.judges,
        "totals": _total_counts(index),
        "facets": facet_counts(index, MultiDict()),
        "runs": [_run_facts(index, number) | cost for number, cost in enumerate(run_costs(index))],
        "methods": figure_rows(index, METHOD),
        "temperatures": figure_rows(index, (*METHOD, "temperature")),
        "rewards": [reward_histogram(index, k) for k in range(len(index.judges))],
        "pictures": report_pictures(index, drawings),
    }


def _total_counts(index: ViewIndex) -> dict[str, Any]:
    """Return the counts of all runs, and dollars for judging and in total."""
    totals: dict[str, Any] = finite_row(index.query_row(f"SELECT {COUNTS} FROM conversations"))
    totals |= index.query_row("SELECT count(DISTINCT hash(group_id)) AS groups FROM conversations")
    judged = _judge_usd(index.query_row(JUDGING, [paid_judges(index.runs)]))
    talked = totals["cost_usd"]
    totals["judge_usd"] = judged
    totals["total_usd"] = None if judged is None or talked is None else talked + judged
    return totals


def run_costs(index: ViewIndex) -> list[dict[str, float | None]]:
    """Return `talk_usd`, `judge_usd` and `total_usd` of each run, in the order of the index; None
    for what is unknown.

    Judging is 0 without verdicts.
    """
    talked = {
        row["run_no"]: row["usd"]
        for row in index.query_rows(
            "SELECT run_no, sum(cost_usd) AS usd FROM conversations GROUP BY run_no"
        )
    }
    judged = {
        row["run_no"]: _judge_usd(row)
        for row in index.query_rows(
            JUDGING.replace("SELECT", "SELECT run_no,") + " GROUP BY run_no",
            [paid_judges(index.runs)],
        )
    }
    rows: list[dict[str, float | None]] = []
    for number in range(len(index.runs)):
        talk, judge = talked.get(number), judged.get(number, 0.0)
        total = None if talk is None or judge is None else talk + judge
        rows.append({"talk_usd": talk, "judge_usd": judge, "total_usd": total})
    return rows


def _judge_usd(row: Mapping[str, Any]) -> float | None:
    """Return the dollars in a row of JUDGING, or None if unknown."""
    return None if row["unknown"] else row["usd"] or 0.0


def _run_facts(index: ViewIndex, number: int) -> dict[str, Any]:
    run = index.runs[number]
    m = run.manifest
    return {
        "run_no": number,
        "run": m.id,
        "name": _run_name(run),
        "path": str(run.path),
        "kind": m.kind,
        "task": m.task.name,
        "protocol": m.protocol.name,
        "mode": m.mode,
        "policy": m.policy_member.model,
        "created": m.created,
        "parent": m.parent,
        "checkpoint": m.checkpoint,
        "turns": m.turns,
        "cast": {name: member.model for name, member in m.cast.items()},
    }


def _run_name(run: Run) -> str:
    """Return the name to show for a run: its folder, of an evaluation with the parent's before."""
    path = run.path.resolve()
    prefix = path.parent.parent.name + "/" if path.parent.name == "evals" else ""
    return prefix + path.name


def figure_rows(index: ViewIndex, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each combination of `keys` that occurs, sorted by them: the keys, counts,
    `accuracy` and `rewards`.

    Accuracy and rewards (one for each judge) are as `estimate_json` gives them, with the report's
    clustered errors. NaN becomes None. Rows are grouped by a hash of the keys: the texts of a
    million rows would take 300 MB.
    """
    listed = ", ".join(keys)
    rows = index.query_rows(
        f"SELECT hash({listed}) AS key, {listed}, {COUNTS} FROM conversations "
        f"GROUP BY {listed} ORDER BY {listed}"
    )
    frames = dict(list(_frame(index, f"hash({listed}) AS key").groupby("key")))
    for row in rows:
        own = frames[row.pop("key")]
        row["accuracy"], *row["rewards"] = (
            estimate_json(mean_of(own, column)) for column in _columns(index)
        )
    return [finite_row(row) for row in rows]


def _columns(index: ViewIndex) -> list[str]:
    """Return the columns that have means: `correct`, and the rewards of each judge."""
    return ["correct", *(f"reward_{k}" for k in range(len(index.judges)))]


def _frame(index: ViewIndex, more: str, where: str = "") -> DataFrame:
    """Return a row for each conversation as the report's frame has it: `group`, the columns with
    means, and `more`, which is SQL."""
    values = ", ".join(f"{column}::DOUBLE AS {column}" for column in _columns(index))
    return index.query_frame(
        f'SELECT {more}, hash(group_id) AS "group", {values} FROM conversations {where}'
    )


def estimate_json(mean: Estimate | None) -> dict[str, Any] | None:
    """Return `mean`, `error`, `groups` and `n` of an estimate as a mapping; None for None."""
    if mean is None:
        return None
    return {"mean": mean.mean, "error": mean.error, "groups": mean.groups, "n": mean.n}


def reward_histogram(index: ViewIndex, judge: int) -> dict[str, Any]:
    """Return a judge's rewards counted in 20 equal bins, with the keys judge, low, high, counts,
    scored and failed.

    `judge` is its number in the index. The bins reach from the least reward or 0 to the greatest or
    1. `failed` counts verdicts without a reward.
    """
    column = f"reward_{judge}"
    ends = index.query_row(
        f"SELECT least(min({column}), 0) AS low, greatest(max({column}), 1) AS high "
        "FROM conversations"
    )
    low, high = ends["low"], ends["high"]
    counts = [0] * BINS
    if low is not None:
        for row in index.query_rows(
            f"SELECT least(floor(({column} - ?) / ? * {BINS}), {BINS - 1})::INT AS bin, "
            f"count(*) AS n FROM conversations WHERE {column} IS NOT NULL GROUP BY 1",
            [low, high - low],
        ):
            counts[row["bin"]] = row["n"]
    failed = index.query_row(
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


def report_pictures(index: ViewIndex, drawings: bool) -> list[dict[str, Any]]:
    """Return the pictures in the runs' folders of reports as `run_no`, `name` and `src` (an
    address), one for each file stem.

    With `drawings` an SVG is preferred; otherwise only pictures made of pixels are listed. Links
    are left out.
    """
    entries = []
    for number, run in enumerate(index.runs):
        files = {path.stem: path.name for path in list_rasters(run.reports_folder)}
        if drawings and run.reports_folder.is_dir():
            drawn = (
                path for path in sorted(run.reports_folder.glob("*.svg")) if not path.is_symlink()
            )
            files |= {path.stem: path.name for path in drawn if FILE.fullmatch(path.name)}
        entries += [
            {"run_no": number, "name": stem, "src": f"reports/{number}/{name}"}
            for stem, name in files.items()
        ]
    return entries


MISSED = ("wrong", "unparsed")
"""Results of graded conversations that are not correct."""
NAMED = 4
"""Largest number of differences between two runs that are listed."""


def base_comparisons(index: ViewIndex, base: str | None = None) -> dict[str, Any]:
    """Return `base` and `rows`: the comparison of every run with its Base, a row for each split.

    A row has the matrix of results, the pairs lost and gained, and the paired difference of each
    measure. `base` is the id of a run. Without it a child's Base is its parent,
    and the first of several runs of one task is the Base of the others. Raise QueryError for an
    unknown id.
    """
    rows = []
    for number, first in sorted(_base_numbers(index, base).items()):
        rows += _comparison_rows(index, first, number)
    for split in {row["split"] for row in rows}:
        for k in range(1 + len(index.judges)):
            _add_holm([row["measures"][k] for row in rows if row["split"] == split])
    return {"base": base, "rows": rows}


def _base_numbers(index: ViewIndex, base: str | None) -> dict[int, int]:
    """Return the number of a run's Base by the run's number."""
    ids = [run.manifest.id for run in index.runs]
    if base is not None:
        if base not in ids:
            raise QueryError(f"base: found {base!r:.80}; expected the id of one of these runs")
        return {k: ids.index(base) for k in range(len(ids)) if ids[k] != base}
    bases: dict[int, int] = {}
    firsts: dict[str, int] = {}
    for number, run in enumerate(index.runs):
        m = run.manifest
        if m.parent in ids:
            bases[number] = ids.index(m.parent)
        elif firsts.setdefault(m.task.name, number) != number:
            bases[number] = firsts[m.task.name]
    return bases


def _comparison_rows(index: ViewIndex, first: int, other: int) -> list[dict[str, Any]]:
    """Return a row for each split: the matrix of results and each measure's paired difference."""
    cells = index.query_rows(
        pairs_sql(
            f"b.split, {result_sql('a')} AS was, {result_sql('b')} AS now, count(*) AS n",
            first,
            other,
        )
        + " GROUP BY ALL"
    )
    unit = "split, hash(example_id, sample, temperature) AS unit"
    ours, theirs = (_frame(index, unit, f"WHERE run_no = {n}") for n in (other, first))
    apart = _run_differences(index.runs[first], index.runs[other])
    rows = []
    for split in sorted({cell["split"] for cell in cells}, key=str):
        matrix: dict[str, dict[str, int]] = {}
        for cell in cells:
            if cell["split"] == split:
                matrix.setdefault(cell["was"], {})[cell["now"]] = cell["n"]
        own = ours[ours["split"].isna() if split is None else ours["split"] == split]
        rows.append(
            {
                "base_no": first,
                "run_no": other,
                "split": split,
                "matrix": matrix,
                "pairs": sum(n for row in matrix.values() for n in row.values()),
                "lost": sum(matrix.get("correct", {}).get(name, 0) for name in MISSED),
                "gained": sum(matrix.get(name, {}).get("correct", 0) for name in MISSED),
                "measures": [_measure_row(own, theirs, column) for column in _columns(index)],
                "apart": apart,
            }
        )
    return rows


def _measure_row(ours: DataFrame, theirs: DataFrame, column: str) -> dict[str, Any] | None:
    """Return both means over the pairs and their difference with the margin of its 95% interval,
    or None without a pair."""
    both = paired(ours, theirs, column)
    less = estimate(both["group"], both[column] - both[f"{column}_base"])
    if less is None:
        return None
    return {
        "was": float(both[f"{column}_base"].mean()),
        "now": float(both[column].mean()),
        "difference": less.mean,
        "margin": None if less.interval is None else less.interval[1] - less.mean,
        "p": less.p,
        "adjusted": None,
        "n": less.n,
        "groups": less.groups,
    }


def _add_holm(measures: list[dict[str, Any] | None]) -> None:
    """Add to each measure its p adjusted by Holm's method over these runs."""
    estimated = [measure for measure in measures if measure is not None]
    for measure, p in zip(estimated, holm([measure["p"] for measure in estimated]), strict=True):
        measure["adjusted"] = p


def _run_differences(first: Run, other: Run) -> list[str]:
    """Return the differences between two runs, besides their policies, for which the report would
    not compare them."""
    return differences(*(read_policy(run, judges=_marks(run)) for run in (first, other)))[:NAMED]


def _marks(run: Run) -> dict[str, frozenset[str]]:
    """Return the fingerprints of a run's verdicts by judge."""
    marks: dict[str, frozenset[str]] = {}
    for judge, mark in run.judge_fingerprints():
        marks[judge] = marks.get(judge, frozenset()) | {mark}
    return marks


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


def raster_type(path: Path) -> str | None:
    """Return the media type of a PNG, JPEG, GIF or WebP picture, by its content; None for any other
    file.

    None also for a link, a file of more than 32 MiB, a hidden name or another suffix.
    """
    good = FILE.fullmatch(path.name) and path.suffix in RASTER
    if not good or path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    with path.open("rb") as file:
        start = file.read(16)
    return next((kind for look, kind in _STARTS if look.match(start)), None)


def list_rasters(folder: Path) -> Iterator[Path]:
    """Yield the pictures made of pixels directly in a folder, sorted by name; nothing if it does
    not exist or is a link."""
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir()) if raster_type(path))
