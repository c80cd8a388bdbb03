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
    for first, second in combinations(section.judges, 2):
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


def _headline(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    return OVERALL if spec is None else spec.headline


def _bubbles(
    section: Section, first: str, second: str, scores: list[tuple[float, float]], words: str
) -> Picture:
    # Whole and half scores fall together; finer ones are binned, those up to 1 to twentieths.
    step = 0.5 if max(max(pair) for pair in scores) > 1 else 0.05
    counts = Counter((round(a / step) * step, round(b / step) * step) for a, b in scores)
    most = max(counts.values())
    figure = new_figure(3.35)
    axes: Any = figure.subplots()
    low = min(min(pair) for pair in counts)
    high = max(max(pair) for pair in counts)
    axes.plot([low, high], [low, high], color=GREY, linestyle=":", linewidth=1)
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
    axes.set_aspect("equal")
    axes.margins(0.06)
    caption = (
        f"{section.title}: {second} against {first} on {len(scores)} conversations of all "
        f"methods; area is the number of conversations (largest {most}), the dotted line is "
        "agreement."
    )
    name = slug(f"judges {section.title} {first} {second}")
    marks = f"area: conversations (largest {most}); dotted line: the same score"
    return picture(figure, name, f"{caption} {words}".strip(), title=section.title, legend=marks)
