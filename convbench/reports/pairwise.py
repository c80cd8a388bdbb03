"""Win rates of policies: from a judge's comparisons in both orders, and from scores of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from convbench.judges.duels import duels_of
from convbench.judges.kinds import kind_of
from convbench.reports.document import Column, Row, Table
from convbench.reports.frame import Setting
from convbench.reports.metrics import WON
from convbench.reports.policies import Policy
from convbench.reports.published import is_named
from convbench.schema.judge import Comparison
from convbench.stats.estimates import holm
from convbench.stats.wins import Duel, Wins, win_rate
from convbench.store.notes import newest_comparisons

if TYPE_CHECKING:
    from pandas import DataFrame

RIVAL = "gpt-4o"
"""The model whose pages a paper's win rates are over."""


def wins_table(setting: Setting) -> Table | None:
    """Return the win rate of every two policies that a judge compared, or whose pages it scored,
    bases second; None without any."""
    bases = {base.name for p in setting.policies if (base := setting.base_of(p)) is not None}
    pairs = list(combinations(sorted(setting.policies, key=lambda p: p.name in bases), 2))
    found = [*_compared(setting, pairs), *_of_pages(setting, pairs)]
    known: list[tuple[str, str, Wins | None]] = [
        (judge, f"{first.name} over {second.name}", wins)
        for judge, (first, second), duels in found
        if (wins := win_rate(duels, setting.kind)) is not None
    ]
    return rates_table(known) if known else None


def rates_table(found: Sequence[tuple[str, str, Wins | None]]) -> Table:
    """Return the table of (judge, name of the pair, win rate), p by Holm over a judge's pairs."""
    rows = []
    for judge in dict.fromkeys(judge for judge, *_ in found):
        some = [(name, wins) for own, name, wins in found if own == judge]
        adjusted = holm([_p_of_half(wins) if wins else None for _, wins in some])
        for (name, w), p in zip(some, adjusted, strict=True):
            counts = (w.rate, w.wins, w.ties, w.losses, 100 * w.flips) if w else (None,) * 5
            rows.append(Row((name, judge, *counts, p)))
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
    return Table("wins", "Win rates", columns, tuple(rows), notes)


def _p_of_half(wins: Wins) -> float | None:
    return replace(wins.rate, mean=wins.rate.mean - 0.5).p


Found = Iterator[tuple[str, tuple[Policy, Policy], list[Duel]]]
"""A judge, two policies, and their duels."""


def _compared(setting: Setting, pairs: Sequence[tuple[Policy, Policy]]) -> Found:
    """Yield what judges compared, of each judge by its newest rubric."""
    by_judge: dict[str, list[Comparison]] = {}
    known = (comparison for run in setting.runs for comparison in newest_comparisons(run))
    for comparison in sorted(known, key=lambda comparison: comparison.ended or ""):
        by_judge.setdefault(comparison.judge, []).append(comparison)
    for judge, some in by_judge.items():
        newest = [one for one in some if one.fingerprint == some[-1].fingerprint]
        for first, second in pairs:
            samples = (_samples(setting, policy) for policy in (first, second))
            yield judge, (first, second), duels_of(newest, *samples)


def _samples(setting: Setting, policy: Policy) -> Mapping[str, str]:
    """Return question and sample of each conversation of a policy, by its id."""
    own = setting.rows_of(policy)
    samples = own["unit"].str.rpartition("@")[0]
    return dict(zip(own["conversation_id"], samples, strict=True))


def _page_judges(setting: Setting) -> list[str]:
    specs = {name: spec for name, spec in setting.judges.items() if spec is not None}
    return [name for name, spec in specs.items() if kind_of(spec).measures == "pages"]


def _of_pages(setting: Setting, pairs: Sequence[tuple[Policy, Policy]]) -> Found:
    """Yield duels by the scores of pages about one task."""
    for judge in _page_judges(setting):
        for pair in pairs:
            points = _points(setting, f"{judge}/overall", *pair)
            yield judge, pair, [Duel(group, won, won) for group, won in points.to_numpy()]


def _points(setting: Setting, column: str, first: Policy, second: Policy) -> DataFrame:
    """Return group and points by unit: 1 if the first's page scores higher, a half for a tie."""
    ours, theirs = (
        own.loc[own[column].notna(), ["unit", "group", column]].set_index("unit")
        for own in (setting.rows_of(first), setting.rows_of(second))
    )
    both = ours.merge(theirs, left_index=True, right_index=True, suffixes=("", "_other"))
    mine, other = both[column], both[f"{column}_other"]
    return both[["group"]].assign(points=(mine > other) + 0.5 * (mine == other))


def with_pages_won(setting: Setting) -> Setting:
    """Return the setting with a column for pages won over GPT-4o's in percent, where that was
    evaluated."""
    untrained = (policy for policy in setting.policies if not policy.recipe)
    rival = next((policy for policy in untrained if is_named(RIVAL, policy.model_name)), None)
    judges = _page_judges(setting)
    if rival is None or not judges:
        return setting
    rows = setting.rows.copy()
    for policy in setting.policies:
        if policy is not rival:
            won = 100 * _points(setting, f"{judges[0]}/overall", policy, rival)["points"]
            own = rows["policy"] == policy.name
            rows.loc[own, WON.key] = rows.loc[own, "unit"].map(won)
    return replace(setting, rows=rows)
