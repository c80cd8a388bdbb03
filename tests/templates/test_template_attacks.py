"""Templates from elsewhere, once more: refused in one line, in little time, with nothing shared."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from convbench import prompts, templates
from convbench.errors import SpecError
from tests.helpers.template_attacks import REFUSED, RETURNED, SHARE, fields
from tests.support.exhaustive import every_nth
from tests.support.one_line import one_line

SECONDS = 4.0
"""Processor time that any one template may take; the longest takes about a quarter."""
PROBE = "{{ row }} {{ rows }} {{ pairs }} {{ question }} {{ nobody | default([]) }} {{ [] }}"


def timed(text: str, data: dict[str, Any]) -> str:
    """Render a template; fail where it takes long, whatever its end."""
    start = time.thread_time()
    try:
        return prompts.render_template(text, data, "step x")
    finally:
        assert time.thread_time() - start < SECONDS


@pytest.mark.parametrize("case", every_nth(3, REFUSED))
def test_an_attack_ends_in_one_line_and_soon(case: str) -> None:
    with pytest.raises(SpecError) as refused:
        timed(REFUSED[case], fields())
    line = one_line(refused.value)
    assert line.startswith("step x: ")
    assert len(line) <= templates.LINE


@pytest.mark.parametrize("case", SHARE)
def test_a_template_changes_nothing_it_was_given(case: str) -> None:
    data, probe = fields(), prompts.render_template(PROBE, fields())
    for _ in range(2):
        with suppress(SpecError):
            timed(SHARE[case], data)
    assert data == fields()
    assert prompts.render_template(PROBE, data) == prompts.render_template(PROBE, fields()) == probe


@pytest.mark.parametrize("case", SHARE)
def test_a_template_says_the_same_again(case: str) -> None:
    def said() -> str:
        try:
            return timed(SHARE[case], fields())
        except SpecError as error:
            return str(error)

    assert said() == said()


def change(value: Any) -> None:
    """Change whatever can be changed in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in list(inner):
        change(item)
    if isinstance(value, list):
        value.append("changed")
    elif isinstance(value, dict):
        value["changed"] = "changed"


@pytest.mark.parametrize("case", RETURNED)
def test_a_value_is_its_caller_s_own(case: str) -> None:
    data = fields()
    first = prompts.evaluate_expression(RETURNED[case], data)
    expected = json.dumps(first)
    change(first)
    assert json.dumps(first) != expected
    assert data == fields()
    assert json.dumps(prompts.evaluate_expression(RETURNED[case], data)) == expected


def test_renderings_at_once_share_nothing() -> None:
    text = "{% for i in nums[:50] %}{% set x = mark %}{{ loop.index }}{{ x }} {% endfor %}"

    def said(mark: int) -> str:
        return prompts.render_template(text, {"nums": list(range(50)), "mark": mark})

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(said, range(200)))
    assert together == [said(mark) for mark in range(200)]
