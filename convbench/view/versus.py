"""Each policy against Base on the same questions: what became of both, and the paired difference.

A pair is what the report pairs: conversations about the same question with the same sample number
and temperature. Estimators: `convbench.stats.estimate`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from convbench.errors import QueryError
from convbench.report.compare import differences
from convbench.report.policies import Policy, checkpoint_of
from convbench.stats.estimate import Estimate, McNemar, holm
from convbench.store import Run
from convbench.view.figures import means
from convbench.view.filters import paired, result
from convbench.view.index import Index

MISSED = ("wrong", "unparsed")
"""Results of what is graded and not right."""
NAMED = 4
"""Differences between two runs that are named."""


def versus(index: Index, base: str | None = None) -> dict[str, Any]:
    """Return every run against its Base, by split: `rows`; and the runs that may be `base`.

    Without `base`, which is a run's id, a child's Base is its parent, and of several runs of one
    task the first is that of the others.
    """
    rows = []
    for number, first in sorted(_bases(index, base).items()):
        rows += _against(index, first, number)
    for split in {row["split"] for row in rows}:
        for k in range(1 + len(index.judges)):
            _adjust([row["measures"][k] for row in rows if row["split"] == split])
    return {"base": base, "rows": rows}


def _bases(index: Index, base: str | None) -> dict[int, int]:
    """Return the number of its Base by a run's number."""
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
    """Return a row a split: the matrix of results, and each measure's paired difference."""
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
                "base_no": first, "run_no": other, "split": split, "matrix": matrix,
                "pairs": sum(n for row in matrix.values() for n in row.values()),
                "lost": lost, "gained": gained, "p": McNemar(lost + gained, lost, gained).p,
                "measures": [_measure(*three) for three in pairs], "apart": apart,
            }
        )  # fmt: skip
    return rows


def _measure(
    was: Estimate | None, now: Estimate | None, less: Estimate | None
) -> dict[str, Any] | None:
    """Return both means over the pairs and their difference with its 95% interval."""
    if was is None or now is None or less is None:
        return None
    return {
        "was": was.mean, "now": now.mean, "difference": less.mean, "margin": less.margin,
        "p": less.p, "adjusted": None, "n": less.n, "groups": less.groups,
    }  # fmt: skip


def _adjust(measures: list[dict[str, Any] | None]) -> None:
    """Put Holm's p over these runs beside each p."""
    told = [one for one in measures if one is not None]
    for one, p in zip(told, holm([one["p"] for one in told]), strict=True):
        one["adjusted"] = p


def _apart(first: Run, other: Run) -> list[str]:
    """Return what the two runs differ in beside their policies, as the report would refuse them."""
    child = other.manifest.parent == first.manifest.id
    one, two = (
        Policy(name="", run=run, split="all", rows=(), planned=0, family="")
        for run in (first, other)
    )
    if child:
        recipe, _ = checkpoint_of(other, first)
        two = replace(two, recipe=recipe)
    return differences(one, two, questions=False)[:NAMED]
