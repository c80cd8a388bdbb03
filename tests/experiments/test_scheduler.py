"""Steps side by side: what claims one device never meets, what does not does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.engine.jobs import stop_on_interrupt
from convbench.experiments.cells import PlannedStep, plan_steps
from convbench.experiments.experiment import load_specs
from convbench.experiments.scheduler import ScheduledTask, is_serial, run_tasks, tasks_of
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions
from convbench.schema.experiment import ExperimentSpec
from tests.helpers.cards import simulate

WAIT_S = 120.0
"""A wait that takes longer has hung."""


def tasks(*claims: Mapping[str, float]) -> list[ScheduledTask]:
    return [ScheduledTask(str(number), placements=[one]) for number, one in enumerate(claims)]


class Watch:
    """Notes who holds what; the tasks of `together` wait until all of them run."""

    def __init__(self, made: Sequence[ScheduledTask], together: Sequence[int] = ()) -> None:
        self.tasks, self.together = made, together
        self.met = threading.Barrier(max(1, len(together)))
        self.held: dict[str, float] = {}
        self.order: list[tuple[int, int]] = []
        self.lock = threading.Lock()

    def __call__(self, number: int, place: int) -> None:
        claims = self.tasks[number].placements[place]
        with self.lock:
            self.order.append((number, place))
            for name, share in claims.items():
                self.held[name] = self.held.get(name, 0.0) + share
                assert self.held[name] <= 1 + 1e-6, f"{name} is taken twice"
        if number in self.together:
            self.met.wait(WAIT_S)
        with self.lock:
            for name, share in claims.items():
                self.held[name] -= share


def test_what_claims_other_things_runs_at_once_and_what_claims_one_never() -> None:
    made = tasks({"a": 1}, {"b": 1}, {"a": 1}, {"a": 0.5}, {"a": 0.5}, {"b": 0.7}, {"b": 0.7})
    first = Watch(made, together=(0, 1))
    run_tasks(made, first)
    assert sorted(number for number, _ in first.order) == list(range(7))
    run_tasks(made, Watch(made, together=(3, 4)))  # halves of one card
    assert not is_serial(made)
    one = tasks({"a": 1}, {"a": 1, "b": 1})
    assert is_serial(one)
    main = threading.get_ident()
    seen: list[int] = []
    run_tasks(one, lambda number, place: seen.append(threading.get_ident()))
    assert set(seen) == {main}, "nothing to gain from a thread"


def test_a_task_takes_the_place_that_is_free_and_comes_after_its_own() -> None:
    cards = [{"a": 1.0}, {"b": 1.0}]
    made = [
        ScheduledTask("build 1", placements=cards),
        ScheduledTask("build 2", placements=cards),
        ScheduledTask("train 1", ("build 1", "not asked for"), cards),
        ScheduledTask("both", ("build 1", "build 2"), [{"a": 1.0, "b": 1.0}]),
    ]
    watch = Watch(made, together=(0, 1))
    run_tasks(made, watch)
    places = dict(watch.order)
    assert {places[0], places[1]} == {0, 1}
    begun = [number for number, _ in watch.order]
    assert begun.index(2) > begun.index(0)
    assert begun.index(3) > max(begun.index(0), begun.index(1))


@pytest.mark.parametrize("how", ["error", "ctrl-c", "sigterm"])
def test_an_end_ends_all_that_runs_and_begins_nothing(how: str) -> None:
    made = [*tasks({"a": 1}, {"b": 1}), ScheduledTask("2", ("0",), [{"c": 1.0}])]
    up, stopped = threading.Barrier(2), threading.Event()
    done: list[int] = []

    def do(number: int, place: int) -> None:
        if number == 0:
            with stop_on_interrupt(stopped.set):
                up.wait(WAIT_S)
                assert stopped.wait(WAIT_S)
            with stop_on_interrupt(stopped.set):
                done.append(number)
        elif number == 1:
            up.wait(WAIT_S)
            if how == "error":
                raise ArithmeticError("broke")
            number = signal.SIGINT if how == "ctrl-c" else signal.SIGTERM
            os.kill(os.getpid(), number)
        else:
            done.append(number)

    with pytest.raises(ArithmeticError if how == "error" else KeyboardInterrupt):
        run_tasks(made, do)
    assert not done
    with stop_on_interrupt(stopped.clear):
        pass  # the next command begins as ever


TWO = {
    "extends": "pocket", "title": "two cells", "seeds": [0], "modes": ["thinking", "standard"],
    "learners": ["base", "refit"], "count": 6, "samples": 2, "temperatures": [0.7],
    "recipe_sets": {"all": {"fit.max_steps": 1, "fit.save": "end"}},
}  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tasks of an experiment of two cells on some simulated devices."""
    monkeypatch.chdir(tmp_path)

    def ask(
        simulated: int, *devices: str, **more: Any
    ) -> tuple[list[PlannedStep], list[ScheduledTask], Any]:
        Path("two.yaml").write_text(yaml.safe_dump({**TWO, **more}))
        simulate(monkeypatch, simulated)
        options = ExperimentOptions("two.yaml", calls=CallOptions(devices=devices))
        specs: list[ExperimentSpec] = load_specs(options)
        parts = plan_steps(specs[0])
        made, ways = tasks_of(parts, options)
        return parts, made, [[way.calls.devices for way in own] for own in ways]

    return ask


