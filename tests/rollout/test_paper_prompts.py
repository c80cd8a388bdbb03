"""The shipped prompts against the paper's, as its pages print them, OCR marks removed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convbench.schema import Choice, Mode, text_of
from tests.helpers.table import QUESTION, TASK, played, protocol_of

HEADING = re.compile(r"^(#+ |\**(Turn \d|Intermediate Turn|System Prompt) ?-|For longer)")


def words(text: str) -> str:
    """One line, single spaces."""
    return " ".join(text.split())


def section(paper: Path, start: str, end: str) -> list[str]:
    """Return the lines of one appendix section."""
    lines = paper.read_text(encoding="utf-8").splitlines()
    heads = [line.lstrip("# ").strip() for line in lines]
    first = next(i for i, head in enumerate(heads) if head.startswith(start))
    last = next(i for i, head in enumerate(heads) if i > first and head.startswith(end))
    return lines[first + 1 : last]


def block(lines: list[str], heading: str) -> str:
    """Return the prompt under a heading: emphasis, code fences and line breaks removed."""
    heads = [line.strip("#* ").strip() for line in lines]
    first = heads.index(heading) + 1
    ends = (i for i in range(first, len(lines)) if HEADING.match(lines[i]))
    last = next(ends, len(lines))
    kept = [line.strip() for line in lines[first:last] if not line.startswith("```")]
    return words(" ".join(line.removeprefix("*").removesuffix("*") for line in kept))


SLOTS = QUESTION.model_copy(
    update={
        "question": "[question text]",
        "choices": tuple(Choice(label=x, text=f"[choice {x}]") for x in "ABCD"),
    }
)
SLOT_TASK = TASK.model_copy(update={"instruction": "[Dataset-specific instruction]"})


def sent(name: str, mode: Mode, turns: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return (system prompt by speaker, scripted text or instruction by step)."""
    _, conversation = played(
        protocol_of(name), mode=mode, turns=turns, task=SLOT_TASK, example=SLOTS
    )
    texts = {}
    for turn in conversation.turns:
        scripted = turn.finish_reason == "scripted"
        texts[turn.step] = words(text_of(turn.content) if scripted else turn.instruction or "")
    return {k: words(v) for k, v in conversation.systems.items()}, texts


@pytest.mark.parametrize(
    ("mode", "start", "end", "suffix"),
    [
        ("thinking", "E.1 Prompts", "E.2 Prompts", "(With Thinking)"),
        ("standard", "E.2 Prompts", "E.3 Evaluation", "(Without Thinking)"),
    ],
)
def test_reasoning_is_sections_e1_and_e2(
    paper: Path, mode: Mode, start: str, end: str, suffix: str
) -> None:
    page = section(paper, start, end)
    systems, texts = sent("reasoning", mode, 4)
    assert systems["assistant"] == block(page, f"System Prompt - Assistant {suffix}")
    assert texts["initial"] == block(page, f"Turn 1 - Teacher Initial Question {suffix}")
    assert texts["deeper"] == block(page, f"Turn 2 - Teacher Deeper Analysis {suffix}")
    assert texts["final"] == block(page, f"Turn 3 - Teacher Final Answer {suffix}")
    between = block(page, "Intermediate Turn - Teacher (With Thinking)")  # so in both sections
    assert texts["further"] == between.replace("[N]", "3")


def test_clarifying_is_section_f1(paper: Path) -> None:
    page = section(paper, "F.1 Prompts", "F.2 Comparison")
    systems, texts = sent("clarifying", "thinking", 3)
    assert systems["teacher"] == block(page, "System Prompt - Teacher")
    # the paper sets tags apart by backticks, and says "lowercase thinking tags only"
    printed = block(page, "System Prompt - Assistant")
    assert systems["assistant"] == printed.replace("`", "") != printed
    assert texts["question"] == block(page, "Turn 1 - Teacher Initial Question (Hard-Coded)")
    assert texts["clarify"] == block(page, "Turn 1 - Assistant Clarification Request")
    assert texts["respond"] == block(page, "Turn 2 - Teacher Clarification Response")
    assert texts["reason"] == block(page, "Turn 2 - Assistant Reasoning")
    assert texts["final"] == block(page, "Turn 3 - Teacher Final Answer (Hard-Coded)")
    answer = block(page, "Turn 3 - Assistant Final Response")
    options = ", ".join(f"{x}: choice {x}" for x in "ABCD")
    assert options in answer
    shown = answer.replace(options, ", ".join(f"{x}: [choice {x}]" for x in "ABCD"))
    assert texts["answer"] == shown


def test_the_blocks_are_found_whole(paper: Path) -> None:
    """Against a reader of headings that finds nothing: the texts end where they should."""
    page = section(paper, "E.1 Prompts", "E.2 Prompts")
    final = block(page, "Turn 3 - Teacher Final Answer (With Thinking)")
    assert final.startswith("Thank you for your detailed explanations.")
    assert final.endswith("for your step-by-step reasoning.")
    assert 40 < len(final.split()) < 80
