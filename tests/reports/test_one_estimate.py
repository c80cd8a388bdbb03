"""Of one run report, cards, viewer and `judge` tell one mean with one error, to the last digit."""

import random

import pytest

from convbench.commands.judge import judged_run
from convbench.hub.checkpoint import results_of
from convbench.hub.figures import card_figures
from convbench.judges.run import JudgeResult
from convbench.reports.frame import read_settings
from convbench.viewer.figures import overview_figures
from convbench.viewer.library import index_runs
from tests.helpers.runs import ANSWERS, conversation, example, verdict, write_run


def made(folder, seed, **more):
    """A conversation a question, of split test and one temperature, in groups of unlike size;
    without a seed three of four are right."""
    draw = random.Random(seed)
    asked = [(draw.choice("abcdefg"), draw.random() < 0.6) for _ in range(60)]
    if seed is None:
        asked = [("a", True), ("a", True), ("a", True), ("b", False)]
    questions = [example(n, split="test", group_id=group) for n, (group, _) in enumerate(asked)]
    said = [conversation(n, 0, ANSWERS[not right]) for n, (_, right) in enumerate(asked)]
    return write_run(
        folder, examples=questions, conversations=said, samples=1, temperatures=(0.3,),
        verdicts=[verdict(talk, draw.random()) for talk in said], **more,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_one_run_has_one_mean_and_one_error(tmp_path, seed):
    run = made(tmp_path / "run", seed)
    (setting,) = read_settings([run])
    accuracy, paid = (setting.mean(setting.policies[0], c) for c in ("correct", "rules/reward"))
    if seed is None:
        assert (accuracy.mean, accuracy.error) == (0.75, 0.375)
    card = card_figures(run)
    assert (card.policy[0].accuracy, card.rewards[0].reward) == (accuracy, paid)
    (row,) = overview_figures(index_runs([run.path], lambda text: None))["methods"]
    for seen, one in ((row["accuracy"], accuracy), (row["rewards"][0], paid)):
        told = {"mean": one.mean, "error": one.error, "groups": one.groups, "n": one.n}
        assert seen == pytest.approx(told, rel=1e-12)  # added up by the database
    (judge,) = judged_run(JudgeResult(run)).judges
    assert (judge.reward, judge.error) == (paid.mean, paid.error)
    assert (judge.scored, judge.failed) == (paid.n, 0)


def test_a_checkpoint_s_card_tells_the_same(tmp_path):
    run = made(tmp_path / "run", 1)
    folder = run.checkpoints_folder / "tuned"
    folder.mkdir(parents=True)
    child = made(
        run.evals_folder / "tuned", 1, kind="eval", parent=run.manifest.id, split="test",
        checkpoint=str(folder), id="20260101-000000-abcdef02",
    )  # fmt: skip
    card = card_figures(child)
    accuracy, paid = card.policy[0].accuracy, card.rewards[0].reward
    assert [(row.base, row.this_model) for row in results_of(run, folder).rows] == [
        (f"{one.mean:.{digits}f} ± {one.error:.{digits}f}",) * 2
        for one, digits in ((accuracy, 4), (paid, 3))
    ]
