"""Render templates: sandboxed Jinja over an example's fields, hidden ones only by permission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, Undefined
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from convbench.errors import SpecError
from convbench.schema import Example, Mode, ProtocolSpec, Step, TaskSpec, pick


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, which by itself lets a short template make a text that fills the memory."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply and divide numbers; texts and lists are not repeated, powers not taken."""
        if operator == "**" or not all(isinstance(x, int | float) for x in (left, right)):
            raise SecurityError(f"{operator} is for numbers in templates, ** for none")
        return super().call_binop(context, operator, left, right)


_ENV = _Sandbox(
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    undefined=StrictUndefined,
    autoescape=False,
)


def _is_none(value: object) -> bool:
    """Jinja's `is none`, but a field that is missing is not one that is null."""
    if isinstance(value, Undefined):
        str(value)  # raises, and names the field
    return value is None


_ENV.tests["none"] = _is_none


@lru_cache(maxsize=512)
def _compiled(text: str) -> Template:
    return _ENV.from_string(text)


def render(text: str, fields: Mapping[str, Any], origin: str = "template") -> str:
    """Return the template filled in; an unknown field or bad syntax is a SpecError."""
    try:
        return _compiled(text).render(fields)
    except (TemplateError, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        known = ", ".join(sorted(fields))
        raise SpecError(f"{origin}: {error}; fields here: {known}") from None


@lru_cache(maxsize=512)
def expression(text: str) -> Callable[..., Any]:
    """Return a compiled Jinja expression; call it with the fields."""
    try:
        return _ENV.compile_expression(text, undefined_to_none=False)
    except TemplateError as error:
        raise SpecError(f"expression {text!r}: {error}") from None


def letters(labels: tuple[str, ...]) -> str:
    """Return `A, B, C, or D` for the real labels: `A or B` for two."""
    if len(labels) < 3:
        return " or ".join(labels)
    return ", ".join(labels[:-1]) + f", or {labels[-1]}"


def fields(example: Example, task: TaskSpec, mode: Mode, turns: int) -> dict[str, Any]:
    """Return what every template may use: question, choices, letters, instruction, inputs."""
    return {
        **example.inputs,
        "question": example.question,
        "choices": example.choices,
        "letters": letters(example.letters),
        "instruction": pick(task.instruction, mode) or "",
        "mode": mode,
        "turns": turns,
        "turn": 1,
    }


def hidden(example: Example, sees: tuple[str, ...]) -> dict[str, Any]:
    """Return the hidden fields a speaker may use, `answer` among them only if named."""
    reference = {**example.hidden, "answer": example.answer}
    missing = [name for name in sees if name not in reference]
    if missing:
        raise SpecError(
            f"sees: found {missing}, which example {example.example_id} lacks; "
            f"it has {sorted(reference)}"
        )
    return {name: reference[name] for name in sees}


def system(
    task: TaskSpec, protocol: ProtocolSpec, speaker: str, mode: Mode, values: Mapping[str, Any]
) -> str | None:
    """Return a speaker's system prompt, the task's own where it has one; None for none."""
    override = task.overrides.get(protocol.name)
    text = override.systems.get(speaker) if override else None
    text = pick(protocol.speakers[speaker].system if text is None else text, mode)
    return render(text, values, f"system prompt of {speaker}") if text else None


def step(
    task: TaskSpec, protocol: ProtocolSpec, item: Step, mode: Mode, values: Mapping[str, Any]
) -> str | None:
    """Return what a step says or asks, the task's own where it has one; None for nothing."""
    override = task.overrides.get(protocol.name)
    text = override.steps.get(item.id) if override else None
    if text is None:
        text = item.say if item.say is not None else item.ask
    template = pick(text, mode)
    return render(template, values, f"step {item.id}") if template else None
