"""Check the templates and expressions in a spec when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import BaseModel

from convbench.errors import SpecError
from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec
from convbench.schema.base import Text
from convbench.schema.task import Rows
from convbench.util.plain_data import TemplateRefusal


def check_templates(spec: BaseModel, origin: str) -> None:
    """Raise SpecError naming the key of the first invalid template or expression."""
    from convbench import templates  # brings jinja2, which `--help` does not need

    for key, text in row_expressions(spec):
        _check_syntax(templates.parse_expression, text, f"{origin}: {key}")
    for key, text_or_two in spec_templates(spec):
        for template in text_or_two.values() if isinstance(text_or_two, dict) else (text_or_two,):
            _check_syntax(templates.parse_template, template, f"{origin}: {key}")


def row_expressions(spec: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of every expression over a row in a task, such as `rows.question`; nothing
    for other specs."""
    if isinstance(spec, TaskSpec):
        for name in Rows.model_fields:
            value = getattr(spec.rows, name)
            if isinstance(value, str) and name != "maker":
                yield f"rows.{name}", value
            elif isinstance(value, dict):
                yield from ((f"rows.{name}.{key}", text) for key, text in value.items())


def spec_templates(spec: BaseModel) -> Iterator[tuple[str, Text]]:
    """Yield (key, template) of every template in a task, protocol or judge; nothing for other
    specs.

    The template is a text or a dict of texts, one for each mode; it is empty where the spec has
    none.
    """
    if isinstance(spec, TaskSpec):
        for name, override in spec.overrides.items():
            for part in ("systems", "steps"):
                for key, text in getattr(override, part).items():
                    yield f"overrides.{name}.{part}.{key}", text
    elif isinstance(spec, ProtocolSpec):
        for name, speaker in spec.speakers.items():
            yield f"speakers.{name}.system", speaker.system or ""
        for step in spec.all_steps():
            yield f"steps.{step.id}", step.say or step.ask or ""
    elif isinstance(spec, JudgeSpec):
        yield "system", spec.system or ""
        yield "prompt", spec.prompt or ""


def _check_syntax(parse: Callable[[str], object], text: str, where: str) -> None:
    from convbench.templates import one_line

    try:
        parse(text)
    except TemplateRefusal as error:
        raise SpecError(one_line(f"{where}: {error}")) from None
