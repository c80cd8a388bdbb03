"""Logs of several runs, cut, aligned and ordered, whether their conversations are held or read
again."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import pytest

from convbench.learn import weights
from convbench.learn.log import LogFiles, sort_conversations
from convbench.learn.multi_run import _align_rewards, _order_questions, apply_mix, merge_runs
from convbench.learn.pairs import best_and_worst
from convbench.learn.select import Selection, collect_conversations, limit_rows
from convbench.schema.recipe import Data, Pairing, Weighting
from convbench.store.byte_offsets import size_of
from convbench.store.run import Run
from tests.helpers.large_log import PICKED, SOME, log, told
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
        grown.write(next(found[1].iter_stored()).line.rstrip() + b"\n")  # once more
    return [Run.open(run.path) for run in found]


SETTINGS: list[dict[str, Any]] = [
    {}, {"rows": 40}, {"rows": 30, "unit": "turn"}, {"align": "standard"}, {"align": "rank"},
    {"order": "easy"}, {"order": "even"}, {"unrewarded": "sft"},
    {"rows": 50, "align": "range", "order": "spread"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "those"), by_turns(SETTINGS, ["one", "both", "one of them large"]), ids=str
)
def test_a_log_that_is_read_again_is_the_one_that_is_held(
    runs: list[Run], settings: dict[str, Any], those: str
) -> None:
    """The same conversations, names, rewards and order, questions, weights and pairs."""
    of, large = runs, 0
    if those == "one":
        of = runs[1:]
    elif those == "one of them large":
        sizes = sorted(sum(map(size_of, [run.path / "conversations.jsonl"])) for run in runs)
        assert sizes[0] < sizes[1]
        large = sizes[0]
    data = Data(judge="rules", **settings)
    held, again = merge_runs(of, data, large=1 << 40), merge_runs(of, data, large)
    assert len(held.logged) > 10
    for one, other in ((held.logged, again.logged), (held.unrewarded, again.unrewarded)):
        assert list(map(told, one)) == list(map(told, other))
    assert list(held.describe("reward")) == list(again.describe("reward"))
    assert [part.record() for part in held.parts] == [part.record() for part in again.parts]
    assert [(name, list(map(told, some))) for name, some in held.by_task().items()] == [
        (name, list(map(told, some))) for name, some in again.by_task().items()]  # fmt: skip
    first, second = (apply_mix(weights.weigh_swift(found, Weighting()), data, False)
                     for found in (held, again))  # fmt: skip
    assert isinstance(first, weights.Weighted)
    assert isinstance(second, weights.Weighted)
    assert [(told(item), weight) for item, weight in first.items] == [
        (told(item), weight) for item, weight in second.items]  # fmt: skip
    pairs, others = (best_and_worst(found, Pairing())[0] for found in (held, again))
    assert len(pairs) > 2
    assert [tuple(map(told, two)) for two in pairs] == [tuple(map(told, two)) for two in others]


def test_several_runs_are_their_conversations_with_names_and_order_of_their_own(
    runs: list[Run],
) -> None:
    """Of both runs in their order; a question in other words is another one; aligned within a
    judge's scale, hard questions first."""
    data = Data(judge="rules", flagged="keep")
    parts = [collect_conversations(run, data) for run in runs]
    joined = merge_runs(runs, data.model_copy(update={"align": "range", "order": "hard"}))
    by_id = {
        (run.path, item.conversation_id): item
        for run, part in zip(runs, parts, strict=True)
        for item in part.logged
    }
    assert len(joined.logged) == len(by_id)
    rewards = [item.reward for item in by_id.values()]
    low, high = min(rewards), max(rewards)
    for item in joined.logged:
        assert item.run is not None
        own = by_id[item.run.path, item.conversation_id]
        assert item.reward == (own.reward - low) / (high - low)
        assert item.conversation == own.conversation
        reworded = item.run is not runs[0] and item.example.question.startswith("Now: ")
        assert item.task == item.example_id + "#2" * reworded
    means = [fmean(item.reward for item in some) for some in joined.by_task().values()]
    assert means == sorted(means)
    assert len(joined.by_task()) > 32, "some are asked in other words"


@pytest.mark.exhaustive
def test_conversations_of_logs_in_files_take_few_bytes_each(runs: list[Run]) -> None:
    """On another scale, in another order, and fewer of them."""
    run = runs[0]
    row = next(run.conversation_rows())

    def picked(count: int) -> None:
        files = LogFiles(run, large=0)
        rows = (row._replace(example_id=f"q{n // 2}", sample=n % 2) for n in range(count))
        found = sort_conversations(
            files.with_rewards(one, n * 7919 % 100 / 100, ()) for n, one in enumerate(rows)
        )
        scaled = Selection(run, "rules", _align_rewards(Selection(run, "rules", found), "range"))
        ordered = _order_questions(scaled, "hard")
        assert len(limit_rows(ordered, count // 2, "conversation")) == count // 2

    held_below(PICKED, picked, SOME, 2 * SOME)
