"""Every shipped short name in every part, at a provider that refuses whatever it can.

Eight calls are in flight when the first refusal comes, through the real client libraries with
their own checks, on the wires of Anthropic, Google and OpenAI. Each parameter without which a model
still answers is refused, one after the other, and no call may fail for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convbench.engine.caller import Caller, RetryPolicy
from convbench.errors import SpecError
from convbench.judges.dispatch import judge_conversation
from convbench.judges.group import ConversationGroup, score_group
from convbench.judges.pair import PairOrder, compare_pair
from convbench.judges.resolve import Judge, resolve_judge
from convbench.judges.work import JudgeTools
from convbench.models.aliases import aliases
from convbench.models.model import Model
from convbench.models.open import open_model
from convbench.schema import Conversation
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.judged_talk import EXAMPLE, PROTOCOL, conversation
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.exhaustive import only
from tests.support.provider import Provider

MANY = 8
REFUSED = {
    "anthropic": ("temperature", "top_p", "thinking", "output_config", "output_format"),
    "gemini": ("temperature", "top_p", "seed", "reasoning_effort", "response_format"),
    "deepseek": ("temperature", "top_p", "seed", "thinking", "reasoning_effort",
                 "response_format"),
    "openai": ("temperature", "top_p", "seed", "reasoning_effort", "response_format",
               "tool_choice", "max_tokens"),
}  # fmt: skip
"""Optional parameters of each wire; all are refused, one in each reply."""


def served() -> Iterator[tuple[str, str]]:
    """Yield (short name, the provider whose wire it speaks) of all that somebody serves."""
    for name, alias in aliases().models.items():
        scheme, _, rest = (alias.ref or "").partition(":")
        if scheme == "vllm":
            yield f"hosted_vllm/{rest}", "openai"
        elif alias.ref and scheme != "local":
            yield name, alias.ref.partition("/")[0]


SERVED = list(served())
FIRST = {provider: (name, provider) for name, provider in reversed(SERVED)}.values()


def parts(turn: int) -> pytest.MarkDecorator:
    """Every model in this part; of `make test`, each provider's first, and of the rest a sixth."""
    chosen = only(lambda one: one in FIRST or SERVED.index(one) % 6 == turn, SERVED)
    return pytest.mark.parametrize(("name", "provider"), chosen, ids=[name for name, _ in SERVED])


def by_form(call: Call) -> str:
    """Reply to a judge's call: by the schema where it has one, else in the rubric's text."""
    schema = _schema(call.body)
    if schema is not None:
        return json.dumps(_filled(schema))
    if "Preference:" in call.system:
        return "Preference: 1\nThe first one reasons."
    if "Conversation 1" in call.system:
        return "\n\n".join(f"Conversation {n}\nOverall: 6\nFine." for n in (1, 2))
    return scripted_reply(call)


def _schema(body: Any) -> dict[str, Any] | None:
    found = body.get("output_format") or body.get("response_format", {}).get("json_schema")
    return found["schema"] if found else None


def _filled(schema: dict[str, Any]) -> Any:
    if schema["type"] == "object":
        return {name: _filled(one) for name, one in schema["properties"].items()}
    return 1.5 if schema["type"] == "number" else "It reasons."


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REFUSED:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", "k")


def serving(provider: str, **more: Any) -> Provider:
    refused = dict.fromkeys(REFUSED[provider], "unsupported_parameter")
    return Provider(Plan(refuse=refused, latency_s=0.01, keep_requests=400), **more)


def base(server: Provider, provider: str) -> str:
    return server.url if provider in ("anthropic", "gemini") else server.api_base


def rubric(name: str, spec: str) -> Judge:
    """A judge that is to reason, so that its effort is refused too."""
    found = resolve_judge(f"{spec}@{name}")
    return replace(found, spec=found.spec.model_copy(update={"reasoning_effort": "low"}))


async def scored(name: str, caller: Caller, model: Model, number: int) -> Sequence[Any]:
    """Return the verdicts of one conversation, one couple and one group."""
    tools = JudgeTools(caller, MANY, model)
    talks = [
        conversation().model_copy(update={"conversation_id": f"c{number}{place}"})
        for place in range(2)
    ]
    example = EXAMPLE.model_copy(update={"example_id": f"e{number}"})
    one = await judge_conversation(
        caller, model, rubric(name, "rubric"), talks[0], example, PROTOCOL
    )
    shown = PairOrder(talks[0], talks[1], example)
    couple = await compare_pair(rubric(name, "pairwise"), shown, PROTOCOL, tools)
    group = ConversationGroup(tuple(talks), example)
    return [one, couple, *await score_group(rubric(name, "relative"), group, PROTOCOL, tools)]


