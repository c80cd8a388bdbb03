"""The judge kind: verdicts, what is no edit, what is kept, hostile fields."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from convbench.engine.session import Session
from convbench.errors import DataError
from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.pool import DeviceWorker
from convbench.judges.few_shot.baselines import CONTROL, ORACLE, baseline_values, commonest_edit
from convbench.judges.few_shot.runner import outputs_of, problem_of
from convbench.judges.few_shot.solve import Problem, Solver, Trial
from convbench.judges.few_shot.worker import MODULE
from convbench.judges.resolve import Judge
from convbench.judges.run import score_pending
from convbench.options.shared import CallOptions
from convbench.schema import Verdict
from convbench.store import Run
from convbench.tasks.arc_agi.edit import SelfEdit, Strategy, parse_edit
from tests.helpers import few_shot_runs
from tests.helpers.cards import simulate
from tests.support.later import later

torch = later("torch")

OUTPUT: Strategy = "train_using_output_tokens"
GOOD = SelfEdit(frozenset(), OUTPUT, 1e-2, 40).to_json()
TOO_LONG = SelfEdit(frozenset(), OUTPUT, 1e-2, 400).to_json()


def judged(run: Run, judge: Judge, *devices: str) -> None:
    torch.set_num_threads(1)
    with run.lock():
        asyncio.run(score_pending(run, judge, CallOptions(devices=devices, quiet=True), Session()))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Judge, list[Verdict]]:
    one, two = few_shot_runs.some_tasks(2)
    run = few_shot_runs.edits_run(
        tmp_path_factory.mktemp("few") / "run",
        [few_shot_runs.alike(one), two],
        {one.example_id: [GOOD, TOO_LONG], two.example_id: ["no JSON at all", '{"training": {}}']},
    )
    judge = few_shot_runs.quick_judge(**{"args.r": 8})
    judged(run, judge)
    assert len((run.path / "few-shot.jsonl").read_bytes().splitlines()) == 4, (
        "2 as they are, 2 edits"
    )
    return run, judge, list(run.verdicts())


def test_verdicts(done: tuple[Run, Judge, list[Verdict]]) -> None:
    good, long, text, keys = done[2]
    assert (good.reward, good.scores["gain"], good.scores["trained"]) == (1.0, 1.0, 1.0)
    assert good.details["attempts"][0][0] == [[5]]
    assert good.details["edit"] == {
        "tools": [], "strategy": "train_using_output_tokens", "learning_rate": 0.01, "epochs": 40,
    }  # fmt: skip
    assert (good.details["rows"], good.details["steps"]) == (4, 80)
    assert (long.reward, long.scores["trained"]) == (0.0, 0.0)
    assert "the limit is 375" in long.details["reason"]
    assert (text.reward, text.details["reason"]) == (0.0, "found no JSON object")
    assert "edit" not in text.details
    assert "data_generation and training" in keys.details["reason"]
    assert not any(v.failure for v in done[2]), "no adaptation is a score, not a failure"


def test_what_is_finished_is_not_done_again(done: tuple[Run, Judge, list[Verdict]]) -> None:
    """Verdicts are lost and a line is torn: they come back from the kept trials, unchanged."""
    run, judge, before = done
    kept = run.path / "few-shot.jsonl"
    lines = [orjson.loads(line) for line in kept.read_bytes().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines)
    whole = kept.read_bytes()
    torn = run.verdicts_file.read_bytes().splitlines(keepends=True)
    run.verdicts_file.write_bytes(torn[0] + torn[1][:30])
    judged(run, judge)
    after = [(v.scores, v.details) for v in run.verdicts()]
    assert after == [(v.scores, v.details) for v in before]
    assert kept.read_bytes() == whole


def test_a_task_is_asked_once_for_all_edits_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three that ask for too much and one that trains, the policy as it is answers one time."""
    asked: list[int] = []
    ask = Solver._ask

    def counted(solver: Solver, problem: Problem, clock: PassClock, **more: Any) -> Trial:
        asked.append(more.get("steps", 0))
        return ask(solver, problem, clock, **more)

    monkeypatch.setattr(Solver, "_ask", counted)
    (one,) = few_shot_runs.some_tasks(1)
    long = [SelfEdit(frozenset(), OUTPUT, 1e-2, epochs).to_json() for epochs in (400, 500, 600)]
    run = few_shot_runs.edits_run(
        tmp_path / "run", [one], {one.example_id: [*long, few_shot_runs.CHEAP]}
    )
    judged(run, few_shot_runs.quick_judge())
    assert asked == [0, 2]
    said = [v.details.get("reason", "")[:10] for v in run.verdicts()]
    assert said == ["400 epochs", "500 epochs", "600 epochs", ""]
    assert len({str(v.details["attempts"]) for v in list(run.verdicts())[:3]}) == 1


