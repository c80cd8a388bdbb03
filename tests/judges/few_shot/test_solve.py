"""The inner loop with the shipped policy: what is trained, what is masked, what stays as it was."""

from __future__ import annotations

import pytest

from convbench.judges.adaptation.learner import Learner
from convbench.judges.adaptation.settings import InnerSettings
from convbench.judges.few_shot.runner import problem_of, settings_of
from convbench.judges.few_shot.settings import FewShotSettings
from convbench.judges.few_shot.solve import RowWriter, Solver
from convbench.models.weights_path import check_weights
from convbench.tasks.arc_agi.edit import SelfEdit, Strategy
from convbench.tasks.arc_agi.grids import format_answer
from tests.helpers import few_shot_runs
from tests.support.later import later

adaptation_fit = later("convbench.judges.adaptation.fit")

torch = later("torch")

ALL: Strategy = "train_using_all_tokens"
OUTPUT: Strategy = "train_using_output_tokens"


@pytest.fixture(scope="module")
def learner() -> Learner:
    torch.set_num_threads(1)
    return Learner.load(check_weights("pocket-grids"), "cpu")


def solver(learner: Learner, **sets: object) -> Solver:
    return Solver(learner, settings_of(few_shot_runs.quick_judge(**sets)))


def test_values_are_the_papers() -> None:
    """Of the judge that is not sized for the tiny policy."""
    chosen = FewShotSettings()
    inner = chosen.inner_settings(1e-4, 2)
    assert (inner.r, inner.alpha, inner.batch_size, inner.seeds) == (128, 16, 2, 1)
    assert (inner.schedule, inner.warmup_steps, inner.epochs) == ("cosine", 11, 2)
    assert set(inner.target_modules) == {"q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"}
    assert (chosen.max_rows, chosen.max_length, chosen.max_steps) == (250, 8192, 375)


def test_the_loss_is_on_the_answer_and_its_end(learner: Learner) -> None:
    """By token: a row's counted labels decode to the answer, nothing before it, no padding."""
    writer = RowWriter(learner.tokenizer, settings_of(few_shot_runs.quick_judge()))
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    puzzles = Solver(learner, writer.settings).rows_of(
        problem, SelfEdit(frozenset({"basic"}), OUTPUT, 1e-3, 1)
    )
    rows = [writer.token_row(puzzle, OUTPUT) for puzzle in puzzles]
    assert len({len(row.ids) for row in rows}) > 1, "some are padded"
    labels = adaptation_fit.next_token_labels(
        [row.ids for row in rows], [row.start for row in rows]
    )
    for puzzle, found in zip(puzzles, labels, strict=True):
        counted = [token for token in found if token != adaptation_fit.AWAY]
        said = learner.tokenizer.decode(counted)
        assert said == format_answer(puzzle.test.output, "places") + learner.tokenizer.eos_token
    whole = adaptation_fit.next_token_labels([row.ids for row in rows])
    assert all(found == list(row.ids[1:]) for found, row in zip(whole, rows, strict=True))
    width = max(map(len, labels))
    matrix = adaptation_fit.pad_rows(labels, "cpu", adaptation_fit.AWAY)[0]
    for found, line in zip(labels, matrix.tolist(), strict=True):
        assert line == found + [adaptation_fit.AWAY] * (width - len(found))


def test_a_row_begins_as_the_policy_is_asked(learner: Learner) -> None:
    writer = RowWriter(
        learner.tokenizer, FewShotSettings(grids="places", sentence="Find the rule.")
    )
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    edit = SelfEdit(frozenset(), ALL, 1e-3, 1)
    for puzzle in Solver(learner, writer.settings).rows_of(problem, edit):
        row = writer.token_row(puzzle, ALL)
        head = writer.prompt_ids(puzzle)
        assert row.ids[: len(head)] == tuple(head)
        assert row.start == 1
        assert writer.token_row(puzzle, OUTPUT).start == len(head)
        assert row.ids[-1] == learner.tokenizer.eos_token_id


