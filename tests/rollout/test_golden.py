"""What every shipped protocol sends, word for word, in files that a person can read.

After a wanted change: CONVBENCH_GOLDEN=write pytest tests/rollout/test_golden.py, then read
the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from convbench.schema import Message, text_of
from tests.helpers.table import Reply, plain, played, protocol_of, shapes

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("CONVBENCH_GOLDEN") == "write"


def ready_at(number: int) -> Reply:
    """An assistant that knows enough after `number` questions."""
    return lambda speaker, n: (
        "READY TO ANSWER" if (speaker, n) == ("assistant", number) else plain(speaker, n)
    )


def thinks_first(speaker: str, number: int) -> str:
    """An assistant of `collaboration`: private thought, the marker, what the human reads."""
    said = plain(speaker, number)
    return f"(private thought {number})\nOUTPUT:\n{said}" if speaker == "assistant" else said


CASES: dict[str, tuple[str, str, int, Reply]] = {
    f"{name}-{mode}-{turns}": (
        name,
        mode,
        turns,
        thinks_first if name == "collaboration" else plain,
    )
    for name, mode, turns in shapes()
}
CASES["clarifying-adaptive-thinking-5-ready"] = (
    "clarifying-adaptive", "thinking", 5, ready_at(2)
)  # fmt: skip


def rendered(name: str, mode: str, turns: int, reply: Reply) -> str:
    """Each call: what is new since the speaker's last one, or all where that is no prefix."""
    table, conversation = played(protocol_of(name), mode=mode, turns=turns, reply=reply)  # type: ignore[arg-type]
    before: dict[str, list[Message]] = {}
    out = [f"{name} · {mode} · {turns} turns · ends: {conversation.stop}"]
    for call in table.sent:
        step = conversation.turns[call.turn].step
        out.append(f"\n======== call of {call.speaker}, step {step}, turn {call.turn}")
        old = before.get(call.speaker, [])
        known = len(old) if call.messages[: len(old)] == old else 0
        if known:
            out.append(f"-------- (the {known} messages before, then)")
        for message in call.messages[known:]:
            out.append(f"-------- {message['role']}\n{text_of(message['content'])}")
        before[call.speaker] = call.messages
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_prompts_are_those_of_the_golden_file(case: str) -> None:
    text, path = rendered(*CASES[case]), GOLDEN / f"{case}.txt"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
