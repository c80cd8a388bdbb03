"""What a resumed run refuses and what it takes over; torn files; budgets."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from convbench.engine.session import Session
from convbench.errors import BudgetError, RunError, SpecError
from convbench.options.shared import CallOptions
from convbench.rollout.calls import check_named
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import convbench, get, post, records, said

QUIET = CallOptions(quiet=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(run: str, **more: object) -> dict[str, object]:
    """Two questions, one sample each, nobody asked but a script."""
    asked = {"task": "demo", "tasks": 2, "model": "scripted:policy", "samples": 1}
    return {**asked, "temperatures": (0.7,), "run": Path(run), **more}


CHANGES = [
    ({"mode": "standard"}, "mode: 'thinking' → 'standard'"),
    ({"turns": 4}, "turns: 3 → 4"),
    ({"seed": 1}, "seed: 0 → 1"),
    ({"split": "test"}, "split: 'all' → 'test'"),
    ({"max_tokens": 9}, "sampling.max_tokens: 512 → 9"),
    ({"top_p": 0.9}, "sampling.top_p: None → 0.9"),
    ({"model": "scripted:echo"}, "cast.assistant.model: 'scripted:policy' → 'scripted:echo'"),
    ({"tasks": 3}, "task.sample.count: 2 → 3"),
    ({"protocol": "direct"}, "protocol.name: 'reasoning' → 'direct'"),
    (
        {"set": ("task.instruction=Think of cats.",)},
        "task.instruction: 'This question is from a science exam.' → 'Think of cats.'",
    ),
    (
        {"set": ("protocol.title=mine",)},
        "→ 'mine'",
    ),
    ({"set": ("task.sample.count=3",), "tasks": None}, "count: 2 → 3"),
]


@pytest.mark.parametrize("bare", [False, True], ids=["same command", "only --run"])
def test_changed_specs_are_refused_by_name(here: Path, bare: bool) -> None:
    stages.build(**small("run"))
    before = {path: path.read_bytes() for path in here.glob("run/*.json*")}
    for change, difference in CHANGES:
        nothing = {"task": None, "tasks": None, "model": None} if bare else {}
        with pytest.raises(RunError, match="the options do not match this run") as refused:
            stages.build(**small("run", **{**nothing, **change}))
        assert difference in str(refused.value)
        assert "\n" not in str(refused.value)
    assert before == {path: path.read_bytes() for path in here.glob("run/*.json*")}


def test_an_edited_spec_file_is_refused_too(here: Path) -> None:
    mine = here / "specs" / "tasks"
    mine.mkdir(parents=True)
    (mine / "mine.yaml").write_text("extends: demo\ninstruction: First.\n")
    stages.build(**small("run", task="mine"))
    (mine / "mine.yaml").write_text("extends: demo\ninstruction: Second.\n")
    with pytest.raises(RunError, match=r"task\.instruction: 'First\.' → 'Second\.'"):
        stages.build(**small("run", task="mine"))
    assert stages.build_result(**small("run", task=None, tasks=None, model=None)).resumed


def test_the_same_command_resumes_and_says_nothing_new(here: Path) -> None:
    first = stages.build_result(**small("run"))
    again = stages.build_result(**small("run"))
    assert (first.resumed, again.resumed) == (False, True)
    assert again.manifest == first.manifest
    assert again.built is not None
    assert again.built.jobs.done == 0
    assert len(records(here / "run" / "conversations.jsonl")) == 2


def test_local_weights_that_changed_are_refused(here: Path) -> None:
    manifest = stages.build(**small("run")).manifest
    weights = here / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    cast = {**manifest.cast, "assistant": manifest.cast["assistant"].model_copy(
        update={"model": f"local:{weights}", "fingerprint": "0" * 16}
    )}  # fmt: skip
    changed = manifest.model_copy(update={"cast": cast})
    (here / "run" / "run.json").write_text(changed.model_dump_json())
    with pytest.raises(RunError, match=r"cast\.assistant\.fingerprint: '0000000000000000' → "):
        stages.build(run=Path("run"))


@pytest.mark.parametrize("where", ["check", "speaker"])
def test_a_pulled_run_names_no_code(here: Path, where: str) -> None:
    """Its specs came from elsewhere: they are data."""
    manifest = stages.build(**small("run")).manifest.model_dump(mode="json")
    manifest["pulled_from"] = "someone/something@abc"
    if where == "check":
        manifest["protocol"]["checks"] = [{"function": "os:getcwd"}]
    else:
        manifest["cast"]["assistant"]["model"] = "rule:os:getcwd"
    (here / "run" / "run.json").write_text(json.dumps(manifest))
    (here / "run" / "conversations.jsonl").unlink()
    with pytest.raises(SpecError, match="os:getcwd: named by a downloaded spec"):
        stages.build(run=Path("run"))
    assert records(here / "run" / "conversations.jsonl") == []
    if where == "check":
        with pytest.raises(SpecError, match="os:getcwd: named by a downloaded spec"):
            stages.evaluate("scripted:policy", Path("run"), split="train")


def test_a_pulled_run_asks_the_models_that_the_user_names_and_no_other(here: Path) -> None:
    run = stages.build(**small("run"))
    pulled = Run(
        here / "run", run.manifest.model_copy(update={"pulled_from": "someone/something@abc"})
    )
    check_named(pulled, "openai/mine", None, QUIET, Session().naming("openai/mine"))
    with pytest.raises(RunError, match="openai/theirs"):
        check_named(pulled, "openai/theirs", None, QUIET, Session().naming("openai/mine"))


def test_torn_files_cost_only_what_was_torn(provider: str, here: Path) -> None:
    """Both files cut at random bytes: the missing calls are made again, and no other."""
    stages.build(**small("whole", model="openai/scripted", api_base=f"{provider}/v1"))
    expected = said(here / "whole")
    cuts = random.Random(7)
    for number in range(12):
        run = here / f"cut{number}"
        shutil.copytree(here / "whole", run)
        for name in ("conversations.jsonl", "calls.jsonl"):
            data = (run / name).read_bytes()
            (run / name).write_bytes(data[: cuts.randint(0, len(data))])
        had = {record["key"] for record in records(run / "conversations.jsonl")}
        journal = {record["key"] for record in records(run / "calls.jsonl")}
        missing = [
            f"{key}@{turn}"
            for key in set(expected) - had
            for turn in (1, 3, 5)
            if f"{key}@{turn}" not in journal
        ]
        post(provider, "/_reset")
        stages.build(run=run, api_base=f"{provider}/v1")
        assert said(run) == expected
        assert get(provider, "/_stats")["calls"] == len(missing)


def test_a_failed_conversation_is_tried_again(provider: str, here: Path) -> None:
    """The provider says that one question is too long; later it does not."""
    question = "longer in the late afternoon"
    post(provider, "/_config", {"poison": {question: "empty"}, "context_tokens": 40})
    asked = small("run", tasks="all", model="openai/scripted", api_base=f"{provider}/v1")
    built = stages.build_result(**asked).built
    assert built is not None
    assert built.failed == 40
    assert all("context" in message for message in built.failures)
    post(provider, "/_config", {"poison": {}, "context_tokens": None})
    again = stages.build_result(run=Path("run"), api_base=f"{provider}/v1").built
    assert again is not None
    assert (again.jobs.done, again.failed) == (40, 0)
    attempts = [record["attempt"] for record in records(here / "run" / "conversations.jsonl")]
    assert sorted(attempts) == [0] * 40 + [1] * 40


# -- budgets


def paid_calls(run: Path) -> list[float]:
    """Return the dollars of each call in a run's journal."""
    lines = records(run / "calls.jsonl")
    return [record["cost_usd"] for record in lines if "content" in record]


