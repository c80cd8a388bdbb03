"""An experiment against another one, and policies of an experiment against each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.reports.experiment.against import against_part
from convbench.reports.experiment.experiment_document import read_experiment
from tests.helpers import stages
from tests.helpers.paper_set import write_cell
from tests.helpers.report_tables import cells

ARC = ("arc", "thinking", "reasoning", 3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two experiments; in the second ReFit is better by 2 of 6 questions."""
    root = tmp_path_factory.mktemp("two")
    for name, refit in (("before", 0.5), ("after", 5 / 6)):
        methods = {"Base": 1 / 6, "SWiFt": 0.5, "ReFit": refit, "ReFit-rows-1000": 1 / 3}
        write_cell(root / name, ARC, methods, 6)
    write_cell(root / "before", ("mmlu", "thinking", "reasoning", 3), {"Base": 0.5}, 6)
    write_cell(root / "elsewhere", ("mmlu", "standard", "reasoning", 3), {"Base": 0.5}, 6)
    return {name: root / name for name in ("before", "after", "elsewhere")}


def part_against(folder: Path, other: Path):
    return against_part(read_experiment(folder).sections, read_experiment(other).sections, "other")


def test_each_policy_stands_against_its_namesake(folders: dict[str, Path]) -> None:
    document = stages.report(folders["after"], against=(str(folders["before"]),)).document
    part = document.parts[1]
    assert part.title == "Against before"
    assert document.citations is not None
    assert "protocol reasoning: Mukherjee et al. 2025, sections E.1 and E.2" in (
        document.citations.sources
    )
    (table,) = part.tables
    assert "differences to before, paired" in table.caption
    assert [row[0].text for row in table.rows] == [
        "SWiFt",
        "ReFit (refit)",
        "ReFit (1000 rows)",
        "Base",
    ]
    refit = cells(table, "ReFit (refit)", "Accuracy − before")
    assert refit.text == "+0.3333"
    assert cells(table, "ReFit (refit)", "pairs").text == "12"
    assert cells(table, "SWiFt", "Accuracy − before").text == "+0.0000"
    assert part.notes == ()


def test_p_is_corrected_over_the_policies(folders: dict[str, Path], tmp_path: Path) -> None:
    """SWiFt and ReFit change alike: each one's p is twice that of the one alone."""
    for name, share in (("old", 0.2), ("new", 0.9)):
        write_cell(tmp_path / name, ARC, {"Base": 0.1, "SWiFt": share, "ReFit": share}, 10)
        write_cell(tmp_path / f"{name}-alone", ARC, {"Base": 0.1, "ReFit": share}, 10)

    def p(mine, theirs):
        (table,) = part_against(tmp_path / mine, tmp_path / theirs).tables
        return cells(table, "ReFit", "Accuracy − other").figure.p

    assert p("new", "old") == pytest.approx(2 * p("new-alone", "old-alone"))


def test_what_has_no_counterpart_is_noted(folders: dict[str, Path]) -> None:
    part = part_against(folders["before"], folders["after"])
    assert part.notes == ("mmlu · thinking · reasoning, n = 3: other has no such runs.",)
    part = part_against(folders["elsewhere"], folders["after"])
    assert part.tables == ()


def test_other_questions_of_the_same_number_are_no_pairs(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folders["before"], other)
    for file in other.glob("arc*/**/examples.jsonl"):
        text = file.read_text()
        file.write_text(
            "".join(
                line.replace('"question":"', '"question":"Now ') if '"q0"' in line else line
                for line in text.splitlines(keepends=True)
            )
        )
    part = part_against(folders["after"], other)
    assert cells(part.tables[0], "Base", "pairs").text == "10", "2 of 12 are about q0"
    assert any("questions: 1 of 6 differ in text or options" in note for note in part.notes)


def test_a_method_trained_at_several_sizes_is_meant_in_each(folders: dict[str, Path]) -> None:
    document = stages.report(folders["after"], against=("refit",)).document
    captions = {t.caption for part in document.parts for t in part.tables}
    assert "Differences to ReFit, paired" in captions
    with pytest.raises(RunError, match="--against nope: found no such policy; expected one of"):
        stages.report(folders["after"], against=("nope",))
