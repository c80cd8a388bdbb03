"""One judge against another on the same conversations."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.judges import panel_of
from convbench.report.plots.style import GREY, new_figure, picture
from convbench.report.policies import judge_spec
from convbench.report.sections import Section
from convbench.schema.judge import OVERALL

AREA = 220.0
"""Points squared of the largest bubble."""


def both_scored(section: Section, first: str, second: str) -> list[tuple[float, float]]:
    """Return (first's, second's) headline scores, or rewards where there is none."""
    found = []
    tops = _headline(section, first), _headline(section, second)
    for policy in section.policies:
        for row in policy.rows:
            one, two = row.verdicts.get(first), row.verdicts.get(second)
            if one and two and not one.failed and not two.failed:
                a = one.scores.get(tops[0], one.reward)
                b = two.scores.get(tops[1], two.reward)
                if a is not None and b is not None:
                    found.append((a, b))
    return found


def agreement(section: Section) -> dict[tuple[str, str], str]:
    """Return words on how far each two judges agree, over all policies of a section: the figures of
    the report's table."""
    found = panel_of(section)
    return {
        (one.first, one.second): (
            f"Spearman {one.correlation:.2f}, quadratically weighted kappa {one.kappa:.2f}."
        )
        for one in (found.agreed if found is not None else ())
        if one.correlation is not None and one.kappa is not None
    }


def judge_pairs(section: Section) -> list[Picture]:
    """Return one bubble chart for each two judges with common conversations, how far they agree in
    its caption."""
    out, said = [], agreement(section)
    specs = {name: judge_spec(section.policies, name) for name in section.judges}
    names = [name for name, spec in specs.items() if spec is None or not spec.relative]
    for first, second in combinations(names, 2):
        scores = both_scored(section, first, second)
        if scores:
            words = said.get((first, second), "")
            out.append(_bubbles(section, first, second, scores, words))
    return out


def _scale(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    if spec is None:
        return "overall score"
    low, high = spec.limits(spec.headline)
    label = spec.labels.get(spec.headline, spec.headline)
    return f"{label[:1].lower()}{label[1:]} score ({low:g} to {high:g})"


def _limits(
    section: Section, judge: str, side: int, scores: list[tuple[float, float]]
) -> tuple[float, float]:
    """Return the ends of a judge's scale; those of its scores where nothing is known of it."""
    spec = judge_spec(section.policies, judge)
    found = [pair[side] for pair in scores]
    low, high = (min(found), max(found)) if spec is None else spec.limits(spec.headline)
    return (low, high) if high > low else (low, low + 1)


def _bin(score: float, low: float, high: float) -> float:
    step = (high - low) / 20
    return low + round((score - low) / step) * step


def _headline(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    return OVERALL if spec is None else spec.headline


def _bubbles(
    section: Section, first: str, second: str, scores: list[tuple[float, float]], words: str
) -> Picture:
    # Binned to twentieths of each scale: of 0 to 10 whole and half scores fall together.
    one, two = _limits(section, first, 0, scores), _limits(section, second, 1, scores)
    counts = Counter((_bin(a, *one), _bin(b, *two)) for a, b in scores)
    most = max(counts.values())
    figure = new_figure(3.35)
    axes: Any = figure.subplots()
    axes.plot(one, two, color=GREY, linestyle=":", linewidth=1)
    axes.scatter(
        [a for a, _ in counts], [b for _, b in counts],
        s=[AREA * n / most for n in counts.values()], color="#9a9a9a", alpha=0.6,
        edgecolors="black", linewidths=0.4,
    )  # fmt: skip
    axes.text(
        0.02,
        0.98,
        words.rstrip(".").replace(", ", "\n"),
        transform=axes.transAxes,
        va="top",
        fontsize=6.5,
    )
    axes.set_xlabel(f"{first}: {_scale(section, first)}")
    axes.set_ylabel(f"{second}: {_scale(section, second)}")
    axes.set_box_aspect(1)
    axes.margins(0.06)
    caption = (
        f"{section.title}: {second} against {first} on {len(scores)} conversations of all "
        f"methods; area is the number of conversations (largest {most}), the dotted line is the "
        "same share of each scale."
    )
    name = slug(f"judges {section.title} {first} {second}")
    marks = f"area: conversations (largest {most}); dotted line: agreement"
    return picture(figure, name, f"{caption} {words}".strip(), title=section.title, legend=marks)
