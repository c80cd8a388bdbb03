"""Published numbers to compare with: the paper's (`paper/results.csv`) and other papers' tables."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from convbench.reports.citations import PAPERS
from convbench.reports.document import Column
from convbench.reports.policies import NAMES

FILE = Path(__file__).parent / "paper" / "results.csv"
TASKS = {
    "ARC": "arc",
    "MMLU": "mmlu",
    "OpenBookQA": "openbookqa",
    "SciQA": "sciqa",
    "CoSQL": "cosql",
    "MathDial": "mathdial",
}
"""Our task for each of the paper's datasets."""
ALSO = {"sciq": "sciqa"}
"""Further tasks that a dataset of the paper may be: its "SciQA" is cited as SciQ (Welbl et al.
2017) and described as ScienceQA ("multimodal", "text and diagrams"), so both are compared with it.
"""

CITATION = PAPERS["mukherjee2025offline"].reference_line
NAIVE = (
    "its standard errors are naive over conversations, e.g. sqrt(.7993*.2007/289) = .0236 for "
    "SWiFt on ARC; --se naive gives ours in the same way"
)
DEFAULT_TURNS = 3
DIGIT = 1e-4 + 1e-9
"""One unit in the last digit of a printed accuracy."""
LARGEST = 1000
"""Largest sample size that is tried."""

_TITLE = re.compile(
    r"(?P<judge>Claude 4 Opus Judge)?.*- (?P<mode>Thinking|Standard) Mode "
    r"\((?P<task>\w+)(?P<clarifying> Clarifying Questions)?(?:\s+\$n = (?P<n>\d+)\$ ?)?\)"
)


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """One printed number."""

    mean: float
    error: float


