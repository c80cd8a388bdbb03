"""A policy that was really trained is called by its recipe, folder or name in the tables, in any
case, in a run's report and in its experiment's."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import RunError
from tests.experiments.ran import ran
from tests.helpers import stages

SPEC = {
    "title": "a learner of few steps", "tasks": ["pocket"], "modes": ["thinking"], "count": 16,
    "model": "local:pocket", "judges": ["rules"], "learners": ["base", "swift"], "samples": 2,
    "temperatures": [0.7], "max_tokens": 48,
    "recipe_sets": {"swift": {
        "launch": "none", "fit.max_steps": 2, "fit.batch_size": 4, "fit.accumulation": 1,
        "fit.precision": "fp32", "fit.gradient_checkpointing": False,
    }},
}  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """The run of an experiment's only cell, and the experiment's folder."""
    folder = tmp_path_factory.mktemp("called")
    ran(folder, SPEC)
    (made,) = (folder / "r").glob("*/run.json")
    return made.parent, folder / "r"


def compared(place: Path, said: str) -> list[str]:
    """Return whom the table of differences to SWiFt compares with it."""
    made = stages.report(place, against=(said,)).document
    tables = [table for part in made.parts for table in part.tables]
    (found,) = [table for table in tables if table.caption.startswith("Differences to SWiFt")]
    return [row[0].text for row in found.rows]


@pytest.mark.exhaustive
@pytest.mark.parametrize("said", ["swift", "SWiFt", "SWiFT", "sWIFT"])
def test_a_trained_policy_is_found_by_its_name_in_any_case(
    places: tuple[Path, ...], said: str
) -> None:
    assert compared(places[0], said) == ["Base"]


@pytest.mark.exhaustive
def test_an_experiments_report_finds_it_alike(places: tuple[Path, ...]) -> None:
    assert compared(places[1], "sWIFT") == ["Base"]


@pytest.mark.exhaustive
def test_a_name_that_is_none_is_one_line_that_says_the_names(places: tuple[Path, ...]) -> None:
    said = "^--against refit: found no such policy; expected one of SWiFt, Base$"
    for place in places:
        with pytest.raises(RunError, match=said):
            stages.report(place, against=("refit",))
