"""Win rates of policies: from a judge's comparisons in both orders, and pages won over GPT-4o's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from convbench.judges.duels import duels_of
from convbench.judges.kinds import kind_of
from convbench.reports.document import Column, Row, Table
from convbench.reports.frame import Setting, paired
from convbench.reports.metrics import WON
from convbench.reports.published import is_named
from convbench.schema.judge import Comparison
from convbench.stats.estimates import holm
from convbench.stats.wins import Wins, win_rate
from convbench.store.notes import newest_comparisons


def wins_table(setting: Setting) -> Table | None:
    """Return the win rate of every two policies that a judge compared; None without any."""
    bases = {base.name for p in setting.policies if (base := setting.base_of(p)) is not None}
    pairs = list(combinations(sorted(setting.policies, key=lambda p: p.name in bases), 2))
    known = (comparison for run in setting.runs for comparison in newest_comparisons(run))
    by_judge: dict[str, list[Comparison]] = {}
    for comparison in sorted(known, key=lambda comparison: comparison.ended or ""):
        by_judge.setdefault(comparison.judge, []).append(comparison)
    # Question and sample by the id of each conversation.
    named = setting.rows.assign(sample=setting.rows["unit"].str.rpartition("@")[0])
    samples = {
        name: dict(zip(own["conversation_id"], own["sample"], strict=True))
        for name, own in named.groupby("policy")
    }
    found: list[tuple[str, str, Wins | None]] = []
    for judge, some in by_judge.items():
        newest = [one for one in some if one.fingerprint == some[-1].fingerprint]
        for first, second in pairs:
            duels = duels_of(newest, samples[first.name], samples[second.name])
            if duels:
                name = f"{first.name} over {second.name}"
                found.append((judge, name, win_rate(duels, setting.kind)))
    return rates_table(found) if found else None


def rates_table(found: Sequence[tuple[str, str, Wins | None]]) -> Table:
    """Return the table of (judge, name of the pair, win rate), p by Holm over a judge's pairs."""
    halves = [wins and replace(wins.rate, mean=wins.rate.mean - 0.5).p for *_, wins in found]
    adjusted, rows = holm(halves, [judge for judge, *_ in found]), []
    for (judge, name, w), p in zip(found, adjusted, strict=True):
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


def with_pages_won(setting: Setting) -> Setting:
    """Return the setting with a column for pages won over GPT-4o's, if that was evaluated."""
    untrained = (policy for policy in setting.policies if not policy.recipe)
    rival = next((policy for policy in untrained if is_named("gpt-4o", policy.model_name)), None)
    specs = {name: spec for name, spec in setting.judges.items() if spec is not None}
    judge = next((n for n, spec in specs.items() if kind_of(spec).measures == "pages"), None)
    if rival is None or judge is None:
        return setting
    rows, score = setting.rows.copy(), f"{judge}/overall"
    for policy in setting.policies:
        if policy is not rival:
            both = paired(setting.rows_of(policy), setting.rows_of(rival), score)
            gain = both[score] - both[f"{score}_base"]
            own = rows["policy"] == policy.name
            rows.loc[own, WON.key] = rows.loc[own, "unit"].map(
                100.0 * (gain > 0) + 50 * (gain == 0)
            )
    return replace(setting, rows=rows)
