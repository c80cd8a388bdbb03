"""The metrics of a setting: which columns of the frame are shown, under which head, on which scale.

Order: accuracy, answers that could not be read, thinking, reasoning, each judge's metrics (its
headline first, then in the order of its rubric), pages won, words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from convbench.judges.kinds import kind_of
from convbench.reports.frame import Setting
from convbench.schema import JudgeSpec
from convbench.schema.judge import OVERALL

WON = "won"
"""Column of the frame: 1 for a page closer to the reference than the rival's, a half for a tie."""
PEOPLE = "people"
"""Name of the judge that stands for people's labels."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One column of a table."""

    column: str
    """Column of the frame, and key in JSON and CSV."""
    head: str
    short: str
    """Head in narrow tables."""
    digits: int
    scale: float = 1.0
    """Factor from the frame's number to what is shown."""
    limits: tuple[float, float] | None = None
    """Smallest and largest number, as shown."""
    best: bool = True
    """Whether the largest is best."""
    judge: str | None = None
    """Judge that it is a score of."""
    headline: bool = False
    """Whether it is its judge's main metric."""


ACCURACY = Metric("correct", "Accuracy", "Accuracy", 4, limits=(0, 1))
UNREAD = Metric("unread", "Unread (%)", "Unread %", 1, 100, (0, 100), best=False)
"""Answers that could not be read count as wrong, so that form alone can raise accuracy."""
UNREAD_FIRST = Metric(
    "unread_first", "Unread by the reader (%)", "Reader %", 1, 100, (0, 100), best=False
)
"""The same before a model read what the reader could not (`judge --judge answers@MODEL`)."""
THINKING = Metric("thinking", "Thinking (%)", "Think %", 1, 100, (0, 100))
REASONED = Metric("reasoned", "Reasoned (%)", "Reas. %", 1, 100, (0, 100))
"""Conversations with reasoning in a channel of its own, not in tags."""
WON_RATE = Metric(WON, "Won over GPT-4o (%)", "Won %", 1, 100, (0, 100))
WORDS = Metric("words", "Words", "Words", 1, best=False)
"""Mean words of the policy's turns: what a judge is most often gamed by."""


def metrics_of(setting: Setting) -> list[Metric]:
    """Return the metrics that some conversation of a setting has a number for, in order."""
    rows = setting.rows
    basic = [ACCURACY, UNREAD]
    if "read_by" in rows:
        basic.insert(1, UNREAD_FIRST)
    if setting.mode == "thinking":  # other modes do not ask for tags
        basic.append(THINKING)
    if "reasoned" in rows and rows["reasoned"].any():
        basic.append(REASONED)
    listed = [metric for metric in basic if metric.column in rows]
    many = len(setting.judges) > 1
    for judge, spec in setting.judges.items():
        listed += judge_metrics(setting, judge, spec, judge if many else "R")
    return listed + [metric for metric in (WON_RATE, WORDS) if metric.column in rows]


def judge_metrics(
    setting: Setting, judge: str, spec: JudgeSpec | None, prefix: str
) -> list[Metric]:
    """Return a judge's metrics; the reward only if it is not the headline times a constant."""
    rows = setting.rows
    start = f"{judge}/"
    found = [c.removeprefix(start) for c in rows if c.startswith(start)]
    found = [name for name in found if name not in ("failed", "reward")]
    top = _headline(spec)
    order = dict.fromkeys((top, *(spec.score_names if spec is not None else ()), *sorted(found)))
    labels = spec.score_labels if spec is not None else {}
    metrics = [
        Metric(
            start + name,
            f"{prefix} {labels.get(name, name)}",
            f"{prefix} {_short(name)}",
            2,
            limits=spec.score_limits(name) if spec is not None else None,
            best=spec is None or spec.scores_policy,
            judge=judge,
            headline=name == top,
        )
        for name in order
        if name in found
    ]
    reward = Metric(start + "reward", f"{prefix} reward", f"{prefix} reward", 3, judge=judge)
    if start + "reward" in rows and (not metrics or _reward_differs(setting, judge, top)):
        metrics.append(replace(reward, headline=not any(m.headline for m in metrics)))
    return metrics


def _headline(spec: JudgeSpec | None) -> str:
    """Return a judge's main metric: of self-edits the accuracy, which their baselines have too."""
    if spec is None:
        return OVERALL
    adapts = kind_of(spec).measures in ("adaptations", "solutions")
    return "accuracy" if adapts else spec.headline_metric


def _short(name: str) -> str:
    return name.capitalize() if len(name) <= 5 else f"{name[:4].capitalize()}."


def _reward_differs(setting: Setting, judge: str, top: str) -> bool:
    """Return whether the reward is not the headline times a constant."""
    rows, head = setting.rows, f"{judge}/{top}"
    if head not in rows:
        return True
    both = rows.loc[rows[f"{judge}/reward"].notna(), [head, f"{judge}/reward"]]
    score, reward = both[head], both[f"{judge}/reward"]
    if score.isna().any() or ((score == 0) != (reward == 0)).any():
        return True
    return bool((reward[score != 0] / score[score != 0]).round(9).nunique() > 1)


def headlines(setting: Setting) -> list[Metric]:
    """Return what policies are compared by: accuracy, unread, each judge's headline, pages won,
    words. Scores that only rank conversations about one question are left out."""
    return [
        metric
        for metric in metrics_of(setting)
        if metric.column in ("correct", "unread", WON, "words")
        or (metric.headline and not is_relative(setting, metric.judge))
    ]


def main_metric(setting: Setting) -> Metric | None:
    """Return accuracy, else the first judge's headline; None if nothing was measured."""
    by_rank = [m for m in headlines(setting) if m.best]
    return by_rank[0] if by_rank else None


def is_relative(setting: Setting, judge: str | None) -> bool:
    """Return whether a judge's scores rank conversations about one question only."""
    spec = setting.judges.get(judge or "")
    return spec is not None and spec.is_relative


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
    """Return the settings with one judge alone (and people, who are no judge's taste)."""
    return [
        replace(
            setting,
            judges={k: v for k, v in setting.judges.items() if k in (judge, PEOPLE)},
        )
        for setting in settings
    ]
