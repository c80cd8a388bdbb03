"""Check the templates and expressions in a spec when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import BaseModel

from convbench.errors import SpecError
from convbench.plain_data import Refused
from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec
from convbench.schema.noun import Text
from convbench.schema.task import Rows


def check_templates(spec: BaseModel, origin: str) -> None:
    """Raise SpecError naming the key of the first invalid template or expression."""
    from convbench import templates  # brings jinja2, which `--help` does not need

    for key, text in expressions(spec):
        _check(templates.expression, text, f"{origin}: {key}")
    for key, text_or_two in texts(spec):
        for one in text_or_two.values() if isinstance(text_or_two, dict) else (text_or_two,):
            _check(templates.template, one, f"{origin}: {key}")


def expressions(spec: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of every expression over a row."""
    if isinstance(spec, TaskSpec):
        for name in Rows.model_fields:
            value = getattr(spec.rows, name)
            if isinstance(value, str) and name != "maker":
                yield f"rows.{name}", value
            elif isinstance(value, dict):
                yield from ((f"rows.{name}.{key}", text) for key, text in value.items())


def texts(spec: BaseModel) -> Iterator[tuple[str, Text]]:
    """Yield (key, text) of every template."""
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


def _check(parse: Callable[[str], object], text: str, where: str) -> None:
    from convbench.templates import one_line

    try:
        parse(text)
    except Refused as error:
        raise SpecError(one_line(f"{where}: {error}")) from None
