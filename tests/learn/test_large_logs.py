"""Logs whose conversations are read where they lie: in order, and few bytes of each."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from convbench import catalog
from convbench.learn import weights
from convbench.learn.log import LARGE, LogFiles, sort_conversations
from convbench.learn.pairs import LazyPairs, best_and_worst, final_replies, logged_turns
from convbench.learn.rewards import JudgeRewards
from convbench.learn.select import Selection, collect_conversations, select
from convbench.learn.train import PreviewSample
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Data, Pairing, Weighting
from convbench.store import Run, byte_offsets, sidecars
from convbench.store.jsonl import Appender
from tests.helpers.large_log import JUDGED, PAIRED, SOME, WEIGHED, log
from tests.helpers.runs import conversation, example, verdict, write_run
from tests.support.memory import held_below


def test_a_log_is_what_its_records_say(tmp_path: Path) -> None:
    """The conversations of split train that ended and were judged, by question and sample, with
    their rewards, questions and weights, whether they are held or read again."""
    run, data = log(tmp_path / "run"), Data(judge="rules")
    scores = {v.conversation_id: v.reward for v in run.verdicts() if v.judge == "rules"}
    talks = [
        talk
        for talk in sorted(run.conversations(), key=lambda talk: (talk.example_id, talk.sample))
        if talk.conversation_id in scores and run.examples[talk.example_id].split == "train"
    ]
    assert len(talks) > 60
    for large in (LARGE, 0):
        found = collect_conversations(run, data, large=large)
        assert found.skipped == {"not in split train": 16, "failed": 1, "not judged": 1}
        assert [
            (item.conversation, item.example, item.reward, item.conversation_id)
            for item in found.logged
        ] == [
            (talk, run.examples[talk.example_id], scores[talk.conversation_id],
             talk.conversation_id) for talk in talks]  # fmt: skip
        tasks = found.by_task()
        assert list(tasks) == list(dict.fromkeys(talk.example_id for talk in talks))
        assert [item.conversation for item in tasks["q31"]] == [
            talk for talk in talks if talk.example_id == "q31"]  # fmt: skip
        assert "q4" not in tasks, "of split test"
        weighed = weights.weigh_swift(found, Weighting())
        by_hand = {
            name: weights.standardized_weights([item.reward for item in some])
            for name, some in tasks.items()
        }
        known = [w for some in by_hand.values() for w in some if w is not None]
        assert [weight for _, weight in weighed.items] == known


def test_conversations_of_a_small_run_alone_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a large one are read again each time."""
    monkeypatch.setattr(byte_offsets, "CACHED_RECORDS", 3)
    run, data = log(tmp_path / "run"), Data(judge="rules")
    small, large = (
        collect_conversations(run, data).logged,
        collect_conversations(run, data, large=0).logged,
    )
    first = [item.conversation for item in small], [item.conversation for item in large]
    assert all(item.conversation is one for item, one in zip(small, first[0], strict=True))
    again = [item.conversation for item in large]
    assert again == first[1]
    assert sum(one is other for one, other in zip(again, first[1], strict=True)) <= 3


def test_pairs_of_a_log_that_is_read_where_it_lies_are_the_same(tmp_path: Path) -> None:
    run, data = log(tmp_path / "run"), Data(judge="rules")
    whole, kept = collect_conversations(run, data), collect_conversations(run, data, large=0)
    direct = catalog.load_spec(ProtocolSpec, "protocols", "direct")
    for made in (logged_turns, lambda logged: final_replies(logged, direct)):
        one, other = made(whole), made(kept)
        assert list(one.items) == list(other.items)
        assert len(one.items) > 20
        assert (one.skipped, one.ties) == (other.skipped, other.ties)


