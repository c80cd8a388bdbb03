"""A protocol of one's own: rule speakers, images, hidden fields, an early stop, private thought.

Everything is in one folder and one plugin file, as a user would have it, and run as they would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.rollout.tool_turn import sampling_with_tools
from convbench.schema import Sampling
from convbench.schema.protocol import Speaker
from tests.helpers.cli import Done, convbench, records

PLUGIN = '''
import asyncio
from convbench.schema import ImagePart, TextPart, text_of

def rows(*, seed, count):
    for n in range(count):
        yield {"id": f"d{n}", "ask": f"Draw shape {n}", "wish": f"WISH{n}", "topic": n // 2}

def only_even(rows, *, seed):
    for row in rows:
        yield row if row["topic"] % 2 == 0 else {"reject": "odd topic"}

def artist(messages, example):
    """The policy: thinks in private, asks twice, then is done."""
    assert "wish" not in example, "the policy must not see this"
    turns = sum(m["role"] == "assistant" for m in messages)
    if "ADVICE" not in text_of(messages[0]["content"]):
        raise ValueError("no system prompt")
    said = "DONE: a circle" if turns == 2 else f"Is it round? ({turns})"
    return f"secret thought {turns} SAY: {said}"

async def client(messages, example):
    """Sees the hidden wish; answers with a picture and a caption."""
    await asyncio.sleep(0)
    heard = [text_of(m["content"]) for m in messages]
    assert not [text for text in heard if "secret" in text], heard
    return [TextPart(text="x" * 30), ImagePart(file="sketch.png")]

def broken(messages, example):
    return 1 / 0

def wordless(messages, example):
    return {"not": "content"}

def check(conversation, example, protocol):
    return [f"client:{example.hidden['wish'].lower()}"]
'''
TASK = """
title: drawings
source: {rows: "studio:rows", args: {count: 8}}
rows:
  maker: studio:only_even
  key: id
  group: topic | string
  question: ask
  hidden: {wish: wish}
sample: {count: all, train: 0.5}
answer: {kind: none}
protocol: studio
speakers: {client: "rule:studio:client"}
instruction: ADVICE
"""
PROTOCOL = """
title: an artist asks a client who answers with pictures
modes: [standard]
turns: {default: 5, min: 1, max: 8}
discount: 0.9
speakers:
  artist:
    policy: true
    system: "You draw. {{ instruction }}. At most {{ turns }} messages."
    private_before: "SAY:"
    cut: 14
  client:
    sees: [wish]
    system: "You wish for {{ wish }}."
    opening: Say what you want.
    history: all
checks: [{function: "studio:check"}]
steps:
  - {id: order, speaker: client, say: "{{ question }}"}
  - times: turns
    until: "DONE:"
    loop:
      - {id: draw, speaker: artist, ask: "Turn {{ turn }} of {{ turns }}.", words: 9}
      - {id: look, speaker: client}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, text in (("tasks", TASK), ("protocols", PROTOCOL)):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "studio.yaml").write_text(text)
    (tmp_path / "studio.py").write_text(PLUGIN)
    return tmp_path


def build(here: Path, *more: str, model: str = "rule:studio:artist") -> Done:
    return convbench(
        here, "build", "studio", "--specs", "mine", "--plugin", "studio.py",
        "--model", model, "--samples", "1", "--run", "run", "--quiet", *more,
    )  # fmt: skip