@dataclass(frozen=True)
class PaperTable:
    """One printed table. `methods` maps our names of methods (in tables 20 and 21: numbers of
    rows) to numbers by metric key (`accuracy`, `thinking_pct`, `r_overall`, …)."""

    number: int
    title: str
    task: str
    mode: str
    protocol: str
    turns: int
    judge: str
    by_size: bool
    methods: Mapping[str, Mapping[str, PrintedNumber]]


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Return all 21 tables of the paper, in order."""
    return tuple(_read_paper_tables())


def _read_paper_tables() -> Iterator[PaperTable]:
    rows: dict[tuple[int, str], dict[str, dict[str, PrintedNumber]]] = {}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            methods = rows.setdefault((int(row["table"]), row["title"]), {})
            name = NAMES.get(row["method"].lower().replace("stepdpo", "step-dpo"), row["method"])
            number = PrintedNumber(float(row["mean"]), float(row["standard_error"]))
            methods.setdefault(name, {})[row["metric"]] = number
    for (table_number, title), methods in rows.items():
        title_match = _TITLE.fullmatch(title)
        assert title_match is not None, title
        yield PaperTable(
            number=table_number,
            title=title,
            task=TASKS[title_match["task"]],
            mode=title_match["mode"].lower(),
            protocol="clarifying" if title_match["clarifying"] else "reasoning",
            turns=int(title_match["n"] or DEFAULT_TURNS),
            judge="claude-4-opus" if title_match["judge"] else "gpt-4o",
            by_size=title.startswith("Dataset Size"),
            methods=methods,
        )


def is_second_judge(name: str) -> bool:
    """Return True if a name contains both `claude` and `opus` in lower case, as that of the paper's
    second judge does."""
    return "claude" in name and "opus" in name


def paper_key(key: str) -> str:
    """Return a measure's key as written in `results.csv`; a key that is the same there is returned
    unchanged."""
    return {"r_comprehensiveness": "r_comprehensive", "r_pedagogical": "r_pedagogic"}.get(key, key)


@cache
def sample_size(number: int) -> int | None:
    """Return the sample size up to 1000 that a table's accuracies and errors imply; None if no
    single n fits best. Raise ValueError for a number that is no table.

    It is the n for which most methods have both an accuracy of k/n for a whole k and an error of
    sqrt(p(1 - p)/n), as printed. Base follows another rule in tables 1 to 12; like lines copied
    from another table (19) and errors of 0, it does not count against an n.
    """
    (table,) = (table for table in paper_tables() if table.number == number)
    printed = [numbers["accuracy"] for numbers in table.methods.values()]
    votes = [sum(_fits_sample(accuracy, n) for accuracy in printed) for n in range(1, LARGEST + 1)]
    best = max(votes)
    alone = best > 0 and votes.count(best) == 1
    return votes.index(best) + 1 if alone else None


def _fits_sample(accuracy: PrintedNumber, n: int) -> bool:
    """Return True if n conversations can give this accuracy and error, to four printed digits."""
    p = accuracy.mean
    share = round(p * n) / n
    naive = math.sqrt(p * (1 - p) / n)
    return 0 < p < 1 and abs(share - p) <= DIGIT / 2 and abs(naive - accuracy.error) <= DIGIT


def paper_table(
    task: str, mode: str, protocol: str, turns: int, judge: str | None = None
) -> PaperTable | None:
    """Return the paper's table for this setting; None if it has none.

    If it has one for each of its two judges, the Claude 4 Opus table is used for a judge of that
    name, the GPT-4o table for any other or None. If there is one table only, it is used for every
    judge. Tables by dataset size are not considered.
    """
    claude = judge is not None and is_second_judge(judge)
    tables = [
        table
        for table in paper_tables()
        if (table.task, table.mode, table.protocol, table.turns)
        == (ALSO.get(task, task), mode, protocol, turns)
        and not table.by_size
    ]
    tables.sort(key=lambda table: (table.judge == "claude-4-opus") != claude)
    return tables[0] if tables else None


def size_table(task: str, mode: str) -> PaperTable | None:
    """Return the paper's table by number of training rows (20, 21), whose methods are `1000` and
    `2000` rows of ReFit; None if it has none for this setting."""
    setting = (ALSO.get(task, task), mode)
    tables = (t for t in paper_tables() if t.by_size and (t.task, t.mode) == setting)
    return next(tables, None)


SELF_EDITS = "Knowledge incorporation, published"
FEW_SHOT = "Few-shot learning, published"


@dataclass(frozen=True)
class ReferenceTable:
    """A table of another paper. `methods` maps its methods to a value for each column."""

    title: str
    authors: str
    """Short authors and year."""
    citation: str
    setting: str
    """Model and data, for the footnote."""
    columns: tuple[Column, ...]
    digits: int
    methods: Mapping[str, tuple[float | None, ...]]


LARGE = "Llama-3.1-70B-Instruct"
WRITER = re.compile(r"gpt-4\.1(-\d.*)?")
"""Pattern of the names of the model that wrote SEAL's "GPT-4.1 data"."""
RIVAL = "GPT-4o"
"""The model that the published win rates are against."""


def colbench_table(model: str = "") -> ReferenceTable:
    """Return SWEET-RL's results on ColBench in percent, by method; a value that is not printed is
    None.

    If `model` is Llama-3.1-70B-Instruct they are those of the 70B policy. Otherwise they are those
    of the 8B policy, with three more models and every model in a single turn.
    """
    keys = (
        "backend_success_pct",
        "backend_tests_passed_pct",
        "frontend_cosine_pct",
        "frontend_win_rate_pct",
    )
    large = known_model(model) == LARGE
    return ReferenceTable(
        title="ColBench, published",
        authors="Zhou et al. 2025",
        citation=f"{PAPERS['zhou2025sweetrl'].reference_line}, "
        f"{'table 4' if large else 'tables 2 and 3'}",
        setting=f"policy {LARGE if large else 'Llama-3.1-8B-Instruct'}, its own human simulators "
        "and checker",
        columns=(
            Column("Success (%)", "Success"),
            Column("Tests passed (%)", "Tests"),
            Column("Page cosine, CLIP (%)", "Cosine"),
            Column(f"Pages won over {RIVAL} (%)", "Won"),
        ),
        digits=1,
        methods=_read_methods("sweet.csv", "ColBench 70B" if large else "ColBench", "metric", keys),
    )


