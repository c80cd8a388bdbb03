"""A bounded template prints what Jinja itself prints, for every template that is shipped."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from jinja2 import Environment, StrictUndefined

from convbench import catalog, prompts
from convbench.catalog.texts import row_expressions, spec_templates
from convbench.errors import SpecError
from convbench.judges.fence import quote_function
from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec
from convbench.util.template_calls import FILTERS, METHOD_NAMES, TESTS

KINDS = {"tasks": TaskSpec, "protocols": ProtocolSpec, "judges": JudgeSpec}
JINJA = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
CHOICES = [{"label": "A", "text": "a <b> & 'c'"}, {"label": "B", "text": "{{ no }}"}]
FIELDS = {
    name: f"the {name}\n of it "
    for name in ("question", "letters", "title", "passage", "answer", "reference", "transcript",
                 "student_attempt", "unknown", "property", "kind", "subject", "shown",
                 "marks", "first", "second")
} | {"transcripts": ["one", "two"], "choices": CHOICES, "turns": 5, "turn": 2}  # fmt: skip


def shipped() -> Iterator[tuple[str, str]]:
    """Every template of every shipped spec, one for each mode, with where it stands."""
    for kind, model in KINDS.items():
        for name in catalog.spec_files(kind):
            spec = catalog.load_spec(model, kind, name)  # type: ignore[type-var]
            for key, text in spec_templates(spec):
                modes = text.items() if isinstance(text, dict) else [("", text)]
                yield from ((f"{name}.{key}.{mode}", one) for mode, one in modes if one)


SHIPPED = dict(shipped())


@pytest.mark.parametrize("instruction", ["", "Mind the gap."])
@pytest.mark.parametrize("where", SHIPPED)
def test_a_shipped_template_prints_what_jinja_prints(where: str, instruction: str) -> None:
    fields = {**FIELDS, "instruction": instruction}
    expected = JINJA.from_string(SHIPPED[where]).render(fields)
    assert prompts.render_template(SHIPPED[where], fields, where) == expected


ROW = {
    **{name: f"a_{name}" for name in ("hint", "subject", "question", "id", "question_stem", "q")},
    "image": None,
    "nothing": "",
}


@pytest.mark.parametrize(
    "text",
    sorted({text for name in catalog.spec_files("tasks")
            for _, text in row_expressions(catalog.load_spec(TaskSpec, "tasks", name))}),
)  # fmt: skip
def test_a_shipped_expression_gives_what_jinja_gives(text: str) -> None:
    names = {name: f"a_{name}" for name in prompts.templates.parse_expression(text).names}
    row = {**names, **ROW}
    assert prompts.evaluate_expression(text, row) == JINJA.compile_expression(text)(row)


def test_the_guide_names_every_filter_test_and_method() -> None:
    guide = (catalog.shipped_folder().parent / "docs" / "howto" / "specs.md").read_text()
    named = set(re.findall(r"[a-z]+", guide))
    known = {*FILTERS, *TESTS, *METHOD_NAMES}
    alike = {"equalto", "greaterthan", "lessthan"}  # other names of eq, gt and lt
    assert {name for name in known if name.isalpha()} - named == alike


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\nb {{ nobody }}", "x: line 2: 'nobody' is undefined; "),
        (
            "a\n\n{% for c in choices %}\n{{ c.label }}\n{{ c.size }}{% endfor %}",
            "x: line 5: 'size' ",
        ),
        ("{{ turns }}\n{{ turn + letters }}", "x: line 2: + is for numbers in templates; "),
        ("\n{{ turns.upper() }}", "x: line 2: a int has no upper(); "),
        ("\n\n{{ letters | nothing }}", "x: line 3: unknown filter 'nothing'; "),
        ("\n{% if turn %}", "x: line 2: Unexpected end of template"),
    ],
)
def test_an_error_names_its_line(text: str, said: str) -> None:
    with pytest.raises(SpecError, match="^" + re.escape(said)):
        prompts.render_template(text, FIELDS, "x")


def test_what_a_block_holds_is_quoted_once() -> None:
    text = "{% set b %}So: {{ said }}{% endset %}{{ b }}End"
    assert (
        prompts.render_template(text, {"said": "a\nb"}, "x", quote_function())
        == "> So: a\n> b\nEnd"
    )
