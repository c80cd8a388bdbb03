"""What papers print: one file of numbers, set beside ours by setting, method and metric."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from convbench.stats.estimates import Estimate

FILE = Path(__file__).parent / "paper" / "results.csv"


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """What a paper prints of one method in one setting.

    `method` is our name of it, `name` the paper's; `rows` are those of training data, where the
    paper tells them apart, and `args` of an ablation what differs from the method. `values` are
    numbers by column of the frame, without an error where none is printed.
    """

    method: str
    name: str
    paper: str
    table: str
    rows: str
    args: str
    values: dict[str, Estimate]


@cache
def _lines() -> tuple[dict[str, str], ...]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def method_order() -> list[str]:
    """Return the methods in the order in which the papers print them."""
    return list(dict.fromkeys(line["method"] for line in _lines()))


def printed_rows(
    task: str,
    mode: str,
    protocol: str,
    turns: int,
    *,
    judges: Sequence[str] = (),
    model: str = "",
    variant: str = "",
) -> list[PrintedRow]:
    """Return what papers print for a setting, a row for each method; empty if they print none.

    Where a paper has several judges, `gpt-4o` and `claude opus`, one of ours gets the numbers of
    the one whose words are in its name, else of the first; so it is with the base model. `variant`
    is a way of measuring that has lines of its own.
    """
    here = {"task": task, "mode": mode, "protocol": protocol, "turns": str(turns)}
    lines = [
        line
        for line in _lines()
        if line["variant"] == variant
        and all(not line[key] or value in line[key].split() for key, value in here.items())
    ]
    chosen = _like(model, [line["model"] for line in lines])
    lines = [line for line in lines if line["model"] == chosen]
    known = [line["judge"] for line in lines]
    of_judge = {judge: _like(judge, known) for judge in (*judges, "")}
    first = of_judge[judges[0] if judges else ""]
    rows: dict[tuple[str, ...], PrintedRow] = {}
    for line in lines:
        method, name, size, args = (line[key] for key in ("method", "printed", "rows", "args"))
        made = PrintedRow(method, name, line["paper"], line["table"], size, args, {})
        row = rows.setdefault((method, name, size, args), made)
        kind, _, metric = line["metric"].partition("/")
        only = line["judge"].partition("only ")[2]  # stands beside judges of that name alone
        fits = [judge for judge in judges if only in judge]
        if kind == "judge":
            columns = [f"{j}/{metric}" for j in fits if of_judge[j] == line["judge"]]
        else:
            here_too = line["judge"] == first and (fits or not only)
            columns = [{"accuracy": "correct"}.get(kind, kind)] if here_too else []
        # On the frame's scale: percent only of what is percent there.
        is_share = line["unit"] == "%" and line["metric"] not in ("thinking", "won")
        n, scale = int(line["n"] or 0), 0.01 if is_share else 1.0
        error = scale * float(line["error"]) if line["error"] else None
        number = Estimate(scale * float(line["mean"]), error, n, n, n - 1)
        row.values.update(dict.fromkeys(columns, number))
    return [row for row in rows.values() if row.values]


def _like(name: str, known: Iterable[str]) -> str:
    """Return the one whose words are all in a name, in any case, else the first."""
    listed = list(known) or [""]
    told = (one for one in listed if one and all(w in name.lower() for w in one.lower().split()))
    return next(told, listed[0])


def is_named(method: str, name: str) -> bool:
    """Return whether `gpt-4o-2024-08-06` means `GPT-4o` in any case; `gpt-4o-mini` does not."""
    form = rf"(meta-)?{re.escape(method)}(-\d.*)?"
    return re.fullmatch(form, name, re.IGNORECASE) is not None