MODELS = {
    RIVAL: re.compile(r"gpt-4o(-\d.*)?"),
    "o1-mini": re.compile(r"o1-mini(-\d.*)?"),
    LARGE: re.compile(r"(meta-)?llama-3\.1-70b-instruct.*"),
}
"""Models of ColBench's table, with a pattern of their names at providers."""


def known_model(model: str) -> str | None:
    """Return the name of this model in ColBench's table; None if it is not in it.

    Only what follows the last slash counts, in any case; a date at the end is allowed.
    """
    name = model.rpartition("/")[2].lower()
    return next((known for known, form in MODELS.items() if form.fullmatch(name)), None)


def is_data_writer(model: str) -> bool:
    """Return True if a model is the one that wrote SEAL's data of another model."""
    return WRITER.fullmatch(model.rpartition("/")[2].lower()) is not None


KINDS = {
    "self-edit-implications-long": "SEAL long",
    "self-edit-implications-very-long": "SEAL very-long",
    "self-edit-rewrite": "SEAL rewrite",
    "self-edit-self-qa": "SEAL self-qa",
}
"""Tables in `seal.csv` by our protocol, for other kinds of self-edits."""


def self_edit_table(protocol: str = "self-edit") -> ReferenceTable:
    """Return SEAL's results on knowledge incorporation with this protocol's kind of self-edits, as
    shares from 0 to 1.

    A protocol that is not in KINDS gets the paper's main results. A value that is not printed is
    None.
    """
    keys = ("single passage", "continued pre-training", "continued pre-training, full")
    return ReferenceTable(
        title=SELF_EDITS,
        authors="Zweiger et al. 2025",
        citation=PAPERS["zweiger2025seal"].reference_line,
        setting="policy Qwen2.5-7B, 200 passages of SQuAD, answers graded by a model",
        columns=(
            Column("Accuracy, single passage", "Single"),
            Column("Accuracy, continued pre-training", "Continued"),
            Column("The same, all weights trained", "In full"),
        ),
        digits=3,
        methods=_read_methods(
            "seal.csv", KINDS.get(protocol, "SEAL knowledge incorporation"), "setting", keys
        ),
    )


def printed_rounds(protocol: str) -> tuple[float, ...]:
    """Return SEAL's printed accuracies with this kind of self-edits, for a single passage: of
    untrained edits, then after each round. Empty if it printed none."""
    if protocol != "self-edit" and protocol not in KINDS:
        return ()
    methods = self_edit_table(protocol).methods
    names = ("Passage + untrained self-edits", "SEAL round 1", "SEAL round 2")
    return tuple(value for name in names if (value := methods[name][0]) is not None)


def few_shot_table() -> ReferenceTable:
    """Return SEAL's results on few-shot tasks, as shares."""
    return ReferenceTable(
        title=FEW_SHOT,
        authors="Zweiger et al. 2025",
        citation=PAPERS["zweiger2025seal"].reference_line,
        setting="policy Llama-3.2-1B-Instruct, 8 tasks of ARC-AGI's evaluation set that the best "
        "known settings solve, 5 self-edits each",
        columns=(Column("Success rate", "Success"),),
        digits=3,
        methods=_read_methods("seal.csv", "SEAL few-shot learning", "setting", ("ARC subset",)),
    )


def reference_of(protocol: str, model: str = "") -> ReferenceTable | None:
    """Return another paper's table to set beside runs of this protocol; None if there is none.

    Protocols are known by how their names begin. `model` matters for `collaboration…` only: the
    table has the 70B policy's results if it is that one, else the 8B policy's.
    """
    if protocol.startswith("collaboration"):
        return colbench_table(model)
    if protocol == "self-edit-few-shot":
        return few_shot_table()
    return self_edit_table(protocol) if protocol.startswith("self-edit") else None


def _read_methods(
    file: str, table: str, column: str, keys: tuple[str, ...]
) -> dict[str, tuple[float | None, ...]]:
    values_by_method: dict[str, dict[str, float]] = {}
    with (FILE.parent / file).open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["table"] == table:
                values_by_method.setdefault(row["method"], {})[row[column]] = float(row["mean"])
    return {name: tuple(map(values.get, keys)) for name, values in values_by_method.items()}
