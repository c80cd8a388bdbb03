"""What a provider caches is used and priced: counted by a server that bills as OpenAI or Anthropic
do, tokens by characters, with the usual least of 1,024 tokens."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from convbench.options.shared import SpecOptions
from convbench.store import Run
from tests.helpers import stages
from tests.support.chat.caching import Ledger
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.provider import Provider

MILLIONS = {
    "input_per_million": 1, "output_per_million": 5, "cached_per_million": 0.1,
    "cache_write_per_million": 1.25,
}  # fmt: skip
PASSAGE = "The keeper of the eastern lighthouse wrote down the weather on every evening. "


def specs_of(home: Path, provider: str) -> SpecOptions:
    """A task about passages of some 1,900 tokens, and three names of a model."""
    folder = home / "mine"
    (folder / "tasks").mkdir(parents=True)
    rows = [
        {"id": f"q{i}", "question": f"Passage {i}. {PASSAGE * 100}\nWho kept the light of {i}?",
         "choices": {"label": ["A", "B"], "text": ["nobody", "the keeper"]}, "answerKey": "B"}
        for i in range(4)
    ]  # fmt: skip
    (home / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "title": "long passages", "source": {"file": str(home / "rows.jsonl")},
        "rows": {"key": "id", "choices": "choices", "answer": "answerKey"},
        "sample": {"count": "all", "train": 0.5},
    }  # fmt: skip
    (folder / "tasks" / "long.yaml").write_text(json.dumps(task))
    models = {name: {"ref": f"{provider}/{name}", **MILLIONS} for name in ("one", "two", "three")}
    (folder / "models.yaml").write_text(json.dumps({"models": models}))
    return SpecOptions((folder,))


def says(call: Call) -> str:
    """A judge scores; the policy answers in some hundred tokens."""
    if "Overall:" in call.system:
        return scripted_reply(call)
    return f"The answer is B. {'The passage says so, and nothing speaks against it. ' * 8}"


def dollars(run: Run) -> float:
    talks = (turn.cost_usd for talk in run.conversations() for turn in talk.turns)
    verdicts = (verdict.cost_usd for verdict in run.verdicts())
    return math.fsum(usd or 0.0 for usd in (*talks, *verdicts))


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_three_samples_and_two_judges_cost_at_most_55_percent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    specs = specs_of(tmp_path, provider).folders
    with Provider(Plan(keep_requests=200), reply=says) as server:
        base = server.api_base if provider == "openai" else server.url
        monkeypatch.setenv(f"{provider.upper()}_API_BASE", base)
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", "none")
        server.ledger = ledger = Ledger()
        shape = {"mode": "standard", "samples": 3, "temperatures": (0.7,)}
        stages.build("long", model="one", run=tmp_path / "run", specs=specs, **shape)
        stages.judge(tmp_path / "run", "rubric@two", "rubric@three", specs=specs)
        bodies = list(server.requests)
    run = Run.open(tmp_path / "run")
    assert len(list(run.verdicts())) == 24
    assert dollars(run) == pytest.approx(ledger.usd, rel=1e-6), "priced as billed"
    assert ledger.usd <= 0.55 * ledger.uncached_usd, ledger
    marks = ["cache_control" in json.dumps(body) for body in bodies]
    assert all(marks) if provider == "anthropic" else not any(marks)
