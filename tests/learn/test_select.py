"""Which conversations train: split, policy, judge, metric, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn.select import select
from convbench.schema import Failure
from convbench.schema.recipe import Data
from convbench.store.run import Run
from tests.helpers import tiny


def test_only_judged_train_conversations_of_the_own_policy_enter(tmp_path: Path) -> None:
    good = [tiny.conversation("q0", i, ["a", "b"]) for i in range(2)]
    failed = tiny.conversation("q0", 2, ["a"], failure=Failure(kind="E", message="m"), stop=None)
    unjudged = tiny.conversation("q0", 3, ["a", "b"])
    unread = tiny.conversation("q0", 4, ["a", "b"])
    other = tiny.conversation("q0", 5, ["OTHER", "OTHER"], specs="s2")
    held = tiny.conversation("t0", 0, ["TEST", "TEST"])
    valid = tiny.conversation("v0", 0, ["VALID", "VALID"])
    judged = [
        (good[0], [tiny.verdict(good[0], 0.1)]),
        (good[1], [tiny.verdict(good[1], 0.9)]),
        (failed, []),
        (unjudged, []),
        (unread, [tiny.verdict(unread, None)]),
        (other, [tiny.verdict(other, 1.0)]),
        (held, [tiny.verdict(held, 1.0)]),
        (valid, [tiny.verdict(valid, 1.0)]),
    ]
    examples = [tiny.example("q0"), tiny.example("t0", "test"), tiny.example("v0", "validation")]
    selection = select([tiny.make_run(tmp_path / "run", judged, examples)], Data())
    assert [item.conversation for item in selection.logged] == good
    assert [item.reward for item in selection.logged] == [0.1, 0.9]
    assert selection.left_out == {
        "failed": 1,
        "not judged": 1,
        "judge failed": 1,
        "of another policy": 1,
        "not in split train": 2,
    }


def test_judging_again_counts_the_newest_verdict(tmp_path: Path) -> None:
    both = [tiny.conversation("q0", i, ["a", "b"]) for i in range(2)]
    judged = [
        (both[0], [tiny.verdict(both[0], 0.2), tiny.verdict(both[0], 0.6)]),
        (both[1], [tiny.verdict(both[1], 0.4)]),
    ]
    run = tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")])
    assert [item.reward for item in select([run], Data()).logged] == [0.6, 0.4]


def test_judges_are_named_where_there_are_several(tmp_path: Path) -> None:
    both = [tiny.conversation("q0", i, ["a", "b"]) for i in range(2)]
    judged = [
        (c, [tiny.verdict(c, r, "first"), tiny.verdict(c, 1 - r, "second")])
        for c, r in zip(both, (0.1, 0.7), strict=True)
    ]
    run = tiny.make_run(tmp_path / "run", judged, [tiny.example("q0")])
    with pytest.raises(TrainError, match=r"2 judges \(first, second\).*--judge"):
        select([run], Data())
    with pytest.raises(TrainError, match=r"'third'.*first, second"):
        select([run], Data(judge="third"))
    chosen = select([run], Data(judge="second"))
    assert [item.reward for item in chosen.logged] == pytest.approx([0.9, 0.3])


def test_a_metric_by_name(tmp_path: Path) -> None:
    run = tiny.judged_run(tmp_path / "run")
    overall = select([run], Data(metric="overall"))
    assert overall.logged[2].reward == 10.0  # no judge spec in this run: the score as it is
    with pytest.raises(TrainError, match=r"no score 'style'.*accuracy, overall"):
        select([run], Data(metric="style"))
    with pytest.raises(TrainError, match=r"all 9 rewards .* are 5"):
        select([run], Data(metric="accuracy"))


def test_what_is_refused(tmp_path: Path) -> None:
    both = [tiny.conversation("q0", i, ["a", "b"]) for i in range(2)]
    bare = tiny.make_run(tmp_path / "bare", [(c, []) for c in both], [tiny.example("q0")])
    with pytest.raises(TrainError, match=r"no verdicts.*convbench judge"):
        select([bare], Data())
    mixed = [(c, [tiny.verdict(c, 0.1 * i, version=f"v{i}")]) for i, c in enumerate(both)]
    run = tiny.make_run(tmp_path / "mixed", mixed, [tiny.example("q0")])
    with pytest.raises(TrainError, match=r"2 versions.*judge all again"):
        select([run], Data())
    same = [(c, [tiny.verdict(c, 0.5)]) for c in both]
    run = tiny.make_run(tmp_path / "same", same, [tiny.example("q0")])
    with pytest.raises(TrainError, match=r"all 2 rewards"):
        select([run], Data())
    test_only = tiny.make_run(tmp_path / "test", same, [tiny.example("q0", "test")])
    with pytest.raises(TrainError, match=r"no conversation is left.*2 not in split train"):
        select([test_only], Data())


def test_refusals_come_before_torch(tmp_path: Path) -> None:
    """Unjudged run, missing model and missing chat template are told without loading torch."""
    conversations = [tiny.conversation("q0", i, ["a", "b"]) for i in range(2)]
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    chat = tmp_path / "chat"
    chat.mkdir()
    (chat / "config.json").write_text("{}")
    (chat / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    for name, where in (("gone", tmp_path / "nowhere"), ("bare", model), ("unjudged", chat)):
        tiny.make_run(
            tmp_path / name, [(c, []) for c in conversations], [tiny.example("q0")],
            model=f"local:{where}",
        )  # fmt: skip
    code = f"""