@pytest.mark.exhaustive
def test_pairs_of_a_large_log_take_few_bytes(tmp_path: Path) -> None:
    """Two conversations in files, the couple and what its replies make."""
    run = log(tmp_path / "run")
    row = next(row for row in run.conversation_rows() if row.ended)

    def paired(count: int) -> None:
        files = LogFiles(run, large=0)
        rows = (row._replace(example_id=f"q{n // 2}", sample=n % 2) for n in range(count))
        found = sort_conversations(files.with_rewards(one, one.sample, ()) for one in rows)
        couples, _, ties = best_and_worst(Selection(run, "rules", found), Pairing())
        assert (len(couples), ties.tasks) == (count // 2, count // 2)
        items = LazyPairs(lambda better, worse, *at: (better.reward, *at))  # type: ignore[arg-type,return-value]
        items.positions += ((*couple, 1, 1, 0) for couple in couples)
        assert items[-1] == (1.0, 1, 1, 0)

    held_below(PAIRED, paired, SOME, 2 * SOME)


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
    rewards = {
        row.conversation_id: (n / 7, (n / 3,) * (n % 2))
        for n, row in enumerate(run.conversation_rows())
    }
    talks.sort(key=lambda talk: (talk.example_id, talk.key))
    for large in (LARGE, 0):
        files = LogFiles(run, large)
        found = sort_conversations(
            files.with_rewards(row, *rewards[row.conversation_id])
            for row in run.conversation_rows()
        )
        assert [item.conversation.key for item in found[:3]] == ["q0/1#a", "q0/1#b", "q0/1#c"]
        assert [(item.conversation, item.example, item.reward, item.turns) for item in found] == [
            (talk, run.examples[talk.example_id], *rewards[talk.conversation_id])
            for talk in talks]  # fmt: skip


@pytest.mark.exhaustive
def test_a_large_log_takes_few_bytes_of_each_conversation(tmp_path: Path) -> None:
    """Sorted and weighed."""
    run = log(tmp_path / "run")
    row = next(run.conversation_rows())

    def weighed(count: int) -> None:
        files = LogFiles(run, large=0)
        rows = (
            row._replace(example_id=f"q{n // 2 * 7919 % count}", sample=n % 2) for n in range(count)
        )
        found = sort_conversations(
            files.with_rewards(one, n * 7919 % 100 / 100, ()) for n, one in enumerate(rows)
        )
        items = weights.weigh_swift(Selection(run, "rules", found), Weighting()).items
        assert len(items) == count

    held_below(WEIGHED, weighed, SOME + 500, 2 * SOME + 500)


def test_no_verdict_is_read_for_what_the_index_holds(tmp_path: Path) -> None:
    """Rewards, least scores and the score of another metric."""
    run = log(tmp_path / "run")
    alone, strict, other = (
        JudgeRewards(run, "rules", data)
        for data in (Data(), Data(least={"rules": {"overall": 0.0}}), Data(metric="accuracy"))
    )
    for path in run.path.glob("verdicts*"):
        path.unlink()
    for row in run.conversation_rows():
        found = alone.rewards_of(row)
        assert strict.rewards_of(row) == found
        if isinstance(found, tuple):
            assert found[1] == ()
            score, turns = other.rewards_of(row)
            assert (score, turns) == (pytest.approx(found[0]), ())


def test_rewards_are_those_of_the_verdicts(tmp_path: Path) -> None:
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
        rewards = JudgeRewards(run, "rules", Data(metric=metric, least={"rules": {"overall": 3.0}}))
        rows = {row.conversation_id: row for row in run.conversation_rows()}
        judged = [rows[talk.conversation_id] for talk in talks]
        assert [rewards.rewards_of(row) for row in judged[3:]] == found[3:]
        assert rewards.rewards_of(judged[2]) == "below data.least"


@pytest.mark.exhaustive
def test_verdicts_take_few_bytes_each_whatever_is_asked_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are indexed, which holds the rows of one part at a time."""
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", -1.0)
    monkeypatch.setattr("convbench.store.index.SMALL", 0)
    monkeypatch.setattr("convbench.store.index.WORTH", 1)
    runs = {}
    for count in (SOME // 2, SOME, 2 * SOME):
        talk = conversation(1, conversation_id="c7")
        run = runs[count] = write_run(tmp_path / str(count), conversations=[talk], verdicts=[])
        line = verdict(conversation(1, conversation_id="c-here")).model_dump_json() + "\n"
        with run.verdicts_file.open("w") as file:
            file.writelines(line.replace("c-here", f"c{n}") for n in range(count))
        assert sum(1 for _ in run.verdict_rows()) == count

    def read_rewards(count: int) -> None:
        found = JudgeRewards(runs[count], "rules", Data(metric="accuracy"))
        assert found.rewards_of(next(run.conversation_rows())) == (0.8, ())

    held_below(JUDGED, read_rewards, SOME, 2 * SOME)


def test_a_part_stands_for_the_whole() -> None:
    """Spread evenly, its ends among it; nothing is left out of few, nor called a guess."""
    part = PreviewSample(100_000, limit=1000)
    found = part.pick_items(range(100_000))
    assert (len(found), found[0], found[-1]) == (1000, 0, 99_999)
    steps = {b - a for a, b in itertools.pairwise(found)}
    assert steps == {100, 101}
    assert list(part.describe("pairs", {"pairs": 990})) == [
        "1,000 of 100,000 pairs are counted; the numbers below are extrapolated",
        "pairs: about 99000",
    ]
    few = PreviewSample(7, limit=1000)
    assert few.pick_items("abcdefg") == tuple("abcdefg")
    assert list(few.describe("pairs", {"pairs": 7})) == ["pairs: 7"]


def test_verdicts_are_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the judge, its versions, the rewards and whether its controls say that it is unfit."""
    run, walks = log(tmp_path / "run"), list[Run]()
    walk = Run.verdict_rows
    monkeypatch.setattr(Run, "verdict_rows", lambda own: walks.append(own) or walk(own))
    found = select(run, Data(judge="rules"))
    assert "judge rules, metric reward" in "\n".join(found.describe("reward"))
    assert walks == [run]
    assert found.versions == found.fingerprints == {"f00d"}
