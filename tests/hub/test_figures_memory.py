"""What a card and a report hold of each conversation of a long run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from convbench.hub.figures import card_figures
from convbench.reports.report import make_report
from convbench.store import Run
from tests.helpers.runs import conversation, example, verdict, write_run
from tests.support.memory import held_below

FEW, MORE = 3000, 6000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Runs of two conversations a question, each scored."""
    root, made = tmp_path_factory.mktemp("runs"), {}
    for count in (FEW // 2, FEW, MORE):
        asked = [example(n, split="test") for n in range(count // 2)]
        said = [conversation(n, k) for n in range(count // 2) for k in range(2)]
        scores = [verdict(talk) for talk in said]
        run = write_run(root / str(count), examples=asked, conversations=said, verdicts=scores)
        made[count] = run.path
    return made


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", [card_figures, lambda run: make_report([run])])
def test_cards_and_reports_hold_few_bytes_of_each_conversation(
    folders: dict[int, Path], work: Callable[[Run], object]
) -> None:
    held_below(400, lambda count: work(Run.open(folders[count])), FEW, MORE)
