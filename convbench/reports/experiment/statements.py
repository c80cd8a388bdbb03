"""What the paper's text says of its tables, each statement as a rule that is computed on the
printed numbers and on ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Literal

from convbench.reports.document import Cell, Column, Table
from convbench.reports.experiment.printed import PublishedComparison, measures_for
from convbench.reports.measures import ACCURACY, HEADS, paired_differences
from convbench.reports.published import PrintedNumber, paper_key, paper_tables
from convbench.reports.tables.cells import p_text
from convbench.stats.means import ErrorKind, holm_adjusted

Methods = Mapping[str, Mapping[str, PrintedNumber]]
"""Numbers of one table: method (or number of rows) → metric as in `results.csv` → number."""
OWN = ("SWiFt", "ReFit")
"""The paper's methods."""
BASELINES = ("Base", "STaR-GATE", "STaR-GATE-D", "DPO", "StepDPO")
FILE = Path(__file__).parents[1] / "paper" / "statements.csv"
REASONING = range(1, 13)
REWARDS = tuple(paper_key(f"r_{name}") for name in HEADS)
"""Keys of the six reward metrics, the overall score first."""
Z = 1.96
"""Smallest ratio of a difference to its error that counts as significant: two-sided p of .05."""


@dataclass(frozen=True)
class LowerTest:
    """Test of whether ReFit's accuracy is below SWiFt's in one table."""

    p: float
    is_lower: bool
    shown: str
    """The z of the printed errors, or our p."""

    @property
    def is_significant(self) -> bool:
        """Whether it is lower with p below .05."""
        return self.is_lower and self.p < 0.05


@dataclass(frozen=True)
class Evidence:
    """The numbers of the printed tables, or ours for them."""

    tables: Mapping[int, Methods]
    """Numbers by printed table; tables without numbers are left out."""
    tests: Mapping[int, LowerTest] = field(default_factory=dict)
    """ReFit against SWiFt, by table."""

    def mean_of(self, table: int, method: str, metric: str) -> float | None:
        """Return a mean; None if it was not measured."""
        number = self.tables.get(table, {}).get(method, {}).get(metric)
        return None if number is None else number.mean


@dataclass(frozen=True)
class Verdict:
    """Whether a statement holds on some numbers, and what they are."""

    state: Literal["holds", "does not hold", "undetermined"]
    detail: str

    def __str__(self) -> str:
        return f"{self.state}: {self.detail}" if self.detail else self.state


@dataclass(frozen=True)
class Statement:
    """A statement of the paper."""

    words: str
    section: str
    rule: str
    tables: range
    """The printed tables that it is about."""
    check: Callable[[Evidence], Verdict]


