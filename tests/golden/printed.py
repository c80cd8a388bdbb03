"""The numbers that papers print, as the program reads them: a row each."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from convbench.reports.published import FILE

FIELDS = ("paper", "table", "row", "column", "value", "error")
LARGE = "Llama-3.1-70B-Instruct"
COLUMNS = {
    "mukherjee2025offline": {
        "accuracy": "accuracy", "thinking": "thinking_pct", "judge/overall": "r_overall",
        "judge/accuracy": "r_accuracy", "judge/reasoning": "r_reasoning",
        "judge/comprehensiveness": "r_comprehensive", "judge/pedagogical": "r_pedagogic",
        "judge/confidence": "r_confidence",
    },
    "collaboration": {
        "judge/accuracy": "backend_success_pct", "judge/overall": "backend_tests_passed_pct",
    },
    "collaboration-frontend": {
        "judge/overall": "frontend_cosine_pct", "won": "frontend_win_rate_pct",
    },
}  # fmt: skip
"""Names of the columns by paper or protocol, and by metric."""
SELF_EDITS = ("single passage", "continued pre-training", "continued pre-training, full")
ORDER = (*(name for some in COLUMNS.values() for name in some.values()), *SELF_EDITS, "success")
Printed = dict[str, str]
"""A number by FIELDS, all of them text; `error` is empty where none is printed."""


def printed_numbers() -> Iterator[Printed]:
    """Yield every printed number: the 21 tables of Mukherjee et al. 2025, those of SWEET-RL, and
    SEAL's; by table, method and column."""
    with FILE.open(newline="", encoding="utf-8") as file:
        found = [_printed(line) for line in csv.DictReader(file)]
    first: dict[tuple[str, ...], int] = {}
    for number in found:
        for key in ((number["paper"], number["table"]), _method(number)):
            first.setdefault(key, len(first))
    yield from sorted(found, key=lambda number: _place(number, first))


def _method(number: Printed) -> tuple[str, ...]:
    return number["paper"], number["table"], number["row"]


def _place(number: Printed, first: dict[tuple[str, ...], int]) -> tuple[int, ...]:
    table = first[number["paper"], number["table"]]
    return table, first[_method(number)], ORDER.index(number["column"])


def _printed(line: dict[str, str]) -> Printed:
    paper, table, row = line["paper"], line["table"], line["printed"]
    metric, protocol = line["metric"], line["protocol"]
    if paper == "mukherjee2025offline":
        row, column = line["rows"] or line["method"], COLUMNS[paper][metric]
    elif paper == "zhou2025sweetrl":
        table, column = LARGE if line["model"] == LARGE else "8B", COLUMNS[protocol][metric]
    else:
        few = protocol == "self-edit-few-shot"
        table = "few-shot" if few else protocol
        column = "success" if few else line["variant"] or SELF_EDITS[0]
    error = repr(float(line["error"])) if line["error"] else ""
    texts = (paper, table, row, column, repr(float(line["mean"])), error)
    return dict(zip(FIELDS, texts, strict=True))
