"""The report of `patterns`: clusters of policies' final responses."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench.options.report import PatternOptions
from convbench.reports.document import Cell, Column, Document, Picture, ReportPart, Table
from convbench.reports.patterns.analysis import (
    Patterns,
    Response,
    analyse_patterns,
    by_policy,
    distinct_n,
    first_words,
    read_responses,
    telling_words,
    vocabulary_size,
)
from convbench.reports.plots.style import (
    Page,
    drawing_style,
    legend_below,
    new_figure,
    policy_looks,
    save_picture,
)
from convbench.reports.tables.cells import estimate_cell
from convbench.reports.writers import write_report
from convbench.stats.means import estimate_mean
from convbench.store import Run, find_run
from convbench.store.jsonl import write_file

SHAPES = ("o", "s", "^", "D", "P")
"""Markers of patterns 0 to 4: circle, square and triangle as in the paper's figure, then ours."""
GRAMS = (1, 2, 3)
TELLING_WORDS = 10
"""Most telling words that are shown."""


def patterns_document(analysis: Patterns, title: str, page: Page | None = None) -> Document:
    """Return the analysis as a document of one part: tables of shares, diversity and telling words,
    and the picture drawn for `page`.

    There is no picture if the analysis has no coordinates. Raise MissingDependency if there is one
    and matplotlib is missing.
    """
    counts = ", ".join(
        f"{len(responses)} of {name}" for name, responses in by_policy(analysis.responses).items()
    )
    facts = (f"Final responses: {counts}; {len(analysis.common)} common words.",)
    tables = (share_table(analysis), diversity_table(analysis), *telling_tables(analysis))
    pictures = (
        ()
        if analysis.coordinates is None
        else (draw_patterns(analysis, analysis.coordinates, title, page),)
    )
    return Document(title, (ReportPart(title, facts, tables, pictures, analysis.notes),))


def share_table(analysis: Patterns) -> Table:
    """Return the table of pattern shares in percent ± standard error clustered by group, a row for
    each pattern, a column for each policy."""
    policies = analysis.policies
    rows = []
    for pattern in range(analysis.k):
        cells = [Cell(f"pattern {pattern}")]
        for name in policies:
            pairs = (
                (response.group, 100.0 * (label == pattern))
                for response, label in zip(analysis.responses, analysis.pattern, strict=True)
                if response.policy == name
            )
            cells.append(estimate_cell(estimate_mean(pairs), 1))
        rows.append(tuple(cells))
    columns = (Column("Pattern", "Pattern", False), *(Column(f"{n} (%)", n) for n in policies))
    notes = ("Share of responses ± standard error clustered by group; numbered by size.",)
    return Table("Pattern shares", columns, tuple(rows), notes, "pattern-shares")


def diversity_table(analysis: Patterns) -> Table:
    """Return the table of responses, mean number of words, vocabulary and distinct-1 to -3, a row
    for each policy.

    Distinct-n, and a second column of vocabulary, are over the first words of each policy, as many
    as the policy with the fewest words has.
    """
    texts = {
        name: [r.words for r in responses]
        for name, responses in by_policy(analysis.responses).items()
    }
    size = min(sum(map(len, words)) for words in texts.values())
    rows = []
    for name, responses in by_policy(analysis.responses).items():
        equal = first_words(texts[name], size)
        cells = [Cell(name), Cell(str(len(responses)))]
        cells.append(
            estimate_cell(estimate_mean((r.group, float(len(r.words))) for r in responses), 1)
        )
        cells += [Cell(str(vocabulary_size(texts[name]))), Cell(str(vocabulary_size(equal)))]
        for n in GRAMS:
            value = distinct_n(equal, n)
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


def telling_tables(analysis: Patterns) -> Iterator[Table]:
    """Yield two tables of the at most ten most telling words against all other responses: one by
    policy, one by pattern."""
    by_name = {name: [r.policy == name for r in analysis.responses] for name in analysis.policies}
    by_pattern = {
        f"pattern {k}": [label == k for label in analysis.pattern] for k in range(analysis.k)
    }
    for head, groups in (("Policy", by_name), ("Pattern", by_pattern)):
        rows = []
        for name, inside in groups.items():
            words = telling_words(
                _select_responses(analysis, inside, True),
                _select_responses(analysis, inside, False),
                TELLING_WORDS,
            )
            rows.append((Cell(name), Cell(", ".join(words) or "-")))
        notes = ("By log-odds with an informative Dirichlet prior, against all others.",)
        columns = (Column(head, head, False), Column("most telling words", "telling words", False))
        label = f"telling-words-{head.lower()}"
        yield Table(f"Telling words by {head.lower()}", columns, tuple(rows), notes, label)


