"""Logs of several runs, cut, aligned and ordered: of what lies in files the same as of what is
held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from convbench.learn import weights
from convbench.learn.log import InFiles, Log
from convbench.learn.logged import Logged
from convbench.learn.merged import _aligned, _ordered, log_of
from convbench.learn.mixing import completed
from convbench.learn.pairs import extremes
from convbench.learn.picked import Picking
from convbench.learn.select import Selection, nearest
from convbench.learn.weighed import by_weight
from convbench.schema.recipe import Data, Pairing, Weighting
from convbench.stats.columns import BLOCK
from convbench.store.places import size_of
from convbench.store.run import Run
from tests.learn.test_large_logs import log
from tests.support.exhaustive import by_turns
from tests.support.memory import held_below


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two of forty questions each, of which the second is larger, asks two in other words, has the
    rewards of turns, and some conversations without a reward."""
    found = []
    for name in ("first", "second"):
        run = log(tmp_path_factory.mktemp("runs") / name)
        manifest = json.loads((run.path / "run.json").read_text())
        (run.path / "run.json").write_text(json.dumps(manifest | {"id": name}))
        found.append(Run.open(run.path))
    file = found[1].path / "examples.jsonl"
    lines = file.read_text().splitlines()
    lines[7:9] = [line.replace('"question":"', '"question":"Now: ') for line in lines[7:9]]
    file.write_text("\n".join(lines) + "\n")
    verdicts = [json.loads(line) for line in found[1].verdicts_file.read_text().splitlines()]
    for number, one in enumerate(verdicts):
        of: list[dict[str, Any]] = [
            {"turn": t, "scores": {}, "reward": number / (t + 7)} for t in (1, 2)
        ]
        one["details"] = {"turns": of[: 1 + number % 2]}
    found[1].verdicts_file.write_text("".join(json.dumps(v) + "\n" for v in verdicts[3:]))
    with found[1].conversations_file.open("ab") as grown:
        grown.write(next(found[1].told()).line.rstrip() + b"\n")  # once more
    return [Run.open(run.path) for run in found]


def told(item: Logged) -> tuple[Any, ...]:
    """What a learner sees of a conversation."""
    run = item.run.path if item.run else None
    return (
        item.conversation, item.example, item.reward, item.turns, item.task, item.group, run,
    )  # fmt: skip


SETTINGS: list[dict[str, Any]] = [
    {}, {"rows": 40}, {"rows": 30, "unit": "turn"}, {"align": "standard"}, {"align": "rank"},
    {"order": "easy"}, {"order": "even"}, {"unrewarded": "sft"},
    {"rows": 50, "align": "range", "order": "spread"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "those"), by_turns(SETTINGS, ["one", "both", "one of them large"]), ids=str
)
def test_a_log_in_files_is_the_one_that_is_held(
    runs: list[Run], settings: dict[str, Any], those: str
) -> None:
    """The same conversations, names, rewards and order, questions, weights and pairs."""
    of, large = runs, 0
    if those == "one":
        of = runs[1:]
    elif those == "one of them large":
        sizes = sorted(sum(map(size_of, run.files("conversations.jsonl"))) for run in runs)
        assert sizes[0] < sizes[1]
        large = sizes[0]
    data = Data(judge="rules", **settings)
    held, kept = log_of(of, data, large=1 << 40), log_of(of, data, large)
    assert isinstance(kept.logged, InFiles)
    assert not isinstance(held.logged, InFiles)
    assert len(held.logged) > 10
    for one, other in ((held.logged, kept.logged), (held.unrewarded, kept.unrewarded)):
        assert list(map(told, one)) == list(map(told, other))
    assert [item.at for item in kept.logged] == list(range(len(kept.logged)))
    assert list(held.describe("reward")) == list(kept.describe("reward"))
    assert [part.record() for part in held.parts] == [part.record() for part in kept.parts]
    assert [(name, list(map(told, some))) for name, some in held.tasks().items()] == [
        (name, list(map(told, some))) for name, some in kept.tasks().items()]  # fmt: skip
    first, second = (completed(weights.swift(found, Weighting()), data, False)
                     for found in (held, kept))  # fmt: skip
    assert isinstance(first, weights.Weighted)
    assert isinstance(second, weights.Weighted)
    for order in (lambda items: items, by_weight):
        assert [(told(item), weight) for item, weight in order(first.items)] == [
            (told(item), weight) for item, weight in order(second.items)]  # fmt: skip
    pairs, others = (extremes(found, Pairing())[0] for found in (held, kept))
    assert len(pairs) > 2
    assert [tuple(map(told, two)) for two in pairs] == [tuple(map(told, two)) for two in others]


@pytest.mark.exhaustive
def test_conversations_of_logs_in_files_take_few_bytes_each(runs: list[Run]) -> None:
    """On another scale, in another order, and fewer of them."""
    run = runs[0]
    row = next(run.heads())

    def picked(count: int) -> None:
        kept = Log(run, large=0)
        for n in range(count):
            one = row._replace(example_id=f"q{n // 2}", sample=n % 2)
            kept.add(one, n * 7919 % 100 / 100, ())
        found = Selection(run, "rules", kept.items())
        scaled = Selection(run, "rules", _aligned(found, "range"))
        ordered = _ordered(scaled, "hard")
        assert len(nearest(ordered, count // 2, "conversation")) == count // 2

    held_below(300, picked, BLOCK, 2 * BLOCK)


def test_nothing_picked_is_nothing(runs: list[Run]) -> None:
    logged = log_of(runs, Data(judge="rules"), 0).logged
    assert len(Picking(logged).items()) == 0
    assert not Picking(()).items()
