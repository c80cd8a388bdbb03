"""What members, tools and launches of specs say of themselves, and what is refused."""

from __future__ import annotations

import pytest

from convbench.schema import ModelConfig, Sampling
from convbench.schema.recipe import LaunchSpec


def test_a_chat_template_sees_the_options_that_are_for_it_alone() -> None:
    """Options of rendering would replace the messages, or return tokens in place of a text."""
    options = {"enable_thinking": False, "tokenize": True, "messages": [], "documents": []}
    member = ModelConfig(
        model="local:pocket",
        sampling=Sampling(reasoning_effort="low"),
        extra_body={"chat_template_kwargs": options},
    )
    assert member.template_options == {"enable_thinking": False, "reasoning_effort": "low"}
    assert ModelConfig(model="local:pocket").template_options == {}


@pytest.mark.parametrize("wrong", ["two", 1.5, -1])
def test_a_launch_counts_its_processes_in_whole_numbers(wrong: object) -> None:
    told = {"name": "ddp", "title": "t", "accelerate": {"num_processes": wrong}}
    with pytest.raises(ValueError, match=r"accelerate\.num_processes: found .* a whole number"):
        LaunchSpec.model_validate(told)
