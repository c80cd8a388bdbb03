"""Map one raw row to a question: expressions, options and labels in one form."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench import prompts
from convbench.errors import DataError, SpecError
from convbench.schema import Choice, TaskSpec, fingerprint

LABELS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """A question before it has a split."""

    key: str
    group: str
    split: str | None
    question: str
    choices: tuple[Choice, ...]
    answer: str | None
    inputs: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] = field(default_factory=dict)


def make_question(task: TaskSpec, row: Mapping[str, Any]) -> TaskQuestion | str:
    """Return the row's question, or the reason why it makes none, such as `left out by rows.where`,
    `without an answer`, `with two equal options`.

    Options get the labels A, B, C and so on. Raise DataError if the row lacks the fields that the
    task names, if the question is empty, or if the answer is none of the options.
    """
    rows = task.rows
    if rows.where is not None and not _row_value(task, "where", rows.where, row):
        return "left out by rows.where"
    value = _row_value(task, "question", rows.question, row)
    text = str(value).strip()
    if value is None or not text:
        raise _schema_error(
            task, "question", rows.question, row, f"found {value!r:.60}; expected text"
        )
    options, labels = _row_options(task, row)
    if options and (why := _unfit_reason(options)):
        return why
    gold = _gold_position(task, row, options, labels)
    if gold is None and rows.answer is not None:
        return "without an answer"
    key = _row_name(task, "key", rows.key, row) if rows.key else fingerprint(text, options)
    if rows.shuffle:
        options, gold = _shuffle_options(key, options, gold)
    return TaskQuestion(
        key=key,
        group=_row_name(task, "group", rows.group, row) if rows.group else key,
        split=_row_split(task, row),
        question=text,
        choices=tuple(Choice(label=LABELS[i], text=option) for i, option in enumerate(options)),
        answer=LABELS[gold] if options and isinstance(gold, int) else gold,  # type: ignore[arg-type]
        inputs={name: _row_value(task, name, text, row) for name, text in rows.inputs.items()},
        hidden={name: _row_value(task, name, text, row) for name, text in rows.hidden.items()},
    )


def _row_name(task: TaskSpec, key: str, text: str, row: Mapping[str, Any]) -> str:
    """Return the name that an expression gives a row or its group. Raises DataError for an empty
    one."""
    value = _row_value(task, key, text, row)
    if value is None or not str(value).strip():
        raise _schema_error(task, key, text, row, f"found {value!r}; expected a name")
    return str(value)


def _unfit_reason(options: Sequence[str]) -> str | None:
    """Return why nobody could choose among these options, or None if somebody can."""
    if len(options) < 2:
        return "with one option only"
    if not all(options):
        return "with an empty option"
    return "with two equal options" if len(set(options)) < len(options) else None


def _row_split(task: TaskSpec, row: Mapping[str, Any]) -> str | None:
    """Return the split that the row names, else the split of the source that it comes from."""
    split = row.get("_split")
    if task.rows.split:
        split = _row_value(task, "split", task.rows.split, row)
    return None if split is None else str(split)


def _row_value(task: TaskSpec, key: str, text: str, row: Mapping[str, Any]) -> Any:
    """Return the value of an expression over the row. Raises DataError for a bad one."""
    try:
        return prompts.evaluate_expression(text, {**row, "row": row})
    except SpecError as error:
        raise _schema_error(task, key, text, row, str(error)) from None


def _schema_error(
    task: TaskSpec, key: str, text: str, row: Mapping[str, Any], why: str
) -> DataError:
    shown = sorted(name for name in row if not name.startswith("_"))
    return DataError(
        f"task {task.name}: rows.{key}: {text!r:.200}: {why}; the rows have the fields {shown}. "
        f"Has the source changed its schema? Fix it with --set task.rows.{key}=EXPRESSION"
    )


def _row_options(task: TaskSpec, row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the options' texts and their original labels."""
    if task.rows.choices is None:
        return [], []
    value = _row_value(task, "choices", task.rows.choices, row)
    if isinstance(value, Mapping):
        texts, labels = value.get("text"), value.get("label")
    else:
        texts, labels = value, None
    if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
        raise _schema_error(
            task, "choices", task.rows.choices, row, f"found {value!r:.60}; expected options"
        )
    if len(texts) > len(LABELS):
        why = f"found {len(texts)} options; expected at most {len(LABELS)}"
        raise _schema_error(task, "choices", task.rows.choices, row, why)
    if labels and (not isinstance(labels, list) or len(labels) != len(texts)):
        why = f"found the labels {labels!r:.60}; expected one for each of {len(texts)} options"
        raise _schema_error(task, "choices", task.rows.choices, row, why)
    names = [str(label) for label in labels] if labels else list(LABELS[: len(texts)])
    return ["" if text is None else str(text).strip() for text in texts], names


def _gold_position(
    task: TaskSpec, row: Mapping[str, Any], options: list[str], labels: list[str]
) -> int | str | None:
    """Return the gold's position among the options, or its text if there are none."""
    if task.rows.answer is None:
        return None
    value = _row_value(task, "answer", task.rows.answer, row)
    if not options:
        return None if value is None else str(value)
    is_position = isinstance(value, int) and not isinstance(value, bool)
    if str(value) in labels:  # of labels "1" to "4", 1 names the first: it is not a position
        return labels.index(str(value))
    if is_position and not any(label.lstrip("-").isdigit() for label in labels):
        if 0 <= value < len(options):
            return int(value)
    elif not is_position and str(value).strip() in options:
        return options.index(str(value).strip())
    raise DataError(
        f"task {task.name}: rows.answer: found {value!r:.60}; expected one of the labels {labels}, "
        f"a position below {len(options)} (an integer, where the labels are no numbers), or an "
        "option's text"
    )


def _shuffle_options(
    key: str, options: list[str], gold: int | str | None
) -> tuple[list[str], int | str | None]:
    """Return the options shuffled by a seed of the question's own, the same on every machine, and
    the gold's new position."""
    order = list(range(len(options)))
    random.Random(hashlib.sha256(f"options/{key}".encode()).digest()).shuffle(order)
    return [options[i] for i in order], order.index(gold) if isinstance(gold, int) else gold
