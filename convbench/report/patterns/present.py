"""Language patterns as tables, a picture and a CSV file of points."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from convbench.report.document import Cell, Column, Document, Part, Picture, Table
from convbench.report.patterns.analysis import Patterns, distinct, first_words, telling, vocabulary
from convbench.report.patterns.responses import Response, by_policy
from convbench.report.plots.style import Page, drawing, legend_below, looks, new_figure, picture
from convbench.report.tables.cells import number
from convbench.stats.means import estimate

SHAPES = ("o", "s", "^", "D", "P")
"""Markers of patterns 0 to 4: circle, square and triangle as in the paper's figure, then ours."""
GRAMS = (1, 2, 3)
TOLD = 10
"""Most telling words that are shown."""


def patterns_document(found: Patterns, title: str, page: Page | None = None) -> Document:
    """Return the analysis as a document of one part, with its picture drawn for `page`."""
    counts = ", ".join(
        f"{len(said)} of {name}" for name, said in by_policy(found.responses).items()
    )
    facts = (f"Final responses: {counts}; {len(found.common)} common words.",)
    tables = (shares(found), diversity(found), *told(found))
    pictures = () if found.places is None else (draw(found, found.places, title, page),)
    return Document(title, (Part(title, facts, tables, pictures, found.notes),))


def shares(found: Patterns) -> Table:
    """Return the share of each policy's responses in each pattern."""
    policies = found.policies
    rows = []
    for pattern in range(found.k):
        cells = [Cell(f"pattern {pattern}")]
        for name in policies:
            pairs = (
                (response.group, 100.0 * (label == pattern))
                for response, label in zip(found.responses, found.pattern, strict=True)
                if response.policy == name
            )
            cells.append(number(estimate(pairs), 1))
        rows.append(tuple(cells))
    columns = (Column("Pattern", "Pattern", False), *(Column(f"{n} (%)", n) for n in policies))
    notes = ("Share of responses ± standard error clustered by group; numbered by size.",)
    return Table("Pattern shares", columns, tuple(rows), notes, "pattern-shares")


def diversity(found: Patterns) -> Table:
    """Return length, vocabulary and distinct-n by policy; the last at equal size, vocabulary both
    ways."""
    texts = {name: [r.words for r in said] for name, said in by_policy(found.responses).items()}
    size = min(sum(map(len, words)) for words in texts.values())
    rows = []
    for name, said in by_policy(found.responses).items():
        equal = first_words(texts[name], size)
        cells = [Cell(name), Cell(str(len(said)))]
        cells.append(number(estimate((r.group, float(len(r.words))) for r in said), 1))
        cells += [Cell(str(vocabulary(texts[name]))), Cell(str(vocabulary(equal)))]
        for n in GRAMS:
            value = distinct(equal, n)
            cells.append(Cell("-" if value is None else f"{value:.3f}"))
        rows.append(tuple(cells))
    heads = ("responses", "words", "vocabulary", "vocabulary, equal size")
    columns = (
        Column("Policy", "Policy", False),
        *(Column(head, head) for head in heads),
        *(Column(f"distinct-{n}", f"dist-{n}") for n in GRAMS),
    )
    notes = (
        f"words: mean ± clustered standard error; equal size and distinct-n: over the first {size} "
        "words of each policy.",
    )
    return Table("Diversity", columns, tuple(rows), notes, "diversity")


def told(found: Patterns) -> Iterator[Table]:
    """Yield the tables of the most telling words: by policy, and by pattern."""
    by_name = {name: [r.policy == name for r in found.responses] for name in found.policies}
    by_pattern = {f"pattern {k}": [label == k for label in found.pattern] for k in range(found.k)}
    for head, groups in (("Policy", by_name), ("Pattern", by_pattern)):
        rows = []
        for name, inside in groups.items():
            words = telling(_where(found, inside, True), _where(found, inside, False), TOLD)
            rows.append((Cell(name), Cell(", ".join(words) or "-")))
        notes = ("By log-odds with an informative Dirichlet prior, against all others.",)
        columns = (Column(head, head, False), Column("most telling words", "telling words", False))
        label = f"telling-words-{head.lower()}"
        yield Table(f"Telling words by {head.lower()}", columns, tuple(rows), notes, label)


def _where(found: Patterns, inside: list[bool], wanted: bool) -> Iterator[Response]:
    return (r for r, is_in in zip(found.responses, inside, strict=True) if is_in == wanted)


def draw(
    found: Patterns, places: Sequence[tuple[float, float]], title: str, page: Page | None = None
) -> Picture:
    """Return the UMAP picture, drawn for `page`: shape by pattern, colour by policy."""
    with drawing(found.policies, page):
        from matplotlib.lines import Line2D

        figure = new_figure(4.6 if page is None or page.columns == "two" else 3.6, panels=2)
        axes: Any = figure.subplots()
        colors = {name: look.color for name, look in looks(found.policies).items()}
        for place in _interleaved(found):
            axes.scatter(
                *places[place],
                marker=SHAPES[found.pattern[place]],
                s=20,
                color=colors[found.responses[place].policy],
                alpha=0.65,
                linewidths=0.3,
                edgecolors="white",
            )
        axes.set_xlabel("UMAP 1 (no unit)")
        axes.set_ylabel("UMAP 2 (no unit)")
        handles = [
            Line2D([], [], linestyle="none", marker="o", color=c, label=name)
            for name, c in colors.items()
        ]
        handles += [
            Line2D(
                [],
                [],
                linestyle="none",
                marker=shape,
                markerfacecolor="white",
                color="black",
                label=f"pattern {k}",
            )
            for k, shape in enumerate(SHAPES[: found.k])
        ]
        legend_below(figure, handles, [str(one.get_label()) for one in handles])
        caption = (
            f"{title}: final responses placed by their uncommon words (UMAP, {found.neighbours} "
            "neighbours); colour is the policy, shape the pattern of common words."
        )
        return picture(figure, "patterns", caption, title=title)


def _interleaved(found: Patterns) -> list[int]:
    """Return the indices of the responses in an order that draws no policy over another."""
    return sorted(range(len(found.responses)), key=lambda i: found.responses[i].conversation_id)


def points(found: Patterns) -> bytes:
    """Return the points as CSV: conversation_id, policy, pattern, x, y."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("conversation_id", "policy", "pattern", "x", "y"))
    for i, (response, label) in enumerate(zip(found.responses, found.pattern, strict=True)):
        place = [f"{value:.6f}" for value in found.places[i]] if found.places else ["", ""]
        writer.writerow((response.conversation_id, response.policy, label, *place))
    return out.getvalue().encode()
