"""Reports, cards and pulled sets say what to cite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from convbench.catalog.citations import (
    OURS,
    PAPERS,
    SOFTWARE_AUTHOR,
    SOFTWARE_YEAR,
    collect_citations,
    software_bibtex,
)
from convbench.reports.document import Document
from convbench.reports.write import render_html, render_markdown
from tests.helpers import stages
from tests.helpers.runs import make, questions, shipped_manifest

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = {
    f"{path.parent.name}/{path.stem}": spec["reference"]
    for path in sorted((ROOT / "specs").glob("*/*.yaml"))
    if "reference" in (spec := yaml.safe_load(path.read_text()))
}
NAMED = re.compile(r"((?:Le )?[A-Z]\w+(?: et al\.)? (?:19|20)\d\d)")


@pytest.mark.parametrize("name", REFERENCES)
def test_every_paper_that_a_shipped_spec_names_is_in_the_table(name: str) -> None:
    reference = REFERENCES[name]
    known = {f"{paper.authors_text} {paper.year}" for paper in PAPERS.values()}
    assert set(NAMED.findall(reference)) <= known
    assert reference.startswith(OURS) or any(p.is_named_in(reference) for p in PAPERS.values())


def test_every_paper_of_the_table_is_named_by_a_shipped_spec() -> None:
    unused = [
        paper.key
        for paper in PAPERS.values()
        if not any(paper.is_named_in(reference) for reference in REFERENCES.values())
    ]
    assert unused == []


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_an_entry_has_authors_title_and_year(paper) -> None:
    for field in ("author", "title", "year"):
        assert re.search(rf"^  {field} = \{{.+\}},?$", paper.bibtex, re.M)
    assert re.fullmatch(r"(\d{4}\.\d{5})?", paper.arxiv)
    assert (f"eprint = {{{paper.arxiv}}}" in paper.bibtex) == bool(paper.arxiv)
    assert all(", " in author for author in paper.authors.split(" and "))
    assert paper.key.endswith(paper.key.lstrip("abcdefghijklmnopqrstuvwxyz"))
    assert paper.year in paper.key


def test_convbench_has_one_author_year_and_version_here_and_in_citation_cff() -> None:
    import convbench

    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert [author["name"] for author in cff["authors"]] == [SOFTWARE_AUTHOR]
    assert cff["version"] == convbench.__version__
    preferred = cff["preferred-citation"]
    assert (preferred["year"], preferred["authors"]) == (SOFTWARE_YEAR, cff["authors"])
    for text in (SOFTWARE_AUTHOR, str(SOFTWARE_YEAR), convbench.__version__, cff["title"]):
        assert text in software_bibtex()


def test_a_report_cites_what_its_run_was_made_with(tmp_path: Path) -> None:
    run = make(
        tmp_path / "r",
        questions(3, "arc"),
        lambda q, k: "A",
        judge="unit-tests",
        task="arc",
        overall=lambda q, k: 5.0,
    )
    cited = stages.report(run.path).document
    assert cited.sources == (
        "protocol reasoning: Mukherjee et al. 2025, sections E.1 and E.2",
        "judge unit-tests: Zhou et al. 2025 (SWEET-RL, ColBench), backend reward; the checker is "
        "ours",
    )
    keys = re.findall(r"@\w+\{(\w+),", cited.bibtex)
    assert keys == ["clark2018think", "mukherjee2025offline", "zhou2025sweetrl", "convbench"]


def test_a_paper_that_the_task_cites_comes_once() -> None:
    cited = collect_citations(
        [shipped_manifest("colbench-backend", "collaboration", mode="standard")], []
    )
    assert cited.bibtex.count("{zhou2025sweetrl,") == 1
    assert "reference" not in cited.bibtex
    assert len(cited.sources) == 1


def test_a_reference_of_ours_is_not_listed_and_an_unknown_paper_is() -> None:
    recipes = [
        {"name": "mine", "reference": "Doe et al. 2031, section 3"},
        {"name": "own", "reference": "ours; a variant"},
        {"name": "pairs", "reference": "ours; as in AlpacaEval (arXiv 2404.04475)"},
        {"name": "bare"},
    ]
    cited = collect_citations([], [], recipes)
    assert cited.sources == (
        "recipe mine: Doe et al. 2031, section 3",
        "recipe pairs: ours; as in AlpacaEval (arXiv 2404.04475)",
    )
    assert re.findall(r"@\w+\{(\w+),", cited.bibtex) == ["dubois2024length", "convbench"]


def test_pages_end_with_the_citations_as_text() -> None:
    recipe = {"name": "<b>x</b>", "reference": "Peng et al. 2019 ``` <script>"}
    cited = collect_citations([], [], [recipe])
    document = Document("report", (), (), cited.sources, f"{cited.bibtex}\n```\n<x>")
    page, text = render_html(document), render_markdown(document)
    assert "<script>" not in page
    assert "<x>" not in page
    assert "@misc{peng2019advantage," in page
    assert text.count("## Citation\n\n- recipe &lt;b&gt;x&lt;/b&gt;: Peng et al. 2019") == 1
    assert "\n````bibtex\n@misc{peng2019advantage," in text
    assert text.endswith("````\n")
