"""Logs too large for memory: read where they lie, and learnt from as if they were held."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from convbench.learn import weights
from convbench.learn.given import Given, the_judge
from convbench.learn.logged import Kept
from convbench.learn.part import Part
from convbench.learn.select import collect
from convbench.schema.recipe import Data, Weighting
from convbench.store import Run
from convbench.store.jsonl import Appender
from tests.publish.runs import conversation, example, failed, verdict, write_run


def log(folder: Path) -> Run:
    """Judged by two, written in no order, partly compressed, with every reason to be left out."""
    draw = random.Random(3)
    keys = [(n, sample) for n in range(40) for sample in (0, 1)]
    draw.shuffle(keys)
    noise = "".join(f"{draw.getrandbits(64):x}" for _ in range(4000))
    talks = [conversation(n, sample, said=f"{noise}{n} The answer is B.") for n, sample in keys]
    talks[0] = failed(*keys[0])
    scores = [verdict(talk, draw.random()) for talk in talks[:-1] if talk.failure is None]
    others = [verdict(talk, 0.5, judge="other") for talk in talks]
    run = write_run(folder, examples=[example(n) for n in range(40)], conversations=talks,
                    verdicts=[*scores, *others])  # fmt: skip
    Appender(run.conversations_file).close()  # which compresses what is long
    assert (folder / "conversations-00001.jsonl.zst").exists()
    return Run.open(folder)


def test_a_log_that_is_read_where_it_lies_is_the_same_log(tmp_path: Path) -> None:
    """The same conversations in the same order with the same rewards, questions and weights, and
    none of them in memory."""
    run, data = log(tmp_path / "run"), Data(judge="rules")
    held, kept = collect(run, data), collect(run, data, large=0)
    assert len(held.logged) > 60
    assert held.skipped == kept.skipped == {"not in split train": 16, "failed": 1, "not judged": 1}
    assert all(isinstance(item.talk, Kept) and item.asked is None for item in kept.logged)
    assert not any(isinstance(item.talk, Kept) for item in held.logged)
    for one, other in zip(held.logged, kept.logged, strict=True):
        assert one.conversation == other.conversation
        assert one.example == other.example
        assert (one.reward, one.task, one.conversation_id) == (
            other.reward, other.task, other.conversation_id)  # fmt: skip
    first, second = (weights.swift(found, Weighting()) for found in (held, kept))
    assert [weight for _, weight in first.items] == [weight for _, weight in second.items]


def test_a_reward_alone_is_kept_in_few_bytes(tmp_path: Path) -> None:
    """No verdict of a judge whose rewards are all that is asked for is held; each is where a least
    score is."""
    run = log(tmp_path / "run")
    judge = the_judge(run, "rules")
    assert Given(run, judge, Data())._whole == {}
    strict = Given(run, judge, Data(least={"overall": 1.0}))
    assert len(strict._whole) > 60
    one = next(talk for talk in run.conversations() if talk.failure is None)
    assert Given(run, judge, Data()).rewards(one)[1] == ()


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
