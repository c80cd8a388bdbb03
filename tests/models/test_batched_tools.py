"""`--batch` with tools and with replies by a schema: each round of tools waits for its wave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.store import Run
from tests.helpers.batched import ANTHROPIC, OPENAI, base, quick, sent
from tests.support.batches import BatchProvider
from tests.support.chat.replies import METRICS, Call
from tests.support.chat.shopper import shopper
from tests.support.exhaustive import first_of

__all__ = ["quick"]


def says(call: Call) -> str:
    """A judge scores as it is asked to; the policy shops."""
    if "expert evaluator" in call.system:
        forms = ("response_format", "output_format", "output_config")
        assert "overall" in json.dumps([call.body.get(form) for form in forms])
        names = ("accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence",
                 "overall")  # fmt: skip
        assert len(names) == len(METRICS)
        return json.dumps({name: {"score": 7, "justification": "so"} for name in names})
    return shopper(call)


@pytest.fixture
def provider() -> Iterator[BatchProvider]:
    with BatchProvider(reply=says) as server:
        yield server


@pytest.mark.parametrize("model", first_of([ANTHROPIC, OPENAI]))
def test_rounds_of_tools_and_structured_verdicts_go_in_waves(
    provider: BatchProvider, model: str, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"mode": "standard", "samples": 1, "temperatures": (0.7,)}
    path = _market(provider, model, **more)
    run = Run.open(path)
    talks = list(run.conversations())
    assert [talk.failure for talk in talks] == [None] * 4
    for talk in talks:
        gold = run.examples[talk.example_id].answer
        assert str(talk.turns[-1].content).startswith(f"The answer is {gold}.")
        assert [len(one.calls) for one in talk.turns[-1].rounds] == [2, 1]
    assert sent(provider) == [4, 4, 4], "a wave a round, all dialogues in it"
    convbench.judge(path, model, api_base=base(provider, model), batch=True, quiet=True)
    assert sent(provider) == [4, 4, 4, 4]
    verdicts = list(Run.open(path).verdicts())
    assert [verdict.scores["overall"] for verdict in verdicts] == [7.0] * 4


def _market(provider: BatchProvider, model: str, **more: Any) -> Path:
    return convbench.build(
        "market", model=model, api_base=base(provider, model), run="batched", tasks=4, quiet=True,
        batch=True, **more,
    ).path  # fmt: skip