def test_all_of_it_at_once(here: Path) -> None:
    done = build(here)
    assert done.code == 0, done.err
    assert "4 odd topic" in done.err
    run = here / "run"
    conversations = records(run / "conversations.jsonl")
    assert [c["failure"] for c in conversations] == [None] * 4, conversations
    for c in conversations:
        assert [t["speaker"] for t in c["turns"]] == ["client", *["artist", "client"] * 2, "artist"]
        assert c["stop"] == "marker"
        assert c["turns"][2]["content"][1] == {
            "type": "image", "file": "sketch.png", "media_type": "image/png"
        }  # fmt: skip
        assert c["turns"][1]["content"].startswith("secret thought 0 SAY:"), "kept whole"
        assert [t["instruction"] for t in c["turns"][1::2]] == [
            f"Turn {n} of 5." for n in (1, 2, 3)
        ]
        wish = c["example_id"].replace("d", "wish")
        assert c["flags"] == [f"client:{wish}"]
        assert c["systems"]["client"] == f"You wish for {wish.upper()}."
        assert "WISH" not in c["systems"]["artist"]
    examples = {e["example_id"]: e for e in records(run / "examples.jsonl")}
    groups: dict[str, set[str]] = {}
    for example in examples.values():
        groups.setdefault(example["group_id"], set()).add(example["split"])
    assert sorted(groups) == ["0", "2"]
    assert sorted(map(sorted, groups.values())) == [["test"], ["train"]]


def test_the_longest_it_may_take(here: Path) -> None:
    """With two turns the marker never comes; the client is not asked when nobody would listen."""
    done = build(here, "--turns", "2")
    assert done.code == 0, done.err
    for c in records(here / "run" / "conversations.jsonl"):
        assert [t["step"] for t in c["turns"]] == ["order", "draw", "look", "draw"]
        assert c["stop"] == "limit"


def test_a_model_that_sees_pictures_gets_them_from_the_run(provider: str, here: Path) -> None:
    """Until the picture lies in `media/` each conversation is a failure with the file's name."""
    arguments = ["--api-base", f"{provider}/v1", "--turns", "2"]
    done = build(here, *arguments, model="openai/painter")
    assert done.code == 1, "none was had"
    assert "4 failed" in done.out
    assert "sketch.png: image cannot be read" in done.err
    (here / "run" / "media").mkdir(exist_ok=True)
    (here / "run" / "media" / "sketch.png").write_bytes(b"\x89PNG")
    again = build(here, *arguments, model="openai/painter")
    assert "4 complete, 0 failed" in again.out, again.out + again.err


@pytest.mark.parametrize(
    ("rule", "line"), [("broken", "ZeroDivisionError"), ("wordless", "returned dict")]
)
def test_a_rule_that_breaks_loses_its_own_conversations_only(
    here: Path, rule: str, line: str
) -> None:
    done = build(here, "--teacher", f"rule:studio:{rule}")
    assert "Traceback" not in done.err
    assert line in done.err, done.err
    failures = [c["failure"] for c in records(here / "run" / "conversations.jsonl")]
    if rule == "broken":
        assert len(failures) == 4
        assert all(f["message"].startswith("rule:studio:broken: ") for f in failures)


def test_without_the_plugin_nothing_is_written(here: Path) -> None:
    (here / "elsewhere").mkdir()
    done = convbench(
        here / "elsewhere", "build", "studio", "--specs", "../mine", "--model", "scripted:echo"
    )
    assert "cannot import 'studio'" in done.error
    assert "--plugin" in done.error
    assert list((here / "elsewhere").iterdir()) == []


def test_the_messages_can_be_looked_at_first(here: Path) -> None:
    done = build(here, "--dry-run")
    assert done.code == 0, done.err
    assert "You wish for WISH" in done.out
    assert "Turn 5 of 5." in done.out
    assert not (here / "run").exists()


def test_a_spec_reads_back_from_the_run_as_it_was(here: Path) -> None:
    assert build(here).code == 0
    manifest: dict[str, Any] = json.loads((here / "run" / "run.json").read_text())
    assert manifest["protocol"]["speakers"]["artist"]["private_before"] == "SAY:"
    assert manifest["protocol"]["steps"][1]["until"] == "DONE:"
    assert manifest["task"]["rows"]["hidden"] == {"wish": "wish"}
    assert build(here).code == 0, "the same command resumes"


def test_a_speaker_without_tools_is_neither_offered_nor_forbidden_any() -> None:
    """A provider refuses `tool_choice` without tools."""
    speaker = Speaker()
    for rounds in (0, speaker.tool_limits.rounds):
        assert sampling_with_tools(speaker, Sampling(temperature=0.5), rounds) == Sampling(
            temperature=0.5
        )
