"""What a member of a run's cast says of itself."""

from __future__ import annotations

from convbench.schema import Member, Sampling


def test_a_chat_template_sees_the_options_that_are_for_it_alone() -> None:
    """Options of rendering would replace the messages, or return tokens in place of a text."""
    options = {"enable_thinking": False, "tokenize": True, "messages": [], "documents": []}
    member = Member(
        model="local:pocket",
        sampling=Sampling(reasoning_effort="low"),
        extra_body={"chat_template_kwargs": options},
    )
    assert member.template == {"enable_thinking": False, "reasoning_effort": "low"}
    assert Member(model="local:pocket").template == {}
