"""Win rates of policies: from a judge's comparisons in both orders, and from scores of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from convbench.judges.kinds import kind_of
from convbench.reports.document import Cell, Column, Row, Table
from convbench.reports.frame import Setting, ask
from convbench.reports.metrics import WON
from convbench.reports.policies import Policy
from convbench.reports.published import is_named
from convbench.stats.estimates import ErrorKind, holm
from convbench.stats.wins import Duel, Wins, win_rate
from convbench.store import Run

if TYPE_CHECKING:
    from pandas import DataFrame

COMPARISONS = """
SELECT "first" AS shown_first, "second" AS shown_second, judge, preferred, group_id, fingerprint
FROM raw.comparisons ORDER BY ended
"""
RIVAL = "gpt-4o"
"""The model whose pages a paper's win rates are over."""


def read_comparisons(runs: Sequence[Run]) -> DataFrame:
    """Return the comparisons stored with these runs, of each judge those by its newest rubric."""
    (found,) = ask(runs, ("comparisons",), COMPARISONS)
    newest = found.groupby("judge")["fingerprint"].transform("last")
    return found[found["fingerprint"] == newest]


def wins_table(setting: Setting, comparisons: DataFrame, kind: ErrorKind) -> Table | None:
    """Return the win rate of every two policies that a judge compared, or whose pages it scored,
    bases second; None without any."""
    lines = [*_compared(setting, comparisons, kind), *_of_pages(setting, kind)]
    if not lines:
        return None
    tested = [_p_of_half(wins) for *_, wins in lines]
    adjusted: list[float | None] = [None] * len(lines)
    for judge in dict.fromkeys(judge for judge, *_ in lines):
        places = [i for i, (own, *_) in enumerate(lines) if own == judge]
        for place, p in zip(places, holm([tested[i] for i in places]), strict=True):
            adjusted[place] = p
    rows = tuple(
        Row((f"{first} over {second}", judge, *_cells(wins), p))
        for (judge, first, second, wins), p in zip(lines, adjusted, strict=True)
    )
    columns = (
        Column("policies", "Policies", text=True),
        Column("judge", "judge", text=True),
        Column("win_rate", "win rate", digits=3),
        *(Column(head, head) for head in ("wins", "ties", "losses")),
        Column("flips", "flips (%)", digits=1),
        Column("holm", "p (Holm)", digits=3),
    )
    notes = (
        "Win rate of the first ± standard error clustered by group; a tie is half a win. Flips: "
        "pairs in which the order of showing decides. p: of a rate of one half.",
    )
    return Table("wins", "Win rates", columns, rows, notes)


def _cells(wins: Wins) -> tuple[Cell, ...]:
    return (wins.rate, wins.wins, wins.ties, wins.losses, 100 * wins.flips)


def _p_of_half(wins: Wins) -> float | None:
    return replace(wins.rate, mean=wins.rate.mean - 0.5).p


def _opponents(setting: Setting) -> Iterator[tuple[Policy, Policy]]:
    """Yield every two policies, bases second."""
    bases = {base.name for p in setting.policies if (base := setting.base_of(p)) is not None}
    yield from combinations(sorted(setting.policies, key=lambda p: p.name in bases), 2)


def _compared(
    setting: Setting, comparisons: DataFrame, kind: ErrorKind
) -> Iterator[tuple[str, str, str, Wins]]:
    samples = {
        policy.name: dict(
            zip(own["conversation_id"], own["unit"].str.rpartition("@")[0], strict=True)
        )
        for policy in setting.policies
        for own in [setting.rows_of(policy)]
    }
    for judge, some in comparisons.groupby("judge", sort=False):
        known = some[some["preferred"].notna()]
        for first, second in _opponents(setting):
            duels = duels_of(known, samples[first.name], samples[second.name])
            wins = win_rate(duels, kind)
            if wins is not None:
                yield str(judge), first.name, second.name, wins


def duels_of(
    comparisons: DataFrame, mine: Mapping[str, str], theirs: Mapping[str, str]
) -> list[Duel]:
    """Return the pairs whose both orders were judged; `mine` and `theirs` map conversations to
    question and sample, which both of a pair share. The last of an order counts."""
    pairs: dict[tuple[str, str], dict[bool, Any]] = {}
    for row in comparisons.itertuples():
        ahead = row.shown_first in mine
        shown = (row.shown_first, row.shown_second)
        own, other = shown if ahead else shown[::-1]
        if own in mine and other in theirs and mine[own] == theirs[other]:
            pairs.setdefault((own, other), {})[ahead] = row
    return [
        Duel(both[True].group_id, both[True].preferred, 1 - both[False].preferred)
        for both in pairs.values()
        if len(both) == 2
    ]


def _page_judges(setting: Setting) -> list[str]:
    return [
        judge
        for judge, spec in setting.judges.items()
        if spec is not None and kind_of(spec).measures == "pages"
    ]


def _of_pages(setting: Setting, kind: ErrorKind) -> Iterator[tuple[str, str, str, Wins]]:
    """Yield the win rates of policies by the scores of their pages about one task."""
    for judge in _page_judges(setting):
        for first, second in _opponents(setting):
            points = _points(setting, f"{judge}/overall", first, second)
            duels = [Duel(group, value, value) for group, value in points.to_numpy()]
            wins = win_rate(duels, kind)
            if wins is not None:
                yield judge, first.name, second.name, wins


def _points(setting: Setting, column: str, first: Policy, second: Policy) -> DataFrame:
    """Return group and points by unit: 1 if the first's page scores higher, a half for a tie."""
    ours, theirs = (
        own.loc[own[column].notna(), ["unit", "group", column]].set_index("unit")
        for own in (setting.rows_of(first), setting.rows_of(second))
    )
    both = ours.merge(theirs, left_index=True, right_index=True, suffixes=("", "_other"))
    mine, other = both[column], both[f"{column}_other"]
    points = (mine > other) + 0.5 * (mine == other)
    return both[["group"]].assign(points=points.astype(float))


def with_pages_won(setting: Setting) -> Setting:
    """Return the setting with a column for pages won over GPT-4o's, where that was evaluated."""
    untrained = (policy for policy in setting.policies if policy.recipe is None)
    rival = next((policy for policy in untrained if is_named(RIVAL, policy.model_name)), None)
    judges = _page_judges(setting)
    if rival is None or not judges:
        return setting
    rows = setting.rows.copy()
    for policy in setting.policies:
        if policy is not rival:
            won = _points(setting, f"{judges[0]}/overall", policy, rival)["points"]
            own = rows["policy"] == policy.name
            rows.loc[own, WON] = rows.loc[own, "unit"].map(won)
    return replace(setting, rows=rows)
