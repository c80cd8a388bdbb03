"""The metrics of a setting: which columns of the frame are shown, under which head, on which scale.

Order: accuracy, answers that could not be read, thinking, reasoning, each judge's metrics (its
headline first, then in the order of its rubric), pages won, words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from convbench.errors import RunError
from convbench.judges.kinds import kind_of
from convbench.reports.document import Column
from convbench.reports.frame import Setting
from convbench.schema import JudgeSpec
from convbench.schema.judge import OVERALL

PEOPLE = "people"
"""Name of the judge that stands for people's labels."""


@dataclass(frozen=True, slots=True)
class Metric(Column):
    """A column of the frame as one of a table."""

    limits: tuple[float, float] | None = None
    """Smallest and largest number."""
    judge: str | None = None
    """Judge that it is a score of."""
    headline: bool = True
    """Whether policies are compared by it; of a judge's metrics by the main one."""


PERCENT = (0, 100)
ACCURACY = Metric("correct", "Accuracy", digits=4, best=True, limits=(0, 1))
# Before a model read what the reader could not (`judge --judge answers@MODEL`).
UNREAD_FIRST = Metric(
    "unread_first", "Unread by the reader (%)", "Reader %", 1, limits=PERCENT, headline=False
)
# Unread answers count as wrong, so that form alone can raise accuracy.
UNREAD = Metric("unread", "Unread (%)", "Unread %", 1, limits=PERCENT)
THINKING = Metric(
    "thinking", "Thinking (%)", "Think %", 1, best=True, limits=PERCENT, headline=False
)
# With reasoning in a channel of its own, not in tags.
REASONED = replace(THINKING, key="reasoned", head="Reasoned (%)", short="Reas. %")
WON = Metric("won", "Won over GPT-4o (%)", "Won %", 1, best=True, limits=PERCENT)
# Mean words of the policy's turns: what a judge is most often gamed by.
WORDS = Metric("words", "Words", digits=1)


def metrics_of(setting: Setting) -> list[Metric]:
    """Return the metrics that some conversation of a setting has a number for, in order."""
    rows = setting.rows
    basic = [ACCURACY, *([UNREAD_FIRST] if "read_by" in rows else []), UNREAD]
    if setting.mode == "thinking":  # other modes do not ask for tags
        basic.append(THINKING)
    if "reasoned" in rows and rows["reasoned"].any():
        basic.append(REASONED)
    many = len(setting.judges) > 1
    judged = [
        metric
        for judge, spec in setting.judges.items()
        for metric in _judge_metrics(setting, judge, spec, judge if many else "R")
    ]
    return [metric for metric in (*basic, *judged, WON, WORDS) if metric.key in rows]


def _judge_metrics(
    setting: Setting, judge: str, spec: JudgeSpec | None, prefix: str
) -> list[Metric]:
    """Return a judge's metrics; the reward only if it is not the headline times a constant."""
    start, top = f"{judge}/", _headline(spec)
    compares = spec is None or not spec.is_relative
    found = sorted(c.removeprefix(start) for c in setting.rows if c.startswith(start))
    order = dict.fromkeys((top, *(spec.score_names if spec else ()), *found))
    labels = spec.score_labels if spec else {}
    metrics = [
        Metric(
            start + name,
            f"{prefix} {labels.get(name, name)}",
            f"{prefix} {_short(name)}",
            2,
            best=spec is None or spec.scores_policy,
            limits=spec.score_limits(name) if spec else None,
            judge=judge,
            headline=compares and name == top,
        )
        for name in order
        if name in found and name not in ("failed", "reward")
    ]
    if not _is_scaled(setting, start + "reward", start + top):
        alone = compares and top not in found
        head = f"{prefix} reward"
        metrics.append(
            Metric(start + "reward", head, digits=3, best=True, judge=judge, headline=alone)
        )
    return metrics


def _headline(spec: JudgeSpec | None) -> str:
    """Return a judge's main metric: of self-edits the accuracy, which their baselines have too."""
    if spec is None:
        return OVERALL
    adapts = kind_of(spec).measures in ("adaptations", "solutions")
    return "accuracy" if adapts else spec.headline_metric


def _short(name: str) -> str:
    return name.capitalize() if len(name) <= 5 else f"{name[:4].capitalize()}."


def _is_scaled(setting: Setting, reward: str, score: str) -> bool:
    """Return whether a column is another one times a constant."""
    rows = setting.rows
    if reward not in rows or score not in rows:
        return reward not in rows
    known = rows.loc[rows[reward].notna(), [reward, score]]
    total = known[score].sum()
    factor = known[reward].sum() / total if total else 0.0
    return bool(((known[reward] - factor * known[score]).abs() < 1e-9).all())


def headlines(setting: Setting) -> list[Metric]:
    """Return what policies are compared by: accuracy, unread, each judge's headline, pages won,
    words. Scores that only rank conversations about one question are left out."""
    return [metric for metric in metrics_of(setting) if metric.headline]


def main_metric(setting: Setting) -> Metric | None:
    """Return accuracy, else the first judge's headline; None if nothing was measured."""
    return next((metric for metric in headlines(setting) if metric.best), None)


def scale_note(metrics: Iterable[Metric]) -> list[str]:
    """Return one note with the limits of these metrics; empty without any."""
    by_scale: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.limits is not None:
            low, high = metric.limits
            by_scale.setdefault(f"{low:g} to {high:g}", []).append(metric.head)
    spans = "; ".join(f"{', '.join(heads)}: {span}" for span, heads in by_scale.items())
    return [f"Scales: {spans}."] if spans else []


def only_judge(settings: Sequence[Setting], judge: str) -> list[Setting]:
    """Return the settings with one judge alone (and people, who are no judge's taste). Raise
    RunError for a judge without verdicts."""
    known = dict.fromkeys(name for setting in settings for name in setting.judges)
    if judge not in known:
        raise RunError(
            f"--judge {judge}: found verdicts of {', '.join(known) or 'no judge'}; expected one of "
            f"these, or judge first: convbench judge --judge {judge}"
        )
    return [
        replace(s, judges={k: v for k, v in s.judges.items() if k in (judge, PEOPLE)})
        for s in settings
    ]