def spent(url: str) -> int:
    stats = get(url, "/_stats")
    return stats["prompt_tokens"] + stats["completion_tokens"]


def test_a_token_budget_stops_before_the_call_that_would_pass_it(
    provider: str, tmp_path: Path
) -> None:
    """The limit is run-wide: what was spent before a resume counts."""
    post(provider, "/_config", {"latency_s": 0.02})
    post(provider, "/_reset")
    common = ["--api-base", f"{provider}/v1", "--run", "run", "--quiet", "--concurrency", "4"]
    first = ["build", "demo", "--tasks", "6", "--max-tokens", "100", "--model", "openai/scripted"]
    for limit, command in ((3000, first), (6000, ["build"])):
        stopped = convbench(tmp_path, *command, *common, "--budget-tokens", str(limit))
        assert stopped.code == 1
        assert f"of {limit} tokens" in stopped.err
        assert "--budget-tokens" in stopped.err
        assert "Traceback" not in stopped.err
        assert limit - 2500 < spent(provider) <= limit
    ended = convbench(tmp_path, "build", *common, "--budget-tokens", "1000000")
    assert ended.code == 0, ended.err
    assert len(said(tmp_path / "run")) == 18
    assert get(provider, "/_stats")["calls"] == 54
    assert get(provider, "/_stats")["repeats"] == 0


