"""Closed-book questions on a passage: its own, or ones that a policy wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convbench import prompts
from convbench.errors import DataError
from convbench.judge.adaptation.learner import Question
from convbench.schema import Example, ProtocolSpec, TaskSpec
from convbench.schema.chat import Message

_ASKED = re.compile(r"(?is)[\s\-*\d.)]*(?:q(?:uestion)?\s*+\d*+\s*+:\s*)?(.+)")
_ANSWERED = re.compile(r"(?is)\s*+(?:a(?:nswer)?\s*+\d*+\s*+:\s*+)?(\S.*)")
"""The question before the first question mark of a line, and the answer after it."""


def pairs(text: str) -> Iterator[dict[str, str]]:
    """Yield question and answer of every line that has both, as in `self-qa` edits (`Question: …
    Answer: …`, or `- What …? …`); each question once."""
    seen = set()
    for line in text.splitlines():
        before, mark, after = line.strip().partition("?")
        asked, answered = _ASKED.fullmatch(before), _ANSWERED.fullmatch(after)
        if asked is None or answered is None:
            continue
        question, answer = f"{asked[1]}{mark}".strip(), answered[1].strip().rstrip(".")
        if answer and question not in seen:
            seen.add(question)
            yield {"question": question, "answer": answer}


def questions_of(task: TaskSpec, example: Example, protocol: ProtocolSpec) -> list[Question]:
    """Return a passage's questions with the messages of `protocol`. Raises DataError without any.

    The template gets title and question alone, so that the passage cannot enter the prompt.
    """
    asked = example.hidden.get("questions") or []
    if not asked:
        raise DataError(
            f"example {example.example_id}: found no hidden field `questions`; expected some to "
            "measure an adaptation by (a task such as squad or pocket-notes), or a learner that "
            "writes them: --set judge.args.writes=self-edit-self-qa"
        )
    return [_question(task, example, protocol, item) for item in asked]


def _question(
    task: TaskSpec, example: Example, protocol: ProtocolSpec, item: Mapping[str, Any]
) -> Question:
    values = {"title": example.inputs.get("title", ""), "question": item["question"]}
    said = prompts.step(task, protocol, protocol.all_steps()[0], "standard", values)
    system = prompts.system(task, protocol, protocol.policy, "standard", values)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": said or ""})
    golds = item.get("answers") or [item["answer"]]
    return Question(
        tuple(messages), tuple(map(str, golds)), str(item["question"]), str(values["title"])
    )


def with_own_questions(
    task: TaskSpec, example: Example, protocol: ProtocolSpec, write: Callable[[list[Message]], str]
) -> Example:
    """Return the passage with the questions in the reply of `write` to the first step of
    `protocol`, which shows the passage. Raises DataError if the reply has none."""
    values = prompts.fields(example, task, "standard", 1)
    said = prompts.step(task, protocol, protocol.all_steps()[0], "standard", values)
    reply = write([{"role": "user", "content": said or ""}])
    found = list(pairs(reply))
    if not found:
        raise DataError(
            f"example {example.example_id}: found no question with its answer in what the learner "
            f"wrote under {protocol.name} ({reply[:60]!r}); expected lines such as "
            "`Question: … Answer: …`"
        )
    return example.model_copy(update={"hidden": {**example.hidden, "questions": found}})
