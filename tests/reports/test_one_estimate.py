"""Of one run the report, the card, a checkpoint's card, the viewer and the judges' panel tell one
mean with one error, to the last digit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from convbench.hub.checkpoint import results_of
from convbench.hub.figures import card_figures
from convbench.judges.panel import ConversationLength, summarise_panel
from convbench.reports.frame import read_settings
from convbench.stats.estimates import Estimate
from convbench.store import Run
from convbench.viewer.figures import overview_figures
from convbench.viewer.library import index_runs
from tests.helpers.runs import ANSWERS, conversation, example, verdict, write_run

ISSUE = [("a", True), ("a", True), ("a", True), ("b", False)]
"""Three of four right, in two groups of unlike size."""


def made(folder: Path, asked: list[tuple[str, bool]], rewards: list[float], **more: Any) -> Run:
    """One conversation a question, all of split test and one temperature."""
    questions = [example(n, split="test", group_id=group) for n, (group, _) in enumerate(asked)]
    said = [conversation(n, 0, ANSWERS[not right]) for n, (_, right) in enumerate(asked)]
    return write_run(
        folder, examples=questions, conversations=said, samples=1, temperatures=(0.3,),
        verdicts=[verdict(c, value) for c, value in zip(said, rewards, strict=True)], **more,
    )  # fmt: skip


def reported(run: Run) -> tuple[Estimate | None, Estimate | None]:
    (setting,) = read_settings([run])
    (policy,) = setting.policies
    return setting.mean(policy, "correct"), setting.mean(policy, "rules/reward")


def carded(run: Run) -> tuple[Estimate | None, Estimate | None]:
    found = card_figures(run)
    return found.policy[0].accuracy, found.rewards[0].reward


def viewed(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    (row,) = overview_figures(index_runs([run.path], lambda text: None))["methods"]
    return row["accuracy"], row["rewards"][0]


def told(found: Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "error": found.error, "groups": found.groups, "n": found.n}


def asked_at_random(seed: int) -> tuple[list[tuple[str, bool]], list[float]]:
    draw = random.Random(seed)
    asked = [(draw.choice("abcdefg"), draw.random() < 0.6) for _ in range(60)]
    return asked, [draw.random() for _ in asked]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_one_run_has_one_mean_and_one_error(tmp_path: Path, seed: int | None) -> None:
    asked, rewards = (ISSUE, [0.1, 0.7, 0.2, 0.3]) if seed is None else asked_at_random(seed)
    run = made(tmp_path / "run", asked, rewards)
    accuracy, paid = reported(run)
    assert accuracy is not None
    assert paid is not None
    assert carded(run) == (accuracy, paid)
    for seen, one in zip(viewed(run), (accuracy, paid), strict=True):
        assert seen == pytest.approx(told(one), rel=1e-12)  # added up by the database
    groups = {name: found.group_id for name, found in run.examples.items()}
    talks = (
        ConversationLength(row.conversation_id, row.example_id, 1)
        for row in run.conversation_rows()
    )
    (judge,) = summarise_panel(talks, run.verdict_rows(), groups=groups.__getitem__).judges
    assert judge.reward == paid


def test_the_figures_of_three_right_of_four(tmp_path: Path) -> None:
    run = made(tmp_path / "run", ISSUE, [0.5] * 4)
    found = reported(run)[0]
    assert found is not None
    assert (found.mean, found.error) == (0.75, 0.375)


def test_a_checkpoint_s_card_tells_the_same(tmp_path: Path) -> None:
    run = made(tmp_path / "run", ISSUE, [0.1, 0.7, 0.2, 0.3])
    folder = run.checkpoints_folder / "tuned"
    folder.mkdir(parents=True)
    child = made(
        run.evals_folder / "tuned",
        ISSUE,
        [0.1, 0.7, 0.2, 0.3],
        kind="eval",
        parent=run.manifest.id,
        checkpoint=str(folder),
        split="test",
        id="20260101-000000-abcdef02",
    )
    results = results_of(run, folder)
    assert results is not None
    accuracy, paid = carded(child)
    assert accuracy is not None
    assert paid is not None
    assert [(row.base, row.this_model) for row in results.rows] == [
        (f"{one.mean:.{digits}f} ± {one.error:.{digits}f}",) * 2
        for one, digits in ((accuracy, 4), (paid, 3))
    ]
