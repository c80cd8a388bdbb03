"""What people score by: the rubric of a run's own judge, as a form and as a judge of labels.

A haggling judge's conversations are scored by its metrics, on its scales, under its labels; a run
that no judge with a rubric scored gets its task's, or the six metrics of judge `human`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.errors import ConvbenchError, SpecError
from convbench.judge.human import needed_names
from convbench.judge.kinds import kind_of
from convbench.schema import JudgeSpec
from convbench.schema.judge import OVERALL
from convbench.store import Run

PEOPLE, USUAL = "human", "rubric"
"""The spec of labels, and the rubric that explains its metrics."""


def usual() -> JudgeSpec:
    """Return what people score where no rubric says otherwise: the metrics of judge `human`,
    explained as the shipped rubric does."""
    spec = catalog.load(JudgeSpec, "judges", PEOPLE)
    about = {m.name: m.about for m in catalog.load(JudgeSpec, "judges", USUAL).metrics}
    metrics = [
        m.model_copy(update={"about": m.about or about.get(m.name, "")}) for m in spec.metrics
    ]
    return spec.model_copy(update={"metrics": tuple(metrics)})


def by_people(rubric: JudgeSpec) -> JudgeSpec:
    """Return the judge of people's labels by a rubric: its metrics, scales, weights and reward,
    and whether words are required. Metrics that only a function measures are left out."""
    metrics = tuple(metric for metric in rubric.metrics if not metric.optional)
    return catalog.load(JudgeSpec, "judges", PEOPLE).model_copy(
        update={
            "name": rubric.name,
            "title": f"scores that people gave by {rubric.name}",
            "metrics": metrics,
            "lowest": rubric.lowest,
            "highest": rubric.highest,
            "justification": rubric.justification,
            "reward": rubric.reward,
        }
    )


def rubric_of(run: Run, specs: Sequence[Path] = ()) -> JudgeSpec:
    """Return what people score a run's conversations by.

    That is the rubric of a judge that scored it (a model's before a function's, the task's own
    first), else that of the judge its task names, else `usual`.
    """
    kept = [spec for spec in run.judge_specs().values() if _has_rubric(spec)]
    own = run.manifest.task.judge
    if not kept and own is not None:
        with suppress(ConvbenchError):
            kept = [
                s for s in [catalog.load(JudgeSpec, "judges", own, specs=specs)] if _has_rubric(s)
            ]
    first = min(
        kept, key=lambda s: ("model" not in kind_of(s).needs, s.name != own, s.name), default=None
    )
    return usual() if first is None or _is_usual(first) else by_people(first)


def named(text: str, specs: Sequence[Path], run: Run | None = None) -> JudgeSpec:
    """Return the judge of labels by a rubric that is named: a spec, or a judge that a run kept."""
    kept = () if run is None else run.judge_specs().values()
    found = next((spec for spec in kept if spec.name == text and _has_rubric(spec)), None)
    if found is None:
        found = catalog.load(JudgeSpec, "judges", text, specs=specs)
    if not found.metrics:
        raise SpecError(
            f"--judge {text}@human:…: {found.name} has no metrics that people can score"
        )
    return by_people(found)


def shown(spec: JudgeSpec) -> dict[str, Any]:
    """Return a rubric as a form needs it: metrics with their range, which of them are needed."""
    needed = needed_names(spec)
    metrics = []
    for metric in spec.metrics:
        low, high = spec.limits(metric.name)
        metrics.append(
            {
                "name": metric.name,
                "label": metric.label,
                "about": metric.about,
                "lowest": low,
                "highest": high,
                "needed": metric.name in needed,
                "weight": metric.weight,
            }
        )
    return {
        "name": spec.name,
        "metrics": metrics,
        "note": spec.justification == "required",
        "headline": spec.labels.get(spec.headline, spec.headline),
    }


def _has_rubric(spec: JudgeSpec) -> bool:
    """Whether people could score what a judge does."""
    kind = kind_of(spec)
    return (
        bool(spec.metrics)
        and spec.per != "pair"
        and "labels" not in kind.needs
        and kind.measures == "talk"
    )


def _is_usual(spec: JudgeSpec) -> bool:
    """Whether a rubric is one that judge `human` has the metrics of, whatever it is called."""
    people = usual()
    same = {m.name: m.label.lower() for m in people.metrics}
    found = {m.name: m.label.lower() for m in spec.metrics}
    plain = spec.justification == "optional" and not spec.weighted
    ranges = {spec.limits(name) for name in spec.names}
    return (
        plain
        and found == same
        and ranges == {(people.lowest, people.highest)}
        and spec.reward.metric == OVERALL
    )
