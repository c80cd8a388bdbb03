"""ColBench as a user has it: `build` over HTTP with a policy and a human, then `judge`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from convbench.store import Run
from tests.helpers.sandbox import HUMAN, command, needs_wall, renders
from tests.support.chat.plan import Plan
from tests.support.provider import Call, Provider

SECRET = "sentinelsecret"
PAGE = f"<html><body><h1>{SECRET}</h1><button>Go</button></body></html>"
CODE = f"def scale(a):\n    '''{SECRET}'''\n    return [3 * x for x in a]"


def tasks(folder: Path, reference: str, **more: object) -> str:
    """Write two tasks; return the option that reads them."""
    rows = [
        {"problem_description": f"Make the thing number {n}.", "ground_truth": reference, **more}
        for n in (1, 2)
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"task.source.file={file}"


def requests(provider: Provider) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the bodies of the agent's calls and of the human's."""
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for body in provider.requests:
        sides[HUMAN in str(body["messages"][0]["content"])].append(body)
    return sides


def build(folder: Path, task: str, provider: Provider, *more: str) -> Run:
    """Build one sample of both tasks over HTTP, then judge without naming a judge."""
    base = ("--api-base", provider.api_base, "--concurrency", "1")
    command(
        folder, "build", task, "--model", "openai/scripted", "--samples", "1",
        "--temperatures", "1.0", "--tasks", "all", "--split", "all", "--run", "run", *base, *more,
    )  # fmt: skip
    command(folder, "judge", "--run", "run")
    return Run.open(folder / "run")


def programmer(call: Call) -> str:
    """Ask, then answer: rightly where the task is number 1."""
    if HUMAN in call.system:
        return "Every number times three, please. " + "Really. " * 100
    if len(call.messages) < 4:
        return "MYTHOUGHT\nOUTPUT: By how much?"
    factor = 3 if "number 1" in call.text else 2
    return (
        f"OUTPUT: I WANT TO ANSWER:\n```python\ndef scale(a): return [{factor} * x for x in a]\n```"
    )


@needs_wall
def test_backend_over_http(tmp_path: Path) -> None:
    calls = json.dumps({f"test{i}": f"scale([{i}, 1])" for i in range(10)})
    source = tasks(tmp_path, CODE, test_cases=calls)
    with Provider(Plan(keep_requests=100), reply=programmer) as provider:
        run = build(tmp_path, "colbench-backend", provider, "--set", source)
        agent, human = requests(provider)
    assert (len(agent), len(human)) == (4, 2)
    for body in agent:
        assert SECRET not in json.dumps(body), "the agent never sees the reference"
        assert "scale([" not in json.dumps(body), "nor the tests"
        assert (body["temperature"], body["max_tokens"]) == (1.0, 1024)
    for body in human:
        assert SECRET in body["messages"][0]["content"]
        assert "MYTHOUGHT" not in json.dumps(body), "private thought is not heard"
        assert body["temperature"] == 0
    answered = [body for body in agent if len(body["messages"]) > 2]
    assert [len(body["messages"][-1]["content"]) for body in answered] == [400, 400]
    success = {run.examples[c.example_id].question: c.conversation_id for c in run.conversations()}
    scores = {v.conversation_id: v.scores for v in run.verdicts()}
    assert scores[success["Make the thing number 1."]] == {
        "overall": 1.0, "accuracy": 1.0, "constant": 0.1,
    }  # fmt: skip
    assert scores[success["Make the thing number 2."]] == {
        "overall": 0.0, "accuracy": 0.0, "constant": 0.1,
    }  # fmt: skip


def designer(call: Call) -> str:
    """Write a page, then the final one; a human says what differs."""
    if HUMAN in call.system:
        return f"I look at {call.text.count('[image]')} pictures. The button is missing."
    if len(call.messages) < 4:
        return "MYTHOUGHT\nOUTPUT: <html><body><h1>Hello</h1></body></html>"
    return "I WANT TO ANSWER: <html><body><h1>Hello</h1><button>Go</button></body></html>"


@pytest.mark.exhaustive
@renders
def test_frontend_over_http_with_pictures(tmp_path: Path) -> None:
    source = tasks(tmp_path, PAGE)
    with Provider(Plan(keep_requests=100), reply=designer) as provider:
        run = build(tmp_path, "colbench-frontend", provider, "--set", source)
        agent, human = requests(provider)
    assert (len(agent), len(human)) == (4, 2)
    for body in agent:
        assert all(isinstance(message["content"], str) for message in body["messages"])
        assert SECRET not in json.dumps(body)
    stored = {path.read_bytes() for path in run.media_folder.iterdir()}
    assert len(stored) == 2, "the agent's page and the wanted one"
    for body in human:
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        parts = body["messages"][1]["content"]
        shown = [base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
                 for part in parts if part["type"] == "image_url"]  # fmt: skip
        assert len(shown) == 2
        assert set(shown) == stored
        assert "MYTHOUGHT" not in json.dumps(body)
        assert "<html" not in json.dumps(body)
    assert "I look at 2 pictures" in str([c.turns for c in run.conversations()])
    for verdict in run.verdicts():
        scores = verdict.scores
        assert set(scores) == {"overall", "blank", "random_pair"}
        assert scores["overall"] > scores["blank"]
        assert scores["random_pair"] == pytest.approx(1), "both tasks want the same page"
        assert verdict.details["pairs"] == 1


@pytest.mark.exhaustive
@renders
def test_frontend_over_http_with_a_human_who_only_reads(tmp_path: Path) -> None:
    source = tasks(tmp_path, PAGE)
    reads = "task.speakers.browser=rule:convbench.rollout.pages:structure"
    with Provider(Plan(keep_requests=100), reply=designer) as provider:
        build(tmp_path, "colbench-frontend", provider, "--set", source, "--set", reads)
        agent, human = requests(provider)
    for body in human:
        [_, seen] = body["messages"]
        assert f"text <h1> '{SECRET}'" in seen["content"], "what is visible of the wanted page"
        assert "text <h1> 'Hello'" in seen["content"]
        assert "<html" not in seen["content"]
    assert len(human) == 2
    assert SECRET not in json.dumps(agent)
