"""Published tables of other papers that stand beside ours (`paper/`, see the README there)."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass

from convbench.report.document import Column
from convbench.report.published import FILE

SELF_EDITS = "Knowledge incorporation, published"
FEW_SHOT = "Few-shot learning, published"


@dataclass(frozen=True)
class Reference:
    """One paper's table. `methods` are its lines: a value a column."""

    title: str
    by: str
    """Authors and year, short."""
    citation: str
    setting: str
    """Model and data, for the footnote."""
    columns: tuple[Column, ...]
    digits: int
    methods: Mapping[str, tuple[float | None, ...]]


LARGE = "Llama-3.1-70B-Instruct"
RIVAL = "GPT-4o"
"""Whose pages the published win rates are over."""


def colbench(model: str = "") -> Reference:
    """Return SWEET-RL's results on ColBench, percent: those of the larger policy where ours is it,
    else of the smaller one, with three more models and every model in a single turn."""
    keys = (
        "backend_success_pct", "backend_tests_passed_pct", "frontend_cosine_pct",
        "frontend_win_rate_pct",
    )  # fmt: skip
    large = known_model(model) == LARGE
    return Reference(
        title="ColBench, published",
        by="Zhou et al. 2025",
        citation="Zhou et al., SWEET-RL: Training Multi-Turn LLM Agents on Collaborative Reasoning "
        f"Tasks, 2025 (arXiv 2503.15478), {'table 4' if large else 'tables 2 and 3'}",
        setting=f"policy {LARGE if large else 'Llama-3.1-8B-Instruct'}, its own human simulators "
        "and checker",
        columns=(
            Column("Success (%)", "Success"),
            Column("Tests passed (%)", "Tests"),
            Column("Page cosine, CLIP (%)", "Cosine"),
            Column(f"Pages won over {RIVAL} (%)", "Won"),
        ),
        digits=1,
        methods=_methods("sweet.csv", "ColBench 70B" if large else "ColBench", "metric", keys),
    )


MODELS = {
    RIVAL: re.compile(r"gpt-4o(-\d.*)?"),
    "o1-mini": re.compile(r"o1-mini(-\d.*)?"),
    LARGE: re.compile(r"(meta-)?llama-3\.1-70b-instruct.*"),
}
"""Models of ColBench's table, and how providers write their names."""


def known_model(model: str) -> str | None:
    """Return what ColBench's table calls this model; None for one that it lacks."""
    name = model.rpartition("/")[2].lower()
    return next((known for known, form in MODELS.items() if form.fullmatch(name)), None)


KINDS = {
    "self-edit-implications-long": "SEAL long",
    "self-edit-implications-very-long": "SEAL very-long",
    "self-edit-rewrite": "SEAL rewrite",
    "self-edit-self-qa": "SEAL self-qa",
}
"""Our protocols of other kinds of edits, and their tables in `seal.csv`."""


def self_edits(protocol: str = "self-edit") -> Reference:
    """Return SEAL's results on knowledge incorporation for this kind of edits, shares."""
    keys = ("single passage", "continued pre-training", "continued pre-training, full")
    return Reference(
        title=SELF_EDITS,
        by="Zweiger et al. 2025",
        citation="Zweiger et al., Self-Adapting Language Models (SEAL), 2025",
        setting="policy Qwen2.5-7B, 200 passages of SQuAD, answers graded by a model",
        columns=(
            Column("Accuracy, single passage", "Single"),
            Column("Accuracy, continued pre-training", "Continued"),
            Column("The same, all weights trained", "In full"),
        ),
        digits=3,
        methods=_methods(
            "seal.csv", KINDS.get(protocol, "SEAL knowledge incorporation"), "setting", keys
        ),
    )


def few_shot() -> Reference:
    """Return SEAL's results on few-shot tasks, shares."""
    return Reference(
        title=FEW_SHOT,
        by="Zweiger et al. 2025",
        citation="Zweiger et al., Self-Adapting Language Models (SEAL), 2025",
        setting="policy Llama-3.2-1B-Instruct, 8 tasks of ARC-AGI's evaluation set that the best "
        "known settings solve, 5 self-edits each",
        columns=(Column("Success rate", "Success"),),
        digits=3,
        methods=_methods("seal.csv", "SEAL few-shot learning", "setting", ("ARC subset",)),
    )


def reference_of(protocol: str, model: str = "") -> Reference | None:
    """Return the published table for runs of this protocol, with this model as the policy that was
    trained; None where another paper's is it."""
    if protocol.startswith("collaboration"):
        return colbench(model)
    if protocol == "self-edit-few-shot":
        return few_shot()
    return self_edits(protocol) if protocol.startswith("self-edit") else None


def _methods(
    file: str, table: str, column: str, keys: tuple[str, ...]
) -> dict[str, tuple[float | None, ...]]:
    found: dict[str, dict[str, float]] = {}
    with (FILE.parent / file).open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["table"] == table:
                found.setdefault(row["method"], {})[row[column]] = float(row["mean"])
    return {name: tuple(map(values.get, keys)) for name, values in found.items()}