@cache
def paper_statements() -> tuple[Statement, ...]:
    """Return what the paper says of its tables, in its order."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return tuple(
            Statement(row["words"], row["section"], row["rule"], tables, CHECKS[row["check"]])
            for row in csv.DictReader(file)
            for first, _, last in [row["tables"].partition("-")]
            for tables in [range(int(first), int(last) + 1)]
        )


def statement_table(
    comparisons: Sequence[PublishedComparison], kind: ErrorKind = "clustered"
) -> Table | None:
    """Return the table of the paper's statements about these printed tables, with the result on the
    printed numbers and on ours; None if it says nothing about them.

    Where several of our sections stand beside a printed table, the first counts. `kind` is the kind
    of our standard errors.
    """
    numbers = {comparison.printed.number for comparison in comparisons}
    listed = [statement for statement in paper_statements() if numbers & set(statement.tables)]
    if not listed:
        return None
    printed, ours = printed_evidence(), own_evidence(comparisons, kind)
    rows = [
        (
            Cell(f"“{statement.words}” ({statement.section})"),
            Cell(statement.rule),
            Cell(str(statement.check(printed)), quiet=True),
            Cell(str(statement.check(ours))),
        )
        for statement in listed
    ]
    heads = ("Statement", "Rule", "On the printed tables", "On ours")
    columns = tuple(Column(head, head, numeric=False) for head in heads)
    notes = (
        "The paper's words, the rule by which we read them, and whether it holds on its printed "
        "numbers and on ours. Means are compared as they are, the printed ones as printed; equal "
        "ones share a place. A count holds once it is reached, and is undetermined as long as "
        "tables that are not measured decide it. ReFit against SWiFt: the printed errors as of two "
        "independent means (z), ours paired, with Holm's correction over Tables 1 to 12.",
    )
    return Table("What the paper says of its tables", columns, tuple(rows), notes, "statements")


def printed_evidence() -> Evidence:
    """Return the numbers of all printed tables, with tests by their errors."""
    tables = {table.number: table.methods for table in paper_tables()}
    return Evidence(tables, dict(_printed_tests(tables)))


def _printed_tests(tables: Mapping[int, Methods]) -> Iterator[tuple[int, LowerTest]]:
    for number in REASONING:
        swift, refit = (tables[number][name]["accuracy"] for name in OWN)
        z = _z_of(swift, refit)
        p = math.erfc(abs(z) / math.sqrt(2))
        yield number, LowerTest(p, z > 0, f"z {z:.2f}")


def _z_of(first: PrintedNumber, second: PrintedNumber) -> float:
    """Return the difference of two independent means over its error; NaN if an error is."""
    difference, error = first.mean - second.mean, math.hypot(first.error, second.error)
    if error:
        return difference / error
    return math.copysign(math.inf, difference) if difference else 0.0


def own_evidence(
    comparisons: Sequence[PublishedComparison], kind: ErrorKind = "clustered"
) -> Evidence:
    """Return our numbers for the printed tables, with paired tests; of several sections beside one
    table the first counts."""
    measured: dict[int, PublishedComparison] = {}
    for comparison in comparisons:
        if comparison.own_policies:
            measured.setdefault(comparison.printed.number, comparison)
    tables = {number: _own_methods(comparison, kind) for number, comparison in measured.items()}
    reasoning = {n: c for n, c in measured.items() if n in REASONING}
    return Evidence(tables, _own_tests(reasoning, kind))


def _own_methods(comparison: PublishedComparison, kind: ErrorKind) -> Methods:
    assert comparison.section is not None
    rule = kind
    numbers: dict[str, dict[str, PrintedNumber]] = {}
    for method, policies in comparison.own_policies.items():
        for measure in measures_for(comparison):
            mean = measure.mean_of(policies[0], rule)
            if mean is not None:
                error = math.nan if mean.error is None else mean.error
                numbers.setdefault(method, {})[paper_key(measure.key)] = PrintedNumber(
                    mean.mean, error
                )
    return numbers


def _own_tests(
    measured: Mapping[int, PublishedComparison], kind: ErrorKind
) -> dict[int, LowerTest]:
    """Return ReFit's paired test against SWiFt by table, with Holm's correction over the tables."""
    differences = {
        number: difference
        for number, comparison in measured.items()
        if (difference := _paired_difference(comparison, kind)) is not None
    }
    adjusted = holm_adjusted([p for _, p in differences.values()])
    return {
        number: LowerTest(p, mean < 0, f"p {p_text(p)}")
        for (number, (mean, _)), p in zip(differences.items(), adjusted, strict=True)
        if p is not None
    }


def _paired_difference(
    comparison: PublishedComparison, kind: ErrorKind
) -> tuple[float, float] | None:
    """Return (ReFit minus SWiFt in accuracy, p of no difference); None without pairs. Equal results
    have p 1."""
    both = [comparison.own_policies[name][0] for name in OWN if name in comparison.own_policies]
    if len(both) < 2 or comparison.section is None:
        return None
    section = replace(comparison.section, policies=tuple(both), compared_with=both[0].name)
    (difference,) = paired_differences(section, ACCURACY, kind)
    estimate = difference.estimate
    if estimate is None or estimate.error is None:
        return None
    return estimate.mean, 1.0 if estimate.p is None else estimate.p


def _printed_methods(table: int) -> Collection[str]:
    return next(t for t in paper_tables() if t.number == table).methods.keys()


def _is_among_best(
    evidence: Evidence, table: int, method: str, metric: str, places: int = 1, alone: bool = False
) -> bool | None:
    """Return whether a method's mean is among the best of its table; None if that is not known.

    Equal means share a place; with `alone` none may be equal.
    """
    own = evidence.mean_of(table, method, metric)
    if own is None:
        return None
    others = [
        evidence.mean_of(table, name, metric) for name in _printed_methods(table) if name != method
    ]
    better = sum(mean > own or (alone and mean == own) for mean in others if mean is not None)
    if better >= places:
        return False
    return None if None in others else True


def _at_least(least: int, results: Iterable[bool | None], what: str = "") -> Verdict:
    """Return whether at least so many results are true, with the count; None is unknown."""
    listed = list(results)
    true, unknown = listed.count(True), listed.count(None)
    detail = f"{true} of {len(listed)}{what}" + (f", {unknown} undecided" if unknown else "")
    if true >= least:
        return Verdict("holds", detail)
    return Verdict("does not hold" if true + unknown < least else "undetermined", detail)


def _all_of(results: Iterable[bool | None], what: str = "") -> Verdict:
    """Return whether all results are true, with the count; None is unknown."""
    listed = list(results)
    return _at_least(len(listed), listed, what)


def _sole_wins(evidence: Evidence) -> Verdict:
    sole = [_is_among_best(evidence, n, "SWiFt", "accuracy", alone=True) for n in REASONING]
    shared = sum(_is_among_best(evidence, n, "SWiFt", "accuracy") is True for n in REASONING)
    return _at_least(7, sole, f" ({shared} with shared first places)")


def _best_two(evidence: Evidence, method: str, least: int) -> Verdict:
    return _at_least(least, (_is_among_best(evidence, n, method, "accuracy", 2) for n in REASONING))


def _most_rewards(evidence: Evidence) -> Verdict:
    def has_most(table: int) -> bool | None:
        best = [_is_among_best(evidence, table, "SWiFt", metric, 2) for metric in REWARDS[1:]]
        state = _at_least(3, best).state
        return None if state == "undetermined" else state == "holds"

    return _at_least(9, map(has_most, REASONING))


NAMED = (3, 8, 11)
"""Tables in which ReFit is said to be significantly worse."""


def _significantly_worse(evidence: Evidence) -> Verdict:
    tests = evidence.tests
    named = [tests[n].is_significant if n in tests else None for n in NAMED]
    listed = [f"Table {n}: {tests[n].shown}" for n in NAMED if n in tests]
    others = [
        f"{n}: {test.shown}" for n, test in tests.items() if test.is_significant and n not in NAMED
    ]
    listed += [f"also in Table {', '.join(others)}"] if others else []
    verdict = _all_of(named)
    return replace(verdict, detail="; ".join([verdict.detail, *listed]))


def _mean_ranks(evidence: Evidence) -> tuple[dict[str, float], int]:
    """Return the baselines' mean ranks by accuracy over the tables that have all five, and the
    number of these tables."""
    ranks: dict[str, list[float]] = {name: [] for name in BASELINES}
    for table in REASONING:
        means = {name: evidence.mean_of(table, name, "accuracy") for name in BASELINES}
        values = [mean for mean in means.values() if mean is not None]
        if len(values) < len(BASELINES):
            continue
        for name, mean in means.items():
            assert mean is not None
            above = sum(value > mean for value in values)
            ranks[name].append(above + (values.count(mean) + 1) / 2)
    count = len(ranks["Base"])
    return {name: fmean(rank) for name, rank in ranks.items() if rank}, count


def _rank_verdict(evidence: Evidence, check: Callable[[list[str]], bool]) -> Verdict:
    """Return whether the order of the baselines' mean ranks, best first, passes a check."""
    ranks, count = _mean_ranks(evidence)
    order = sorted(ranks, key=ranks.__getitem__)
    detail = ", ".join(f"{name} {ranks[name]:.1f}" for name in order)
    if count < len(REASONING):
        return Verdict("undetermined", f"{detail} ({count} of {len(REASONING)} tables)".strip())
    return Verdict("holds" if check(order) else "does not hold", detail)


