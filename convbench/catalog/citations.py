"""What to cite: the papers that specs name in `reference`, the tasks' own sets, and convbench."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.schema import JudgeSpec, RunManifest

SOFTWARE_AUTHOR, SOFTWARE_YEAR = "convbench contributors", 2026
"""Author and year of convbench itself, as in CITATION.cff."""
OURS = ("ours", "not in the paper")
"""How a spec's reference begins if no paper is behind it."""
_ENTRY_KEY = re.compile(r"@\w{1,40}\{([^\s,{}]{1,100}),")


@dataclass(frozen=True)
class Paper:
    """A paper that specs refer to as `SURNAME et al. YEAR`, or by its arXiv number."""

    key: str
    """Key of its BibTeX entry."""
    title: str
    authors: str
    """As in BibTeX: `Surname, Given names and Surname, Given names`."""
    year: str
    venue: str
    """Conference or journal; empty for a preprint."""
    arxiv: str
    """Empty without an arXiv number."""

    @property
    def authors_text(self) -> str:
        """Return the first author's surname, with `et al.` if there are others."""
        surname = self.authors.partition(",")[0]
        return f"{surname} et al." if " and " in self.authors else surname

    @property
    def bibtex(self) -> str:
        """Return its BibTeX entry."""
        in_journal = self.venue.startswith("Journal")
        kind = ("article" if in_journal else "inproceedings") if self.venue else "misc"
        fields = {
            "title": f"{{{self.title}}}",  # in braces of its own it keeps its capitals
            "author": self.authors,
            "journal" if in_journal else "booktitle": self.venue,
            "year": self.year,
            "eprint": self.arxiv,
            "archivePrefix": self.arxiv and "arXiv",
        }
        return _bibtex_entry(kind, self.key, fields)

    def is_named_in(self, text: str) -> bool:
        """Return True if a spec's reference names this paper."""
        short = f"{self.authors_text} {self.year}"
        return short in text or (self.arxiv != "" and self.arxiv in text)


def _read_papers() -> dict[str, Paper]:
    with (Path(__file__).parent / "papers.csv").open(newline="", encoding="utf-8") as file:
        return {row["key"]: Paper(**row) for row in csv.DictReader(file)}


PAPERS: Mapping[str, Paper] = _read_papers()
"""Every paper that a shipped spec names, by its BibTeX key, from `papers.csv`."""


@dataclass(frozen=True)
class Citations:
    """What to cite: which spec follows which paper, and BibTeX. Untrusted text: writers escape."""

    sources: tuple[str, ...]
    """A line for each spec, as `recipe swift: Mukherjee et al. 2025, section 3.3`."""
    bibtex: str
    """Entries of the tasks' own sets, of the papers and of convbench, with empty lines between."""


def collect_citations(
    manifests: Iterable[RunManifest],
    judges: Iterable[JudgeSpec],
    recipes: Iterable[Mapping[str, Any]] = (),
) -> Citations:
    """Return what to cite for results of these runs, judges and recipes: the papers that their
    references name, the tasks' own citations, and convbench.

    A paper whose key a task's citation has comes once.
    """
    runs = list(manifests)
    named = [
        *((f"protocol {run.protocol.name}", run.protocol.reference) for run in runs),
        *((f"judge {judge.name}", judge.reference) for judge in judges),
        *((f"recipe {recipe.get('name')}", recipe.get("reference")) for recipe in recipes),
    ]
    references = [str(text) for _, text in named if text]
    tasks = dict.fromkeys(run.task.licence.citation for run in runs)
    own = [text.strip() for text in tasks if text]
    keys = {key for text in own for key in _ENTRY_KEY.findall(text)}
    papers = [
        paper.bibtex
        for paper in PAPERS.values()
        if paper.key not in keys and any(map(paper.is_named_in, references))
    ]
    bibtex = "\n\n".join([*own, *papers, software_bibtex()])
    return Citations(tuple(dict.fromkeys(_source_lines(named))), bibtex)


def _source_lines(named: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for what, reference in named:
        text = str(reference or "")
        known = any(paper.is_named_in(text) for paper in PAPERS.values())
        if text and (known or not text.startswith(OURS)):
            yield f"{what}: {text}"


def software_bibtex() -> str:
    """Return the BibTeX entry of this version of convbench."""
    fields = {
        "title": "convbench: multi-turn conversations from build to report",
        "author": f"{{{SOFTWARE_AUTHOR}}}",
        "year": str(SOFTWARE_YEAR),
        "version": __version__,
    }
    return _bibtex_entry("software", "convbench", fields)


def _bibtex_entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}"
