"""`export`: other trainers' formats, weights, and randomised rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import ConvbenchError
from convbench.formats.export import export_pairs
from convbench.learn.export import export_run
from convbench.options.shared import SpecOptions
from convbench.schema import Message, ToolCall
from convbench.store import Run
from tests.helpers.runs import (
    SYSTEM,
    append,
    conversation,
    example,
    failed,
    thoughtful,
    verdict,
    write_run,
)


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged(path: Path, rewards: list[float]) -> Run:
    """One question's conversations per pair of rewards, all in train."""
    talks = [conversation(n // 2, n % 2) for n in range(len(rewards))]
    examples = [example(n, split="train") for n in range((len(rewards) + 1) // 2)]
    scored = [verdict(talk, reward) for talk, reward in zip(talks, rewards, strict=True)]
    return write_run(path, examples=examples, conversations=talks, verdicts=scored)


def test_formats_hold_the_policy_s_messages(tmp_path: Path) -> None:
    """Each as its trainer reads it; one file a split; failures left out."""
    run = write_run(tmp_path / "r", count=5,
                    conversations=[*[conversation(n) for n in range(5)], failed(3, 1)])  # fmt: skip
    done = {
        to: export_run(run, to, tmp_path / to) for to in ("trl", "openai", "sharegpt", "ms-swift")
    }
    for to, found in done.items():
        assert {split: len(rows(path)) for split, path in found.files.items()} == found.rows
        assert (found.rows, found.left_out) == ({"train": 4, "test": 1}, {"failed": 1}), to
    first = {to: rows(found.files["train"])[0] for to, found in done.items()}
    assert first["trl"]["messages"][0] == {"role": "system", "content": SYSTEM}
    assert [m["role"] for m in first["trl"]["messages"]] == [
        "system", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert first["trl"] == first["openai"] == first["ms-swift"]
    assert [m["from"] for m in first["sharegpt"]["conversations"]] == [
        "system", "human", "gpt", "human", "gpt",
    ]  # fmt: skip
    assert "TEACHER-ONLY" not in json.dumps(first)


def test_weights_where_there_is_a_place(tmp_path: Path) -> None:
    """trl: beside the messages; ms-swift: loss_scale on the assistant's; swift by hand."""
    run = judged(tmp_path / "r", [0.0, 1.0])
    high = pytest.approx(0.5**0.5)
    found = rows(export_run(run, "trl", tmp_path / "t", recipe="swift").files["train"])
    assert [row["weight"] for row in found] == [high]
    found = rows(export_run(run, "ms-swift", tmp_path / "m", recipe="swift").files["train"])
    assert [[m.get("loss_scale") for m in row["messages"]] for row in found] == [
        [None, None, high, None, high],
    ]
    found = rows(export_run(run, "trl", tmp_path / "r0", recipe="refit").files["train"])
    assert [row["weight"] for row in found] == [1.0]  # weight 0 teaches nothing


def test_randomised_rounding_is_unbiased(tmp_path: Path) -> None:
    """Whole conversations floor or ceil of s * r times, with mean s * r over seeds."""
    rewards = [0.1, 0.5, 0.9, 0.0]
    run = judged(tmp_path / "r", rewards)
    scale, seeds = 2.5, 300
    totals = [0, 0]
    for seed in range(seeds):
        done = export_run(run, "openai", tmp_path / "o", recipe="refit", scale=scale, seed=seed)
        asked = [row["messages"][1]["content"] for row in rows(done.files["train"])]
        for number, pair in enumerate((rewards[:2], rewards[2:])):
            count = sum(f"case {number}" in question for question in asked)
            assert abs(count - scale * sum(pair)) < 2
            totals[number] += count
    assert totals[0] / seeds == pytest.approx(scale * 0.6, abs=0.12)
    assert totals[1] / seeds == pytest.approx(scale * 0.9, abs=0.12)


def test_rounding_repeats_whole_conversations(tmp_path: Path) -> None:
    """A whole s * r is no chance at all; the same seed gives the same file."""
    run = judged(tmp_path / "r", [1.0, 0.0, 1.0, 0.5])
    done = export_run(run, "sharegpt", tmp_path / "a", recipe="refit", scale=4.0)
    assert (done.rows, done.left_out) == ({"train": 10}, {"unweighted": 1})
    one = export_run(run, "openai", tmp_path / "b", recipe="refit", scale=0.3, seed=3)
    two = export_run(run, "openai", tmp_path / "c", recipe="refit", scale=0.3, seed=3)
    assert one.files["train"].read_bytes() == two.files["train"].read_bytes()


def test_other_splits_are_whole_and_unweighted(tmp_path: Path) -> None:
    """A validation file for the trainer."""
    run = write_run(tmp_path / "r", count=5)
    done = export_run(run, "openai", tmp_path / "o", recipe="refit", scale=1.0)
    assert done.rows["test"] == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"to": "axolotl"}, "expected one of trl, openai"),
    ({"to": "openai", "recipe": "swift"}, "none below 0"),
    ({"to": "openai", "recipe": "swift", "scale": 2.0}, "none below 0"),
    ({"to": "sharegpt", "recipe": "step-dpo"}, "cannot hold pairs.*trl, openai, ms-swift"),
    ({"to": "trl", "recipe": "step-dpo", "scale": 2.0}, "pairs replies, which have no weight"),
    ({"to": "trl", "recipe": "mt-dpo"}, "expected a recipe that weights conversations or pairs"),
    ({"to": "trl", "recipe": "refit", "specs": SpecOptions(sets=("trainer=null",))}, "nothing"),
    ({"to": "trl", "recipe": "sweet"}, "convbench train sweet"),
    ({"to": "trl", "recipe": "swft"}, "did you mean 'swift'"),
    ({"to": "trl", "recipe": "none.yaml"}, "found no such file"),
    ({"to": "openai", "scale": 2.0}, "expected a --recipe"),
    ({"to": "openai", "judge": "rules"}, "expected a --recipe"),
    ({"to": "openai", "specs": SpecOptions(sets=("weighting.clip=1",))}, "expected a --recipe"),
    ({"to": "trl", "recipe": "refit", "judge": "gpt-4o"}, "gpt-4o"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED)
def test_what_cannot_be_is_refused(asked: dict[str, Any], words: str, tmp_path: Path) -> None:
    """One line, nothing written."""
    run = judged(tmp_path / "r", [0.0, 1.0])
    append(run.conversations_file, [conversation(0, 1, "I am not sure.")])
    with pytest.raises(ConvbenchError, match=words):
        export_run(run, out=tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_a_run_without_verdicts_or_conversations(tmp_path: Path) -> None:
    """A recipe needs rewards, a file needs rows."""
    run = write_run(tmp_path / "r", count=1, verdicts=[])
    with pytest.raises(ConvbenchError, match="no verdicts"):
        export_run(run, "trl", tmp_path / "o", recipe="refit")
    empty = write_run(tmp_path / "e", count=1, conversations=[failed(0)])
    with pytest.raises(ConvbenchError, match="no conversation to export"):
        export_run(empty, "trl", tmp_path / "o")


def test_reasoning_in_each_formats_shape(tmp_path: Path) -> None:
    """All of the policy's own, whatever was sent back; OpenAI's API has no place for it."""
    run = thoughtful(tmp_path / "run")
    done = {
        to: export_run(run, to, tmp_path / to) for to in ("trl", "openai", "sharegpt", "ms-swift")
    }
    first = {to: rows(found.files["train"])[0] for to, found in done.items()}
    said = [m for m in first["trl"]["messages"] if m["role"] == "assistant"]
    assert [m["reasoning_content"] for m in said] == ["T1", "T3"]
    assert "reasoning_content" not in json.dumps(first["openai"])
    assert done["openai"].notes == ["openai cannot hold the reasoning of 1 conversations"]
    for shape, key in (("sharegpt", "value"), ("ms-swift", "content")):
        lines = first[shape].get("conversations") or first[shape]["messages"]
        assert lines[2][key] == f"<think>\nT1\n</think>\n\n{said[0]['content']}"
    assert "TEACHER-ONLY" not in json.dumps(first)


def test_export_pairs_after_a_tool_s_result_are_whole_conversations(tmp_path: Path) -> None:
    call = ToolCall(id="c", name="weigh", arguments="{}")
    asked: list[Message] = [
        {"role": "user", "content": "How heavy?"},
        {"role": "assistant", "content": "", "tool_calls": (call,)},
        {"role": "tool", "content": "7", "tool_call_id": "c", "name": "weigh"},
    ]
    good: Message = {"role": "assistant", "content": "7 kg."}
    bad: Message = {"role": "assistant", "content": "8 kg."}
    pairs = [(asked, good, bad, None), (asked[:1], good, bad, None)]
    files = export_pairs("ms-swift", tmp_path, pairs).files
    whole, plain = map(json.loads, files["train"].read_text().splitlines())
    assert whole["rejected_messages"] == [*whole["messages"][:-1], bad]
    assert plain["rejected_response"] == "8 kg."