import sys
from pathlib import Path
from convbench.learn.train import train
from convbench.store.run import Run
from convbench.errors import TrainError
for name, words in (("gone", "no config.json"), ("bare", "no chat template"),
                    ("unjudged", "no verdicts")):
    try:
        train("swift", [Run.open(Path({str(tmp_path)!r}) / name)])
    except TrainError as error:
        assert words in str(error), error
    else:
        raise AssertionError(name)
heavy = {{"torch", "transformers", "trl", "accelerate"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_smaller_datasets_are_whole_tasks_and_nested(tmp_path: Path) -> None:
    judged = []
    for task in range(6):
        for sample in range(3):
            said = tiny.conversation(f"q{task}", sample, ["a", "b"])
            judged.append((said, [tiny.verdict(said, sample / 4)]))
    examples = [tiny.example(f"q{task}") for task in range(6)]
    run = tiny.make_run(tmp_path / "run", judged, examples)

    def tasks(rows: int | None) -> set[str]:
        found = select([run], Data(rows=rows, unit="turn")).by_task()
        assert all(len(items) == 3 for items in found.values()), "a task was cut"
        return set(found)

    assert [len(tasks(rows)) for rows in (1, 13, 19, 36, None)] == [1, 2, 3, 6, 6]
    assert tasks(6) < tasks(13) < tasks(19)
    with pytest.raises(TrainError, match=r"found 36 rows .* expected at least 37"):
        tasks(37)


def test_what_is_learnt_does_not_hang_on_which_conversation_ended_first(tmp_path: Path) -> None:
    said = [tiny.conversation(f"q{q}", i, ["a", "b"]) for q in range(3) for i in (10, 2)]
    judged = [(c, [tiny.verdict(c, n / 10)]) for n, c in enumerate(said)]
    examples = [tiny.example(f"q{q}") for q in range(3)]
    orders = (judged, judged[::-1], judged[3:] + judged[:3])
    found = [
        select([tiny.make_run(tmp_path / f"run{n}", order, examples)], Data()).logged
        for n, order in enumerate(orders)
    ]
    first, *others = [[(i.conversation, i.example, i.reward) for i in some] for some in found]
    assert others == [first, first]
    assert [(i.task, i.conversation.sample) for i in found[0][:3]] == [
        ("q0", 2), ("q0", 10), ("q1", 2),
    ]  # fmt: skip


FLAGS: dict[int, tuple[str, ...]] = {
    1: ("teacher:leak",),
    3: ("student:words", "student:no-question", "teacher:repeats"),
    4: ("teacher:leak", "teacher:role"),
}
"""What the checks found in which sample; lapses of form do not count."""


@pytest.fixture
def flagged(tmp_path: Path) -> Run:
    """Two questions with six samples, the later the better."""
    judged = [
        (talk, [tiny.verdict(talk, sample / 10)])
        for name in ("q0", "q1")
        for sample in range(6)
        for talk in [tiny.conversation(name, sample, ["a", "b"], flags=FLAGS.get(sample, ()))]
    ]
    return tiny.make_run(tmp_path / "run", judged, [tiny.example("q0"), tiny.example("q1")])


def test_flagged_conversations_are_dropped_and_counted_or_kept(flagged: Run) -> None:
    found = select([flagged], Data())
    assert [item.conversation.sample for item in found.logged] == [0, 2, 3, 5] * 2
    assert found.left_out == {"flagged": 4}
    assert found.flagged == 4
    assert found.findings == {"teacher:leak": 4, "teacher:role": 2}
    assert any("4 conversations dropped" in line for line in found.notes(Data()))
    kept = select([flagged], Data(flagged="keep"))
    assert (len(kept.logged), kept.left_out, kept.flagged) == (12, {}, 4)


@pytest.mark.parametrize(("judge", "left"), [("*", 6), ("j", 6), ("another", 12)])
def test_scores_below_data_least_do_not_train(judge: str, left: int, flagged: Run) -> None:
    """By the judge's name without its model, or of every judge."""
    data = Data(flagged="keep", least={judge: {"overall": 3}})
    found = select([flagged], data)
    assert len(found.logged) == left
    assert found.left_out == ({"below data.least": 6} if left == 6 else {})