def test_cells_share_two_devices_and_take_turns_on_one(asked: Any) -> None:
    parts, made, ways = asked(2)
    first = [n for n, part in enumerate(parts) if part.step.kind == "build"]
    assert len(first) == 2
    assert made[first[0]].placements == [{"device 0": 1.0}, {"device 1": 1.0}]
    assert ways[first[0]] == [("policy=[0]",), ("policy=[1]",)]
    run_tasks(made, Watch(made, together=first))
    trains = [n for n, part in enumerate(parts) if part.step.kind == "train"]
    assert ways[trains[0]] == [("trainer=[0]",), ("trainer=[1]",)]
    run_tasks(made, Watch(made, together=trains))
    assert [task.after for task in made[:4]] == [
        (), (made[0].name,), (made[1].name,), (made[2].name,)
    ], "in order within a cell"  # fmt: skip

    parts, made, _ = asked(1)
    assert made[first[0]].placements == [{"device 0": 1.0}]
    run_tasks(made, Watch(made))
    parts, made, _ = asked(0)
    assert is_serial(made), "all on one CPU: as ever"


def test_a_step_gets_as_many_devices_as_it_uses(asked: Any) -> None:
    """Eight cards, two cells: a build by vLLM takes four, a copy on each, and a training of two
    processes two."""
    sets = {"all": {**TWO["recipe_sets"]["all"], "launch": "zero2"}}
    parts, made, ways = asked(8, model="vllm:pocket", recipe_sets=sets)
    by_kind: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        by_kind.setdefault(part.step.kind, []).append(number)
    builds, trains = by_kind["build"], by_kind["train"]
    halves = [range(4), range(4, 8)]
    assert made[builds[0]].placements == [{f"device {n}": 1.0 for n in half} for half in halves]
    assert ways[builds[0]][1] == ("policy=[4, 5, 6, 7]",)
    assert [way[0] for way in ways[trains[0]]] == [
        "trainer=[0, 1]", "trainer=[2, 3]", "trainer=[4, 5]", "trainer=[6, 7]",
    ]  # fmt: skip
    assert ways[by_kind["eval"][0]][0] == ("policy=[0, 1, 2, 3]",)
    run_tasks(made, Watch(made, together=builds))
    run_tasks(made, Watch(made, together=trains))

    _, made, ways = asked(8, "policy=[0,1]", "trainer=[4,5,6,7]", model="vllm:pocket",
                          recipe_sets=sets)  # fmt: skip
    assert made[builds[0]].placements == [{"device 0": 1.0, "device 1": 1.0}], "spread over both"
    assert [way[-1] for way in ways[trains[0]]] == ["trainer=[4, 5]", "trainer=[6, 7]"]
    _, made, ways = asked(8, model="vllm:pocket", recipe_sets=sets, modes=["thinking"])
    assert ways[0] == [("policy=[0, 1, 2, 3, 4, 5, 6, 7]",)], "one cell has all"
    _, made, ways = asked(8, model="local:pocket", modes=["thinking"])
    assert ways[0][7] == ("policy=[7]",), "the local engine is on one"
    _, made, ways = asked(1, model="vllm:pocket", recipe_sets=sets)
    assert ways[trains[0]] == [("trainer=[0]",)], "one process where there is one card"


def test_a_teacher_is_where_the_policy_is_or_where_the_user_says(asked: Any) -> None:
    more = {"tasks": ["pocket-clarify"], "protocols": ["clarifying"], "modes": ["thinking"],
            "model": "vllm:pocket", "teacher": "vllm:org/other"}  # fmt: skip
    shares = ("share.policy=0.4", "share.teacher=0.5")
    _, made, ways = asked(4, *shares, **more, seeds=[0, 1])
    assert ways[0] == [(*shares, "policy=[0, 1]"), (*shares, "policy=[2, 3]")]
    assert made[0].placements[1] == {"device 2": 0.9, "device 3": 0.9}
    apart = ("policy=[0, 1]", "teacher=[2, 3]")
    _, made, ways = asked(4, *apart, **more)
    assert ways[0] == [apart]
    assert made[0].placements == [{f"device {n}": 1.0 for n in range(4)}]
    _, made, ways = asked(4, **{**more, "teacher": "vllm:pocket"})
    assert ways[0] == [("policy=[0, 1, 2, 3]",)], "one server answers for both"


def test_a_judge_and_a_training_on_one_card_never_meet_and_calls_overlap(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    parts, made, _ = asked(2, "policy=0", "judge=1", "trainer=1", judges=["local:pocket"])
    kinds = {part.step.kind: task for part, task in zip(parts, made, strict=True)}
    assert kinds["judge"].placements == kinds["train"].placements == [{"device 1": 1.0}]
    assert kinds["eval"].placements == [{"device 0": 1.0, "device 1": 1.0}]
    run_tasks(made, Watch(made))

    parts, made, _ = asked(1, model="openai/gpt-4o-mini", judges=["openai/gpt-4o-mini"])
    kinds = {part.step.kind: task for part, task in zip(parts, made, strict=True)}
    assert kinds["judge"].placements == [{"calls": 0.25}]
    judge = next(n for n, p in enumerate(parts) if p.step.kind == "judge")
    train = max(n for n, p in enumerate(parts) if p.step.kind == "train")
    assert parts[judge].step.cell != parts[train].step.cell
    alone = [made[judge], made[train]]
    run_tasks(
        [ScheduledTask(task.name, placements=task.placements) for task in alone],
        Watch(alone, together=(0, 1)),
    )
