"""What a self-edit asks for, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.tasks.arc_agi.edit import (
    GROUPS,
    ORACLE,
    STRATEGIES,
    SWITCHES,
    InvalidEdit,
    SelfEdit,
    parse_edit,
)
from convbench.util.extract import first_object


def edit(**changed: Any) -> dict[str, Any]:
    found = json.loads(ORACLE.to_json())
    for key, value in changed.items():
        for part in found.values():
            if key in part:
                part[key] = value
    return found


@given(
    st.sets(st.sampled_from(GROUPS)),
    st.sampled_from(STRATEGIES),
    st.floats(min_value=1e-12, max_value=1),
    st.integers(1, 1000),
)
def test_what_is_written_is_read(groups: set[Any], strategy: Any, rate: float, epochs: int) -> None:
    one = SelfEdit(frozenset(groups), strategy, rate, epochs)
    assert parse_edit(f"Here it is:\n```json\n{one.to_json()}\n```") == one


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("learning_rate", 0, "learning_rate"),
        ("learning_rate", -1e-4, "learning_rate"),
        ("learning_rate", "1e-4", "learning_rate"),
        ("learning_rate", float("nan"), "learning_rate"),
        ("learning_rate", float("inf"), "learning_rate"),
        ("learning_rate", True, "learning_rate"),
        ("num_train_epochs", 0, "num_train_epochs"),
        ("num_train_epochs", 2.5, "num_train_epochs"),
        ("num_train_epochs", True, "num_train_epochs"),
        ("strategy", "train_using_nothing", "strategy"),
        ("strategy", ["train_using_all_tokens"], "strategy"),
        ("use_size_augmentations", "yes", "use_size_augmentations"),
        ("use_chain_augmentations", 1, "use_chain_augmentations"),
    ],
)
def test_values_that_are_none(name: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidEdit, match=said):
        parse_edit(json.dumps(edit(**{name: value})))


@pytest.mark.parametrize("name", [*SWITCHES, "strategy", "learning_rate", "num_train_epochs"])
def test_a_missing_key(name: str) -> None:
    found = edit()
    for part in found.values():
        part.pop(name, None)
    with pytest.raises(InvalidEdit, match=name):
        parse_edit(json.dumps(found))


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "{", "[1, 2]", '{"data_generation": ', "{" * 30_000, '{"a":' * 20_000,
     '{"learning_rate": ' + "9" * 15_000 + "}"],
)  # fmt: skip
def test_text_without_an_edit(text: str) -> None:
    with pytest.raises(InvalidEdit):
        parse_edit(text)


def test_the_guard_counts_batches_of_two() -> None:
    assert ORACLE.count_steps(250) == 250
    assert SelfEdit(frozenset(), STRATEGIES[0], 1e-4, 3).count_steps(251) == 376


def test_the_first_object_of_a_text() -> None:
    assert first_object('set {x} to {"a": {"b": 1}} or {"c": 2}') == {"a": {"b": 1}}