@parts(0)
def test_as_a_judge_of_one_of_two_and_of_a_group(name: str, provider: str) -> None:
    notes: list[str] = []

    async def go(address: str) -> list[Sequence[Any]]:
        model = open_model(name, api_base=address, note=notes.append)
        caller = Caller(retry=RetryPolicy(concurrency=MANY, tries=1, backoff_s=0.0))
        try:
            return await asyncio.gather(*(scored(name, caller, model, n) for n in range(MANY)))
        finally:
            await model.aclose()

    with serving(provider, reply=by_form) as server:
        verdicts = [one for some in asyncio.run(go(base(server, provider))) for one in some]
        answered = [body for body in server.requests if not set(REFUSED[provider]) & set(body)]
        assert server.stats.peak_in_flight > 1
    assert len(verdicts) == 4 * MANY
    assert {one.failure for one in verdicts} == {None}
    assert {one.attempts for one in verdicts} == {1}
    assert {"temperature", "reasoning_effort"} == set(verdicts[0].details["left_out"])
    assert len(answered) == 3 * MANY
    assert len(notes) == len(set(notes))


@parts(1)
def test_as_a_policy_with_its_own_teacher(name: str, provider: str, tmp_path: Path) -> None:
    talks = built(tmp_path, name, provider, "demo", protocol="clarifying", teacher=name)
    assert {talk.failure for talk in talks} == {None}
    for speaker in ("assistant", "teacher"):
        assert "temperature" in talks[0].sent[speaker].left_out


@parts(2)
def test_as_a_policy_that_calls_tools(name: str, provider: str, tmp_path: Path) -> None:
    talks = built(tmp_path, name, provider, "market")
    assert {talk.failure for talk in talks} == {None}
    assert {len(talk.turns[-1].rounds) for talk in talks} == {2}


def built(folder: Path, name: str, provider: str, task: str, **more: Any) -> Sequence[Conversation]:
    shape = {"samples": 1, "temperatures": (0.7,), "reasoning_effort": "low"}
    with serving(provider) as server:
        stages.build(
            task, model=name, tasks=MANY, run=folder / "run", concurrency=MANY,
            api_base=base(server, provider), **shape, **more,
        )  # fmt: skip
        assert server.stats.peak_in_flight > 1
    return list(Run.open(folder / "run").conversations())


@pytest.mark.parametrize("name", ["claude-opus", "claude-sonnet"])
def test_the_judges_of_the_first_line_reach_the_end(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`convbench judge --judge claude-opus`, to the last conversation and in one call each."""
    run = stages.build(
        "demo",
        model="scripted:policy",
        tasks=6,
        run=tmp_path / "run",
        samples=2,
        temperatures=(0.7,),
    ).path
    assert run is not None
    with Provider(Plan(latency_s=0.02, keep_requests=40), reply=by_form) as server:
        calls = {"api_base": server.api_base, "concurrency": MANY}
        (judged,) = stages.judge_result(run, name, **calls).summaries
        assert server.stats.calls == 12
        assert not any({"temperature", "tools"} & set(body) for body in server.requests)
    assert (judged.jobs.done, judged.failed_count, judged.jobs.stopped) == (12, 0, None)
    for verdict in Run.open(run).verdicts():
        assert verdict.details["left_out"] == ["temperature"]
    assert "fetch" not in caplog.text


@pytest.mark.parametrize("name", ["claude-opus", "gpt-5"])
def test_a_policy_without_a_temperature_is_not_asked_at_three(name: str, tmp_path: Path) -> None:
    with Provider(Plan()) as server:
        provider = "anthropic" if "claude" in name else "openai"
        asked = {"task": "demo", "model": name, "tasks": 2, "run": tmp_path / "run",
                 "api_base": base(server, provider)}  # fmt: skip
        with pytest.raises(SpecError, match=r"found 0\.3, 0\.7, 1 for .*--temperatures 1"):
            stages.build(**asked)
        assert server.stats.calls == 0
        assert not (tmp_path / "run").exists()
        built = stages.build_result(**asked, samples=3, temperatures=(1.0,)).built
        assert built is not None
        assert built.jobs.failed == 0