def _select_responses(
    analysis: Patterns, inside: list[bool], is_member: bool
) -> Iterator[Response]:
    return (r for r, is_in in zip(analysis.responses, inside, strict=True) if is_in == is_member)


def draw_patterns(
    analysis: Patterns,
    coordinates: Sequence[tuple[float, float]],
    title: str,
    page: Page | None = None,
) -> Picture:
    """Return the responses at their UMAP coordinates as a picture named `patterns`, drawn for
    `page`: shape by pattern, colour by policy.

    Raise MissingDependency without matplotlib.
    """
    with drawing_style(analysis.policies, page):
        from matplotlib.lines import Line2D

        figure = new_figure(4.6 if page is None or page.columns == "two" else 3.6, panels=2)
        axes: Any = figure.subplots()
        colors = {name: look.color for name, look in policy_looks(analysis.policies).items()}
        for index in _interleaved_order(analysis):
            axes.scatter(
                *coordinates[index],
                marker=SHAPES[analysis.pattern[index]],
                s=20,
                color=colors[analysis.responses[index].policy],
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
            for k, shape in enumerate(SHAPES[: analysis.k])
        ]
        legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
        caption = (
            f"{title}: final responses placed by their uncommon words (UMAP, {analysis.neighbours} "
            "neighbours); colour is the policy, shape the pattern of common words."
        )
        return save_picture(figure, "patterns", caption, title=title)


def _interleaved_order(analysis: Patterns) -> list[int]:
    """Return the indices of the responses in an order that draws no policy over another."""
    return sorted(
        range(len(analysis.responses)), key=lambda i: analysis.responses[i].conversation_id
    )


def points_csv(analysis: Patterns) -> bytes:
    """Return the responses as UTF-8 CSV with a head: conversation_id, policy, pattern, x, y; x and
    y are empty without coordinates."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("conversation_id", "policy", "pattern", "x", "y"))
    for i, (response, label) in enumerate(zip(analysis.responses, analysis.pattern, strict=True)):
        coordinates = (
            [f"{value:.6f}" for value in analysis.coordinates[i]]
            if analysis.coordinates
            else ["", ""]
        )
        writer.writerow((response.conversation_id, response.policy, label, *coordinates))
    return out.getvalue().encode()


@dataclass
class PatternResult:
    """The report on language patterns, and the files that were written."""

    analysis: Patterns
    document: Document
    files: list[Path]
    warnings: list[str] = field(default_factory=list)


def report_patterns(options: PatternOptions) -> PatternResult:
    """Analyse the final responses of policies, and write `patterns.html`, `patterns.md`, the
    picture's files and `patterns.csv`.

    Return analysis, document, paths and warnings. The folder is `out`, else the first run's folder
    of reports; without `runs` the newest run is used. Raise RunError for fewer than two policies,
    DataError for responses without usable words, MissingDependency without the extra `analysis`.
    """
    runs = [find_run(path) for path in options.runs] or [find_run(None)]
    analysis = analyse_patterns(read_responses(runs, options.split))
    page = Page(options.columns, options.titles)
    document = patterns_document(analysis, _patterns_title(runs, options.split), page)
    document = replace(document, runs=tuple(str(run.path) for run in runs))
    folder = options.out or runs[0].reports_folder
    named = options.out is not None
    files = write_report(document, folder, ["html", "markdown"], name="patterns", named=named)
    write_file(folder / "patterns.csv", points_csv(analysis), named_by_user=named)
    return PatternResult(
        analysis, document, [*files, folder / "patterns.csv"], _difference_warnings(runs)
    )


def _patterns_title(runs: Sequence[Run], split: str) -> str:
    first = runs[0].manifest
    return f"Language patterns · {first.task.name} · {first.mode} · {split}"


def _difference_warnings(runs: Sequence[Run]) -> list[str]:
    out = []
    for key in ("task", "mode"):
        names = {
            str(getattr(getattr(r.manifest, key), "name", getattr(r.manifest, key))) for r in runs
        }
        if len(names) > 1:
            out.append(
                f"the runs differ in {key} ({', '.join(sorted(names))}), which also changes words"
            )
    return out