def test_long_rows_are_left_out(learner: Learner) -> None:
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    edit = SelfEdit(frozenset({"size"}), ALL, 1e-3, 1)
    many = {"args.max_rows": 250}
    all_of_them = solver(learner, **many, **{"args.max_length": 8192}).rows_of(problem, edit)
    some = solver(learner, **many, **{"args.max_length": 121})
    found = some.rows_of(problem, edit)
    assert 0 < len(found) < len(all_of_them) == 200
    assert all(len(some.writer.token_row(puzzle, ALL).ids) < 121 for puzzle in found)
    none = solver(learner, **{"args.max_length": 5}).try_adapted(problem, edit)
    assert none.reason == "no row has less than 5 tokens"


def test_the_rate_rises_for_eleven_steps_and_falls_as_a_cosine() -> None:
    inner = FewShotSettings().inner_settings(1e-4, 2)
    assert [adaptation_fit.rate_share(n, 111, inner) for n in (0, 1, 11, 61)] == pytest.approx(
        [0, 1 / 11, 1, 0.5]
    )
    assert adaptation_fit.rate_share(110, 111, inner) == pytest.approx(0, abs=1e-3)
    assert adaptation_fit.rate_share(3, 8, inner) == pytest.approx(3 / 11), (
        "a short training never leaves the warm-up"
    )
    assert [adaptation_fit.rate_share(n, 4, InnerSettings()) for n in (0, 2)] == [1, 0.5]


def test_training_solves_what_the_policy_cannot(learner: Learner) -> None:
    """A task whose outputs are all alike, with the real loop; the same edit again gives the same,
    whatever was adapted between, and the policy is unchanged."""
    problem = problem_of(few_shot_runs.alike(few_shot_runs.some_tasks(1)[0]))
    one = solver(learner, **{"args.r": 8})
    before = {name: p.clone() for name, p in learner.model.named_parameters()}
    good = SelfEdit(frozenset(), OUTPUT, 1e-2, 40)
    assert not one.try_unadapted(problem).is_right([((5,),)])
    first = one.try_adapted(problem, good)
    assert first.is_right([((5,),)])
    assert (first.rows, first.steps, first.reason) == (4, 80, None)
    assert not one.try_adapted(problem, SelfEdit(frozenset(), ALL, 1e-8, 1)).is_right([((5,),)])
    assert one.try_adapted(problem, good).attempts == first.attempts
    after = dict(learner.model.named_parameters())
    assert all(torch.equal(p, after[name]) for name, p in before.items())


def test_the_guard_is_judged_with_the_policy_as_it_is(learner: Learner) -> None:
    """epochs * rows // 2 > 375: 188 epochs of 4 rows are 376."""
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    one = solver(learner)
    found = one.try_adapted(problem, SelfEdit(frozenset(), OUTPUT, 1e-2, 188))
    assert found.reason == "188 epochs of 4 rows are 376 steps; the limit is 375"
    assert (found.steps, found.attempts) == (0, one.try_unadapted(problem).attempts)


def test_what_diverges_is_judged_with_the_policy_as_it_is(learner: Learner) -> None:
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    late = solver(learner, **{"args.max_seconds": 1e-9})
    found = late.try_adapted(problem, SelfEdit(frozenset(), OUTPUT, 1e-2, 2))
    assert found.reason is not None
    assert found.reason.startswith("took longer")
    assert found.attempts == late.try_unadapted(problem).attempts


def test_views_that_look_alike_are_asked_once(learner: Learner) -> None:
    """Two demonstrations: a subset is one, and has one order."""
    problem = problem_of(few_shot_runs.some_tasks(1)[0])
    few = type(problem)(problem.shown[:2], problem.tests)
    found = solver(learner).try_unadapted(few)
    assert found.asked == 2 * 3 * 6
