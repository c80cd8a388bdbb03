"""Closed-book questions on a passage: its own, or ones that a policy wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convbench import prompts
from convbench.errors import DataError
from convbench.judges.adaptation.learner import Question
from convbench.schema import Example, ProtocolSpec, TaskSpec
from convbench.schema.chat import Message

_QUESTION_PART = re.compile(r"(?is)[\s\-*\d.)]*(?:q(?:uestion)?\s*+\d*+\s*+:\s*)?(.+)")
_ANSWER_PART = re.compile(r"(?is)\s*+(?:a(?:nswer)?\s*+\d*+\s*+:\s*+)?(\S.*)")
"""The question before the first question mark of a line, and the answer after it."""


def question_pairs(text: str) -> Iterator[dict[str, str]]:
    """Yield `{"question": …, "answer": …}` for every line that has both, as in `self-qa` edits
    (`Question: … Answer: …`, or `- What …? …`); each question once, with its first answer.

    The question ends in its question mark, and labels are dropped; the answer has no full stop at
    its end.
    """
    seen = set()
    for line in text.splitlines():
        before, mark, after = line.strip().partition("?")
        question_match, answer_match = (
            _QUESTION_PART.fullmatch(before),
            _ANSWER_PART.fullmatch(after),
        )
        if question_match is None or answer_match is None:
            continue
        question, answer = f"{question_match[1]}{mark}".strip(), answer_match[1].strip().rstrip(".")
        if answer and question not in seen:
            seen.add(question)
            yield {"question": question, "answer": answer}


def questions_of(task: TaskSpec, example: Example, protocol: ProtocolSpec) -> list[Question]:
    """Return a passage's questions, from the example's hidden `questions`, in order, with the
    messages that ask them by the first step of `protocol`.

    The template gets title and question alone, so that the passage cannot enter the prompt. Raise
    DataError for an example without questions.
    """
    listed = example.hidden.get("questions") or []
    if not listed:
        raise DataError(
            f"example {example.example_id}: found no hidden field `questions`; expected some to "
            "measure an adaptation by (a task such as squad or pocket-notes), or a learner that "
            "writes them: --set judge.args.writes=self-edit-self-qa"
        )
    return [_make_question(task, example, protocol, item) for item in listed]


def _make_question(
    task: TaskSpec, example: Example, protocol: ProtocolSpec, item: Mapping[str, Any]
) -> Question:
    values = {"title": example.inputs.get("title", ""), "question": item["question"]}
    text = prompts.step_text(task, protocol, protocol.all_steps()[0], "standard", values)
    system = prompts.system_prompt(task, protocol, protocol.policy, "standard", values)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text or ""})
    golds = item.get("answers") or [item["answer"]]
    return Question(
        tuple(messages), tuple(map(str, golds)), str(item["question"]), str(values["title"])
    )


def with_own_questions(
    task: TaskSpec, example: Example, protocol: ProtocolSpec, write: Callable[[list[Message]], str]
) -> Example:
    """Return a copy of the passage's example whose hidden `questions` are those that `write`
    replies with, as from `question_pairs`.

    `write` gets the message of the first step of `protocol`, which shows the passage. Raise
    DataError if its reply has no question with an answer.
    """
    values = prompts.template_fields(example, task, "standard", 1)
    text = prompts.step_text(task, protocol, protocol.all_steps()[0], "standard", values)
    reply = write([{"role": "user", "content": text or ""}])
    questions = list(question_pairs(reply))
    if not questions:
        raise DataError(
            f"example {example.example_id}: found no question with its answer in what the learner "
            f"wrote under {protocol.name} ({reply[:60]!r}); expected lines such as "
            "`Question: … Answer: …`"
        )
    return example.model_copy(update={"hidden": {**example.hidden, "questions": questions}})