def test_a_dollar_budget_stops_before_it_is_passed(provider: str, here: Path) -> None:
    """gpt-4o-mini's price is known; the run's own journal says what was paid."""
    asked = small("run", tasks=20, model="gpt-4o-mini", api_base=f"{provider}/v1", budget=0.001)
    built = stages.build_result(**asked).built
    assert built is not None
    assert isinstance(built.jobs.stopped, BudgetError)
    assert "resume with a larger --budget" in str(built.jobs.stopped)
    paid = sum(paid_calls(here / "run"))
    assert 0.0001 < paid <= 0.001
    ended = stages.build_result(run=Path("run"), api_base=f"{provider}/v1", budget=1.0).built
    assert ended is not None
    assert ended.jobs.stopped is None
    assert len(said(here / "run")) == 20


def test_dollars_cannot_limit_what_has_no_price(here: Path) -> None:
    nowhere = "http://127.0.0.1:9/v1"
    with pytest.raises(BudgetError, match=r"price of openai/nameless is unknown.*--budget-tokens"):
        stages.build(**small("run", model="openai/nameless", api_base=nowhere, budget=5.0))
    assert list(here.iterdir()) == [], "refused before anything is written"


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("gpt-4o-mini", "no key; set the environment variable OPENAI_API_KEY"),
        ("scripted:nobody", "no such model; expected one of: scripted:policy"),
        ("hosted_vllm/x", "no server; give --api-base"),
        ("rule:nothing_here:f", "cannot import 'nothing_here'"),
        ("claude-4-opus", "no longer served; use claude-opus"),
        ("nobody-knows-it", "no model 'nobody-knows-it'"),
    ],
)
def test_a_model_that_cannot_speak_leaves_nothing_behind(
    tmp_path: Path, model: str, line: str
) -> None:
    refused = convbench(tmp_path, "build", "demo", "--model", model)
    assert line in refused.error
    assert list(tmp_path.iterdir()) == []


def test_an_alias_keeps_its_price_and_settings_in_a_run(provider: str, here: Path) -> None:
    """A run records the reference; price, headroom and dropped parameters are found again."""
    (here / "specs").mkdir()
    alias = {
        "ref": "openai/nameless",
        "input_per_million": 1000,
        "output_per_million": 1000,
        "headroom": 77,
        "drop": ["temperature"],
    }
    (here / "specs" / "models.yaml").write_text(json.dumps({"models": {"mine": alias}}))
    post(provider, "/_config", {"keep_requests": 50})
    asked = small("run", model="mine", api_base=f"{provider}/v1", budget=100.0)
    built = stages.build_result(**asked).built
    assert built is not None
    assert built.jobs.stopped is None
    paid = paid_calls(here / "run")
    assert len(paid) == 6
    assert sum(paid) == pytest.approx(spent(provider) / 1000)
    for request in get(provider, "/_requests"):
        assert request["max_tokens"] == 512 + 77
        assert "temperature" not in request


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0.1,0.2"])
def test_temperatures_that_are_none_are_refused(tmp_path: Path, value: str) -> None:
    refused = convbench(
        tmp_path, "build", "demo", "--model", "scripted:policy", f"--temperatures={value}",
        "--samples", "3",
    )  # fmt: skip
    assert "--temperatures" in refused.error
    assert not (tmp_path / "runs").exists()
