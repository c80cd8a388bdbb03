"""The numbers that papers print, as the program reads them: a row each."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.reports.published import (
    KINDS,
    LARGE,
    ReferenceTable,
    colbench_table,
    few_shot_table,
    paper_tables,
    self_edit_table,
)

FIELDS = ("paper", "table", "row", "column", "value", "error")
COLBENCH = (
    "backend_success_pct", "backend_tests_passed_pct", "frontend_cosine_pct",
    "frontend_win_rate_pct",
)  # fmt: skip
SELF_EDITS = ("single passage", "continued pre-training", "continued pre-training, full")
Printed = dict[str, str]
"""A number by FIELDS, all of them text; `error` is empty where none is printed."""


def printed_numbers() -> Iterator[Printed]:
    """Yield every printed number: the 21 tables of Mukherjee et al. 2025, those of SWEET-RL, and
    SEAL's."""
    for table in paper_tables():
        for method, numbers in table.methods.items():
            for metric, number in numbers.items():
                yield _printed(
                    "mukherjee2025offline", str(table.number), method, metric, number.mean,
                    number.error,
                )  # fmt: skip
    for model in ("", LARGE):
        yield from _cells("zhou2025sweetrl", model or "8B", colbench_table(model), COLBENCH)
    for protocol in ("self-edit", *KINDS):
        yield from _cells("zweiger2025seal", protocol, self_edit_table(protocol), SELF_EDITS)
    yield from _cells("zweiger2025seal", "few-shot", few_shot_table(), ("success",))


def _cells(
    paper: str, table: str, found: ReferenceTable, columns: tuple[str, ...]
) -> Iterator[Printed]:
    for row, values in found.methods.items():
        for column, value in zip(columns, values, strict=True):
            if value is not None:
                yield _printed(paper, table, row, column, value)


def _printed(
    paper: str, table: str, row: str, column: str, value: float, error: float | None = None
) -> Printed:
    texts = (paper, table, row, column, repr(value), "" if error is None else repr(error))
    return dict(zip(FIELDS, texts, strict=True))
