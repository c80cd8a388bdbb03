"""The metrics of a setting: which columns of the frame are shown, under which head, on which scale.

Order: accuracy, answers that could not be read, thinking, reasoning, each judge's metrics (its
headline first, then in the order of its rubric), pages won, words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from convbench.judges.kinds import kind_of
from convbench.reports.document import Column
from convbench.reports.frame import Setting
from convbench.schema.judge import OVERALL

PEOPLE = "people"
"""Name of the judge that stands for people's labels."""


@dataclass(frozen=True, slots=True)
class Metric(Column):
    """A column of the frame as one of a table: its smallest and largest number, the judge that it
    is a score of, and whether policies are compared by it."""

    limits: tuple[float, float] | None = None
    judge: str | None = None
    headline: bool = True


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
    judged = (metric for judge in setting.judges for metric in _judge_metrics(setting, judge))
    return [metric for metric in (*basic, *judged, WON, WORDS) if metric.key in rows]


def _judge_metrics(setting: Setting, judge: str) -> Iterator[Metric]:
    """Yield a judge's metrics; the reward only if it is not the headline times a constant."""
    spec, rows = setting.judges[judge], setting.rows
    start, prefix = f"{judge}/", judge if len(setting.judges) > 1 else "R"
    top, compares, labels, known = OVERALL, True, dict[str, str](), tuple[str, ...]()
    if spec is not None:
        adapts = kind_of(spec).measures in ("adaptations", "solutions")
        top = "accuracy" if adapts else spec.headline_metric  # baselines of edits have it too
        labels, known, compares = spec.score_labels, spec.score_names, not spec.is_relative
    found = sorted(c.removeprefix(start) for c in rows if c.startswith(start))
    for name in dict.fromkeys((top, *known, *found)):
        if name in found and name not in ("failed", "reward"):
            yield Metric(
                start + name,
                f"{prefix} {labels.get(name, name)}",
                f"{prefix} {name.capitalize() if len(name) <= 5 else f'{name[:4].capitalize()}.'}",
                2,
                best=spec is None or spec.scores_policy,
                limits=spec.score_limits(name) if spec else None,
                judge=judge,
                headline=compares and name == top,
            )
    reward, alone = start + "reward", top not in found
    scale = rows[reward] / rows[start + top] if reward in rows and not alone else None
    if scale is None or scale.max() - scale.min() > 1e-9:
        shown = compares and alone
        yield Metric(reward, f"{prefix} reward", digits=3, best=True, judge=judge, headline=shown)


def headlines(setting: Setting) -> list[Metric]:
    """Return what policies are compared by, without scores that rank one question's answers."""
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
