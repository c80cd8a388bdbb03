"""Several runs as one log: groups, shares, scales, order and rows without a reward."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from convbench.errors import TrainError, UsageError
from convbench.learn.multi_run import make_aligner, merge_runs, repeat_by_share
from convbench.schema.recipe import Data
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.helpers.large_log import told


def other(folder: Path, name: str, **changed: str) -> Run:
    """The tiny run under another id; `changed` replaces texts of its questions."""
    run = tiny.judged_run(folder / name)
    for file in (run.conversations_file, run.verdicts_file):
        file.write_text(file.read_text().replace('"run-', f'"{name}-'))
    manifest = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(manifest | {"id": name}))
    for old, new in changed.items():
        file = run.path / "examples.jsonl"
        file.write_text(file.read_text().replace(f"question {old}", new))
    return Run.open(run.path)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two runs of the same three questions, of which the second asks q1 in other words."""
    return [other(tmp_path, "first"), other(tmp_path, "second", q1="something else")]


def test_conversations_of_one_question_are_one_group_whichever_run_holds_them(
    runs: list[Run],
) -> None:
    found = merge_runs(runs, Data())
    sizes = {task: len(some) for task, some in found.by_task().items()}
    assert sizes == {"q0": 6, "q1": 3, "q2": 6, "q1#2": 3}
    assert {found.run_of(item).manifest.id for item in found.by_task()["q0"]} == {"first", "second"}
    assert found.by_task()["q1#2"][0].run == runs[1]
    assert [part.record()["conversations"] for part in found.parts] == [9, 9]


def test_a_question_takes_part_as_often_as_its_runs_share() -> None:
    items = [(place, f"q{number}") for place in (0, 1) for number in range(400)]
    found = repeat_by_share(items, (2.0, 0.25), lambda item: item[0], lambda item: item[1])
    assert found.count((0, "q7")) == 2
    assert sum(place == 0 for place, _ in found) == 800
    some = {task for place, task in found if place == 1}
    assert 70 < len(some) < 130
    more = repeat_by_share(items, (2.0, 0.5), lambda item: item[0], lambda item: item[1])
    assert some < {task for place, task in more if place == 1}, "shares are nested"


def test_scales_by_hand() -> None:
    values = [1.0, 3.0, 3.0, 5.0]
    assert [make_aligner(values, "rank")(v) for v in values] == [0, 0.5, 0.5, 1]
    assert [make_aligner(values, "range")(v) for v in values] == [0, 0.5, 0.5, 1]
    assert [make_aligner(values, "standard")(v) for v in values] == pytest.approx(
        [-(2**0.5), 0, 0, 2**0.5]
    )
    assert [make_aligner([4.0, 4.0], way)(4.0) for way in ("rank", "range", "standard")] == [
        0.5,
        0.5,
        0,
    ]


def test_judges_of_other_scales_stand_side_by_side_only_where_aligned(runs: list[Run]) -> None:
    """The second run's judge gives ten times as much and is of another name."""
    file = runs[1].verdicts_file
    verdicts = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [v | {"judge": "k", "reward": 10 * v["reward"]} for v in verdicts]
    file.write_text("".join(json.dumps(v) + "\n" for v in changed))
    with pytest.raises(TrainError, match=r"rewards of 2 judges.*--set data.align="):
        merge_runs(runs, Data())
    for align in ("standard", "range", "rank"):
        found = merge_runs(runs, Data(align=align))
        rewards = [[i.reward for i in found.logged if i.run == run] for run in runs]
        assert rewards[0] == pytest.approx(rewards[1]), align
        assert found.judge == "j + k"
    named = merge_runs(runs, Data(align="rank", judges=("j", "k")))
    assert list(map(told, named.logged)) == list(map(told, found.logged))


def test_a_curriculum_is_an_order_of_questions(runs: list[Run]) -> None:
    def order(**data: Any) -> list[str]:
        return list(merge_runs(runs[:1], Data(**data)).by_task())

    mean = {name: fmean(r) for name, r in zip(("q0", "q1", "q2"), tiny.REWARDS, strict=True)}
    assert order(order="easy") == sorted(mean, key=lambda name: -mean[name])
    assert order(order="hard")[-1] == "q1"
    assert order(order="spread") == ["q0", "q1", "q2"]
    assert order(order="even") == ["q2", "q1", "q0"]


@pytest.mark.parametrize(("data", "said"), [
    ({"mix": (1.0,)}, r"data.mix: found 1 for 2 run\(s\)"),
    ({"judges": ("j", "j", "j")}, r"data.judges: found 3 for 2"),
    ({"rows": 99}, r"found 18 rows"),
])  # fmt: skip
def test_what_does_not_fit_several_runs_is_refused(
    runs: list[Run], data: dict[str, Any], said: str
) -> None:
    with pytest.raises(TrainError, match=said):
        merge_runs(runs, Data(**data))


def test_a_run_twice_or_learners_of_one_run_are_refused(runs: list[Run]) -> None:
    with pytest.raises(UsageError, match="found it twice"):
        merge_runs([runs[0], runs[0]], Data())
    paths = tuple(run.path for run in runs)
    with pytest.raises(TrainError, match="expected one --run"):
        stages.train("sweet", paths, model="local:pocket", dry_run=True)


def test_a_run_that_nobody_judged_is_learnt_by_likelihood(runs: list[Run]) -> None:
    runs[1].verdicts_file.write_text("")
    with pytest.raises(TrainError, match="found no verdicts"):
        merge_runs(runs, Data())
    found = merge_runs(runs, Data(unrewarded="sft"))
    assert (len(found.logged), len(found.unrewarded)) == (9, 9)
    assert {item.run for item in found.unrewarded} == {runs[1]}
    with pytest.raises(TrainError, match="pairs need rewards"):
        stages.train(
            "step-dpo",
            tuple(run.path for run in runs),
            model="local:pocket",
            dry_run=True,
            set=("data.unrewarded=sft",),
        )
