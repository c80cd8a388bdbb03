"""Render templates over an example's fields; hidden fields need permission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from convbench import templates
from convbench.errors import SpecError
from convbench.schema import Example, Mode, ProtocolSpec, Step, TaskSpec, pick_template
from convbench.util.plain_data import MissingField, PlainValue, TemplateRefusal

OF_CHOICES = frozenset({"choices", "letters"})
"""Fields that are empty if a question has no options."""


def render_template(
    text: str,
    fields: Mapping[str, Any],
    origin: str = "template",
    quote: templates.Quote | None = None,
) -> str:
    """Return the filled-in template. All templates meet data here.

    `quote` says how texts of the fields are quoted. Raises SpecError in one line that begins with
    `origin` for an unknown field, bad syntax, or a template that does more than it may.
    """
    try:
        return templates.fill_template(templates.parse_template(text), fields, quote)
    except TemplateRefusal as error:
        raise SpecError(
            templates.one_line(f"{origin}: {error}; fields here: {', '.join(sorted(fields))}")
        ) from None


def evaluate_expression(text: str, fields: Mapping[str, Any]) -> PlainValue:
    """Return the value of an expression over the fields as plain data: text, number, boolean, None,
    list or dict.

    Raise SpecError in one line for an unknown field, bad syntax, or an expression that does more
    than it may.
    """
    try:
        return templates.evaluate_expression(templates.parse_expression(text), fields)
    except MissingField as error:
        message = "no such field" if error.name == text.strip() else str(error)
        raise SpecError(templates.one_line(message)) from None
    except TemplateRefusal as error:
        raise SpecError(templates.one_line(str(error))) from None


def join_letters(labels: tuple[str, ...]) -> str:
    """Return labels as a phrase: `A, B, C, or D`, `A or B` for two, an empty text for none."""
    if len(labels) < 3:
        return " or ".join(labels)
    return ", ".join(labels[:-1]) + f", or {labels[-1]}"


def template_fields(example: Example, task: TaskSpec, mode: Mode, turns: int) -> dict[str, Any]:
    """Return the fields that every template may use: the inputs by name, question, choices, letters
    (as a phrase), instruction, mode, turns, and turn, which is 1.

    The instruction is the task's for this mode, or an empty text. A field of this list hides an
    input of the same name.
    """
    return {
        **example.inputs,
        "question": example.question,
        "choices": example.choices,
        "letters": join_letters(example.letters),
        "instruction": pick_template(task.instruction, mode) or "",
        "mode": mode,
        "turns": turns,
        "turn": 1,
    }


def hidden_fields(example: Example, sees: tuple[str, ...]) -> dict[str, Any]:
    """Return the hidden fields that `sees` names, by name; `answer` is the gold answer.

    Empty if it names none.

    Raise SpecError for a name that the example lacks.
    """
    if not sees:
        return {}
    reference = {**example.hidden, "answer": example.answer}
    missing = [name for name in sees if name not in reference]
    if missing:
        raise SpecError(
            f"sees: found {missing}, which example {example.example_id} lacks; "
            f"it has {sorted(reference)}"
        )
    return {name: reference[name] for name in sees}


def system_prompt(
    task: TaskSpec, protocol: ProtocolSpec, speaker: str, mode: Mode, values: Mapping[str, Any]
) -> str | None:
    """Return a speaker's rendered system prompt, from the task's template if it overrides the
    protocol's, or None if there is none. Raise SpecError if it cannot be rendered."""
    text = _system_template(task, protocol, speaker, mode)
    return render_template(text, values, f"system prompt of {speaker}") if text else None


def step_text(
    task: TaskSpec, protocol: ProtocolSpec, item: Step, mode: Mode, values: Mapping[str, Any]
) -> str | None:
    """Return the rendered text that a step says or asks, from the task's template if it overrides
    the protocol's, or None if there is none. Raise SpecError if it cannot be rendered."""
    template = _step_template(task, protocol, item, mode)
    return render_template(template, values, f"step {item.id}") if template else None


def _system_template(
    task: TaskSpec, protocol: ProtocolSpec, speaker: str, mode: Mode
) -> str | None:
    override = task.overrides.get(protocol.name)
    text = override.systems.get(speaker) if override else None
    return pick_template(protocol.speakers[speaker].system if text is None else text, mode)


def _step_template(task: TaskSpec, protocol: ProtocolSpec, item: Step, mode: Mode) -> str | None:
    override = task.overrides.get(protocol.name)
    text = override.steps.get(item.id) if override else None
    if text is None:
        text = item.say if item.say is not None else item.ask
    return pick_template(text, mode)


def refuse_absent_choices(
    task: TaskSpec,
    protocol: ProtocolSpec,
    mode: Mode,
    examples: Iterable[Example],
    fix: str = "--protocol chat",
) -> None:
    """Raise SpecError if a template of the protocol uses options or letters and no example has any.
    A template that tests for them first (`{% if choices %}`) is allowed. `fix` is what the user may
    type to choose another protocol."""
    if any(example.choices for example in examples):
        return
    named = {
        **{
            f"system prompt of {speaker}": _system_template(task, protocol, speaker, mode)
            for speaker in protocol.speakers
        },
        **{
            f"step {item.id}": _step_template(task, protocol, item, mode)
            for item in protocol.all_steps()
        },
    }
    for where, text in named.items():
        spoken = templates.free_names(text) & OF_CHOICES if text else frozenset()
        if text and spoken and not templates.tested_names(text) & OF_CHOICES:
            raise SpecError(
                f"protocol {protocol.name}: {where} uses {{{{ {min(spoken)} }}}}, but no "
                f"question of task {task.name} has options; use a protocol for open questions, "
                f"e.g. {fix}"
            )