@pytest.mark.exhaustive
def test_a_process_on_a_device_gives_the_same(
    done: tuple[Run, Judge, list[Verdict]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--devices judge=[0]`: the trials of the run, tried by a worker of their own."""
    simulate(monkeypatch, 1)
    run, judge, before = done
    begun: list[str] = []
    start = DeviceWorker._start

    def noted(hand: DeviceWorker) -> None:
        begun.append(f"{hand.module} on {hand.device}")
        start(hand)

    monkeypatch.setattr(DeviceWorker, "_start", noted)
    other = few_shot_runs.edits_run(
        tmp_path / "run",
        list(run.examples.values()),
        {e: [c.turns[-1].content for c in run.conversations() if c.example_id == e]
         for e in run.examples},
    )  # fmt: skip
    judged(other, judge, "judge=[0]")
    assert begun == [f"{MODULE} on 0"]
    told = [{**v.details, "seconds": 0} for v in other.verdicts()]
    assert told == [{**v.details, "seconds": 0} for v in before]
    assert [v.scores for v in other.verdicts()] == [v.scores for v in before]


@pytest.mark.exhaustive
def test_baselines_stand_beside(done: tuple[Run, Judge, list[Verdict]]) -> None:
    run, judge, _ = done
    size = (run.path / "few-shot.jsonl").stat().st_size
    assert commonest_edit(run, judge) == parse_edit(GOOD)
    found = baseline_values(run, judge)
    assert list(found) == ["nothing", ORACLE, CONTROL]
    assert all(len(values) == 1 and values[0][1] in (0.0, 1.0) for values in found.values())
    after = (run.path / "few-shot.jsonl").stat().st_size
    assert after > size, "the oracle was tried"
    assert baseline_values(run, judge) == found
    assert (run.path / "few-shot.jsonl").stat().st_size == after


@pytest.mark.parametrize(
    ("inputs", "hidden", "said"),
    [
        ({"tests": None}, {}, "outputs for 0 tests"),
        ({"tests": [[[99]]]}, {}, "a whole number from 0 to 9"),
        ({"demonstrations": "x"}, {}, "a pair has an input and an output"),
        ({"demonstrations": 3}, {}, "not iterable"),
        ({}, {"outputs": []}, "0 outputs for 1 tests"),
        ({}, {"outputs": [[[1, 2], [3]]]}, "rows differ in length"),
    ],
)
def test_an_example_that_is_no_task(
    inputs: dict[str, Any], hidden: dict[str, Any], said: str
) -> None:
    one = few_shot_runs.some_tasks(1)[0]
    bad = one.model_copy(
        update={"inputs": {**one.inputs, **inputs}, "hidden": {**one.hidden, **hidden}}
    )
    with pytest.raises(DataError, match=f"found no task of grids.*{said}"):
        (problem_of(bad), outputs_of(bad))


def test_the_outputs_are_hidden_from_the_policy() -> None:
    from convbench import catalog, prompts
    from convbench.schema import ProtocolSpec, TaskSpec

    task = catalog.load_spec(TaskSpec, "tasks", "pocket-grids")
    protocol = catalog.load_spec(ProtocolSpec, "protocols", "self-edit-few-shot")
    example = few_shot_runs.some_tasks(1)[0]
    values = prompts.template_fields(example, task, "standard", 1)
    said = prompts.step_text(task, protocol, protocol.all_steps()[0], "standard", values)
    secret = "SECRET"
    marked = example.model_copy(update={"hidden": {"outputs": secret, "rule": secret}})
    assert said == prompts.step_text(
        task, protocol, protocol.all_steps()[0], "standard",
        prompts.template_fields(marked, task, "standard", 1),
    )  # fmt: skip
    assert secret not in str(prompts.template_fields(marked, task, "standard", 1))


def test_a_torn_or_foreign_cache_is_one_line(tmp_path: Path) -> None:
    from convbench.errors import RunError
    from convbench.judges.few_shot.runner import cache_of

    run = few_shot_runs.edits_run(tmp_path / "run", few_shot_runs.some_tasks(1), {})
    (run.path / "few-shot.jsonl").write_text('{"key": "a", "attempts": "x"}\n')
    with pytest.raises(RunError, match="a record of another shape"):
        cache_of(run)