def _best_baselines(evidence: Evidence) -> Verdict:
    return _rank_verdict(evidence, lambda order: set(order[:2]) == {"STaR-GATE", "STaR-GATE-D"})


def _base_last(evidence: Evidence) -> Verdict:
    return _rank_verdict(evidence, lambda order: order[-1] == "Base")


def _above_baselines(evidence: Evidence, table: int, metric: str) -> list[bool | None]:
    """Return for each of the paper's methods whether it is above all printed baselines."""
    baselines = [name for name in _printed_methods(table) if name not in OWN]
    others = [evidence.mean_of(table, name, metric) for name in baselines]
    results: list[bool | None] = []
    for name in OWN:
        own = evidence.mean_of(table, name, metric)
        below = own is not None and any(mean is not None and mean >= own for mean in others)
        results.append(False if below else None if own is None or None in others else True)
    return results


def _clarifying_above(evidence: Evidence) -> Verdict:
    return _all_of(
        result for table in (13, 14) for result in _above_baselines(evidence, table, "accuracy")
    )


def _not_significantly_below(evidence: Evidence) -> Verdict:
    results: list[bool | None] = []
    shown = []
    for table in (13, 14):
        methods = evidence.tables.get(table, {})
        best = [methods[name] for name in BASELINES if "r_overall" in methods.get(name, {})]
        top = max((numbers["r_overall"] for numbers in best), key=lambda n: n.mean, default=None)
        for name in OWN:
            own = methods.get(name, {}).get("r_overall")
            z = math.nan if own is None or top is None else _z_of(top, own)
            results.append(None if math.isnan(z) else z < Z)
            shown += [] if math.isnan(z) else [f"Table {table}, {name}: z {z:.2f}"]
    verdict = _all_of(results)
    return replace(verdict, detail="; ".join([verdict.detail, *shown]))


