"""Controls through their rooms: a judge behind real HTTP that likes length is unfit, and build,
judge, report and train say so; one that reads the question is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.judges.controls import (
    ATTACKS,
    CONSTANT,
    CONTROLS,
    PADDED,
    SAMPLE,
    control_conversations,
    control_results,
)
from convbench.schema import text_of
from convbench.store import Run
from convbench.views import policy_turns
from tests.helpers import stages
from tests.helpers.cli import convbench
from tests.helpers.typed import type_here
from tests.support.chat.plan import Plan
from tests.support.chat.replies import METRICS, Call, scripted_reply
from tests.support.provider import Provider


def reply(call: Call) -> str:
    """`hosted_vllm/long` pays by words; `hosted_vllm/fair` nothing for what has no content."""
    if "Overall:" not in call.system:
        return scripted_reply(call)
    told = call.text
    empty = CONSTANT[:40] in told or PADDED[:40] in told or "Assistant:\n>\n" in told
    score: float = 1 if empty else 6
    if call.model.endswith("long"):
        score = round(min(10, len(re.findall(r"\w+", told)) / 90), 2)
    return "\n".join(f"{label}: {score}\nJustification: so it is." for label in METRICS)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    monkeypatch.chdir(tmp_path)
    with Provider(Plan(context_tokens=None), reply=reply) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def test_a_judge_that_likes_length_is_unfit_wherever_it_is_read(provider: Provider) -> None:
    done = convbench(
        Path(), "build", "demo", "--tasks", "6", "--samples", "2", "--temperatures", "0.5",
        "--set", "task.sample.train=0.7", "--model", "hosted_vllm/policy", "--run", "runs/one",
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
    both = ("--judge", "hosted_vllm/long", "--judge", "hosted_vllm/fair")
    done = convbench(Path(), "judge", *both, "--controls")
    assert done.code == 0, done.out + done.err
    assert "judge hosted_vllm/long is unfit: padded answers have a mean score" in " ".join(
        done.err.split()
    )
    assert "fair is unfit: padded" not in " ".join(done.err.split())
    run = Run.open(Path("runs/one"))
    marks = {v.judge: v.fingerprint for v in run.verdicts()}
    told = {
        one.control: one
        for one in control_results(run, "hosted_vllm/long", marks["hosted_vllm/long"])
    }
    assert set(told) == set(CONTROLS)
    assert told["padded"].is_above_own
    assert not told["empty"].is_above_own
    calls = provider.stats.calls
    convbench(Path(), "judge", *both, "--controls")
    assert provider.stats.calls == calls  # what was tried is kept
    # No control is a verdict on a conversation.
    ids = {c.conversation_id for c in run.conversations()}
    assert {v.conversation_id for v in run.verdicts()} == ids
    shown = convbench(Path(), "report", "--split", "all", "--judge", "hosted_vllm/long")
    padded = told["padded"]
    assert (
        "Judge hosted_vllm/long is unfit: padded answers have a mean score of "
        f"{padded.score:.2f} on" in " ".join(shown.out.split())
    )
    fair = convbench(Path(), "report", "--split", "all", "--judge", "hosted_vllm/fair")
    assert "fair is unfit: padded" not in " ".join(fair.out.split())
    dry = type_here(
        "train", "refit", "--judge", "hosted_vllm/long", "--model", "local:pocket", "--dry-run"
    )
    assert "is unfit: padded answers" in " ".join((dry.out + dry.err).split())


def test_controls_are_told_in_the_place_of_the_policy_alone(provider: Provider) -> None:
    convbench(
        Path(), "build", "demo", "--tasks", "5", "--samples", "1", "--temperatures", "0.5",
        "--model", "hosted_vllm/policy", "--run", "runs/one",
    )  # fmt: skip
    run = Run.open(Path("runs/one"))
    own = {c.example_id: c for c in run.conversations()}
    found = list(control_conversations(run))
    assert [c.conversation_id for c in found] == [
        c.conversation_id for c in control_conversations(run)
    ]
    assert len(found) == len(CONTROLS) * min(SAMPLE, len(own))
    attacks = {attack.text for attack in ATTACKS}
    for talk in found:
        kind = talk.conversation_id.split(":")[1]
        turns = policy_turns(run.manifest.protocol, talk)
        said = [text_of(talk.turns[i].content) for i in turns]
        real = own[talk.example_id]
        for index, (one, other) in enumerate(zip(talk.turns, real.turns, strict=True)):
            assert index in turns or one == other
        if kind == "injected":
            assert said[-1] in attacks
        elif kind == "copied":
            others = [c for c in own.values() if c.example_id != talk.example_id]
            assert any(said[-1] == text_of(c.turns[turns[-1]].content) for c in others)
        else:
            assert set(said) == {{"empty": "", "constant": CONSTANT, "padded": PADDED}[kind]}


def test_labels_and_tests_have_no_controls(provider: Provider) -> None:
    convbench(
        Path(), "build", "demo", "--tasks", "5", "--samples", "1", "--temperatures", "0.5",
        "--model", "hosted_vllm/policy", "--run", "runs/one",
    )  # fmt: skip
    run = Run.open(Path("runs/one"))
    name = next(run.conversations()).conversation_id
    Path("labels.csv").write_text(f"conversation_id,overall\n{name},3\n")
    with pytest.raises(RunError, match="is of kind human; expected a rubric"):
        stages.judge(run.path, "human:labels.csv", controls=True)
