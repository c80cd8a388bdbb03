"""Logs too large for memory: read where they lie, and learnt from as if they were held."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import RunError
from convbench.learn import weights
from convbench.learn.couples import OfCouples
from convbench.learn.given import Given, the_judge
from convbench.learn.log import Log
from convbench.learn.logged import Kept
from convbench.learn.pairs import extremes, final_replies, logged_turns
from convbench.learn.part import Part
from convbench.learn.select import Selection, collect
from convbench.learn.weighed import by_weight
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Data, Pairing, Weighting
from convbench.stats.columns import BLOCK
from convbench.store import Run, index
from convbench.store.jsonl import Appender
from tests.publish.runs import conversation, example, failed, verdict, write_run
from tests.support.memory import held_below


def log(folder: Path) -> Run:
    """Judged by two, written in no order, partly compressed, with every reason to be left out."""
    draw = random.Random(3)
    keys = [(n, sample) for n in range(40) for sample in (0, 1)]
    draw.shuffle(keys)
    noise = "".join(f"{draw.getrandbits(64):x}" for _ in range(4000))
    talks = [
        conversation(n, sample, said=f"{noise}{n}.{sample} The answer is B.") for n, sample in keys
    ]
    talks[0] = failed(*keys[0])
    scores = [verdict(talk, draw.random()) for talk in talks[:-1] if talk.failure is None]
    others = [verdict(talk, 0.5, judge="other") for talk in talks]
    run = write_run(folder, examples=[example(n) for n in range(40)], conversations=talks,
                    verdicts=[*scores, *others])  # fmt: skip
    with Appender(run.conversations_file):  # closing it compresses what is long
        pass
    assert (folder / "conversations-00001.jsonl.zst").exists()
    return Run.open(folder)


def test_a_log_that_is_read_where_it_lies_is_the_same_log(tmp_path: Path) -> None:
    """The same conversations in the same order with the same rewards, questions and weights, and
    none of them in memory."""
    run, data = log(tmp_path / "run"), Data(judge="rules")
    whole, kept = collect(run, data), collect(run, data, large=0)
    assert len(whole.logged) > 60
    assert whole.skipped == kept.skipped == {"not in split train": 16, "failed": 1, "not judged": 1}
    assert all(isinstance(item.talk, Kept) and item.asked is None for item in kept.logged)
    assert not any(isinstance(item.talk, Kept) for item in whole.logged)
    for one, other in zip(whole.logged, kept.logged, strict=True):
        assert one.conversation == other.conversation
        assert one.example == other.example
        assert (one.reward, one.task, one.conversation_id) == (
            other.reward, other.task, other.conversation_id)  # fmt: skip
    tasks, found = whole.tasks(), kept.tasks()
    assert [(name, len(some)) for name, some in tasks.items()] == [
        (name, len(some)) for name, some in found.items()]  # fmt: skip
    assert [item.conversation for item in found["q31"]] == [
        item.conversation for item in tasks["q31"]]  # fmt: skip
    assert "q4" not in found, "of split test"
    first, second = (weights.swift(found, Weighting()) for found in (whole, kept))
    for order in (lambda items: items, by_weight):
        assert [(item.conversation, weight) for item, weight in order(first.items)] == [
            (item.conversation, weight) for item, weight in order(second.items)]  # fmt: skip


def test_pairs_of_a_log_that_is_read_where_it_lies_are_the_same(tmp_path: Path) -> None:
    run, data = log(tmp_path / "run"), Data(judge="rules")
    whole, kept = collect(run, data), collect(run, data, large=0)
    direct = catalog.load(ProtocolSpec, "protocols", "direct")
    for made in (logged_turns, lambda logged: final_replies(logged, direct)):
        one, other = made(whole), made(kept)
        assert list(one.items) == list(other.items)
        assert len(one.items) > 20
        assert (one.skipped, one.ties) == (other.skipped, other.ties)


@pytest.mark.exhaustive
def test_pairs_of_a_log_that_lies_in_files_take_few_bytes(tmp_path: Path) -> None:
    run = log(tmp_path / "run")
    row = next(row for row in run.heads() if row.ended)

    def paired(count: int) -> None:
        kept = Log(run, large=0)
        for n in range(count):
            one = row._replace(example_id=f"q{n // 2}", sample=n % 2)
            kept.add(one, n % 2, ())
        couples, _, ties = extremes(Selection(run, "rules", kept.items()), Pairing())
        assert (len(couples), ties.tasks) == (count // 2, count // 2)
        items = OfCouples(couples, lambda better, worse, *places: (better.reward, *places))
        for n in range(count // 2):
            items.add(n, 1, 1, 0)
        assert items[-1] == (1.0, 1, 1, 0)

    held_below(120, paired, BLOCK, 2 * BLOCK)


def test_branches_of_one_conversation_are_in_the_order_of_their_keys(tmp_path: Path) -> None:
    """With their own rewards, those of their turns too, and the question of their own."""

    def named(key: str) -> str:
        return key.replace("/", "-").replace("#", "-")

    keys = [(n, f"q{n}/1#{branch}") for n in range(12) for branch in "bca"]
    random.Random(1).shuffle(keys)
    talks = [
        conversation(n, 1, key=key, conversation_id=named(key), said=f"{key} {'x' * 999}")
        for n, key in keys
    ]
    run = write_run(tmp_path / "run", examples=[example(n) for n in range(12)], conversations=talks)
    whole, kept = Log(run), Log(run, large=0)
    for number, row in enumerate(run.heads()):
        for one in (whole, kept):
            one.add(row, number / 7, (number / 3,) * (number % 2))
    first, second = whole.items(), kept.items()
    assert [item.conversation.key for item in first[:3]] == ["q0/1#a", "q0/1#b", "q0/1#c"]
    for one, other in zip(first, second, strict=True):
        assert (one.conversation, one.reward, one.turns) == (
            other.conversation, other.reward, other.turns)  # fmt: skip
        assert one.example == other.example


@pytest.mark.exhaustive
def test_a_log_that_lies_in_files_takes_few_bytes_of_each_conversation(tmp_path: Path) -> None:
    """Sorted, weighed, and in the order of weights."""
    run = log(tmp_path / "run")
    row = next(run.heads())

    def weighed(count: int) -> None:
        kept = Log(run, large=0)
        for n in range(count):
            name = f"q{n // 2 * 7919 % count}"
            one = row._replace(example_id=name, sample=n % 2)
            kept.add(one, n * 7919 % 100 / 100, ())
        found = weights.swift(Selection(run, "rules", kept.items()), Weighting())
        assert len(by_weight(found.items)) == count

    held_below(200, weighed, BLOCK + 500, 2 * BLOCK + 500)


def test_a_reward_alone_is_not_read_again(tmp_path: Path) -> None:
    """Of a judge whose rewards are all that is asked for; each is where a least score is."""
    run = log(tmp_path / "run")
    judge = the_judge(run, "rules")
    given, strict = (Given(run, judge, data) for data in (Data(), Data(least={"overall": 0.0})))
    one = next(row for row in run.heads() if row.ended)
    found = given.rewards(one)
    assert found[1] == ()
    assert strict.rewards(one) == found
    for path in run.path.glob("verdicts*"):
        path.unlink()
    assert given.rewards(one) == found
    strict._records[0]._kept.clear()
    with pytest.raises(RunError, match="found no record"):
        strict.rewards(one)


def test_verdicts_are_read_where_they_lie(tmp_path: Path) -> None:
    """Scores, least scores and the rewards of turns, of verdicts partly compressed."""
    run, talks = log(tmp_path / "run"), [conversation(n) for n in range(9)]
    told = [
        verdict(talk, n / 10, justifications={"overall": "x" * 300_000}, details={
            "turns": [{"turn": 1, "scores": {"accuracy": n}, "reward": n / 9}]})
        for n, talk in enumerate(talks)
    ]  # fmt: skip
    run.verdicts_file.write_text("".join(one.model_dump_json() + "\n" for one in told[:8]))
    with Appender(run.verdicts_file) as file:
        file.write(told[8].model_dump_json().encode())
    with Appender(run.verdicts_file):
        pass
    for metric, found in (
        ("reward", [(n / 10, (n / 9,)) for n in range(9)]),
        ("accuracy", [(n / 10, (n / 10,)) for n in range(9)]),
    ):
        given = Given(run, "rules", Data(metric=metric, least={"overall": 3.0}))
        rows = {row.conversation_id: row for row in run.heads()}
        judged = [rows[talk.conversation_id] for talk in talks]
        assert [given.rewards(row) for row in judged[3:]] == found[3:]
        assert given.rewards(judged[2]) == "below data.least"


@pytest.mark.exhaustive
def test_verdicts_take_few_bytes_each_whatever_is_asked_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are indexed, which holds the rows of one part at a time."""
    monkeypatch.setattr(index, "SETTLE_SECONDS", -1.0)
    monkeypatch.setattr("convbench.store.jsonl.WORTH", 1)
    runs = {}
    for count in (BLOCK // 2, BLOCK, 2 * BLOCK):
        talk = conversation(1, conversation_id="c7")
        run = runs[count] = write_run(tmp_path / str(count), conversations=[talk], verdicts=[])
        line = verdict(conversation(1, conversation_id="c-here")).model_dump_json() + "\n"
        with run.verdicts_file.open("w") as file:
            file.writelines(line.replace("c-here", f"c{n}") for n in range(count))
        with Appender(run.verdicts_file):  # closing it seals it
            pass
        assert sum(1 for _ in run.verdict_rows()) == count

    def given(count: int) -> None:
        found = Given(runs[count], "rules", Data(metric="accuracy"))
        assert found.rewards(next(run.heads())) == (0.8, ())

    held_below(60, given, BLOCK, 2 * BLOCK)


def test_a_part_stands_for_the_whole() -> None:
    """Spread evenly, its ends among it; nothing is left out of few, nor called a guess."""
    part = Part(100_000, most=1000)
    found = part.of(range(100_000))
    assert (len(found), found[0], found[-1]) == (1000, 0, 99_999)
    steps = {b - a for a, b in itertools.pairwise(found)}
    assert steps == {100, 101}
    assert list(part.describe("pairs", {"pairs": 990})) == [
        "below, 1,000 pairs stand for all 100,000", "pairs: about 99000",
    ]  # fmt: skip
    few = Part(7, most=1000)
    assert few.of("abcdefg") == tuple("abcdefg")
    assert list(few.describe("pairs", {"pairs": 7})) == ["pairs: 7"]