def _clarifying_lower(evidence: Evidence) -> Verdict:
    results: list[bool | None] = []
    for reasoning, clarifying in ((3, 13), (4, 14)):
        for name in _printed_methods(clarifying):
            both = [
                evidence.tables.get(table, {}).get(name, {}).get("accuracy")
                for table in (reasoning, clarifying)
            ]
            first, second = both
            z = math.nan if first is None or second is None else _z_of(first, second)
            results.append(None if math.isnan(z) else z > Z)
    return _all_of(results, " drop by more than 1.96 errors")


def _longer_lower(evidence: Evidence) -> Verdict:
    results: list[bool | None] = []
    rises = []
    for name in OWN:
        for table in (15, 16, 17):
            before, after = (evidence.mean_of(n, name, "accuracy") for n in (table, table + 1))
            known = before is not None and after is not None
            results.append(after < before if before is not None and after is not None else None)
            if known and not results[-1]:
                rises.append(f"{name} from n = {_turns_of(table)} to {_turns_of(table + 1)}")
    verdict = _all_of(results, " steps down")
    return replace(verdict, detail="; not ".join([verdict.detail, *rises]))


def _turns_of(table: int) -> int:
    return next(t.turns for t in paper_tables() if t.number == table)


def _more_rows_better(evidence: Evidence) -> Verdict:
    results: list[bool | None] = []
    for table in (20, 21):
        for metric in ("accuracy", *REWARDS):
            few, many = (evidence.mean_of(table, rows, metric) for rows in ("1000", "2000"))
            results.append(None if few is None or many is None else many > few)
    return _all_of(results, " metrics rise")


def _second_judge_best(evidence: Evidence) -> Verdict:
    return _all_of(_is_among_best(evidence, 19, name, "accuracy", 2) for name in OWN)


def _second_judge_rewards(evidence: Evidence) -> Verdict:
    results = [result for metric in REWARDS for result in _above_baselines(evidence, 19, metric)]
    return _all_of(results, " above all baselines")


CHECKS: Mapping[str, Callable[[Evidence], Verdict]] = {
    "sole-wins": _sole_wins,
    "swift-best-two": lambda evidence: _best_two(evidence, "SWiFt", 10),
    "most-rewards": _most_rewards,
    "refit-worse": _significantly_worse,
    "refit-best-two": lambda evidence: _best_two(evidence, "ReFit", 9),
    "best-baselines": _best_baselines,
    "base-last": _base_last,
    "clarifying-above": _clarifying_above,
    "clarifying-rewards": _not_significantly_below,
    "clarifying-lower": _clarifying_lower,
    "longer-lower": _longer_lower,
    "second-judge-best": _second_judge_best,
    "second-judge-rewards": _second_judge_rewards,
    "more-rows-better": _more_rows_better,
}
"""The rules, by their name in `statements.csv`."""
