"""What a resumed run refuses and what it takes over; torn files; budgets."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from convbench.errors import BudgetError, RunError, SpecError
from convbench.experiments.evaluate import evaluate_policy
from convbench.options.build import BuildOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.shared import CallOptions, RunSettings, SpecOptions
from convbench.rollout.calls import check_consent
from convbench.shards.build import build_or_resume
from convbench.store import Run
from tests.helpers.cli import convbench, get, post, records, said

QUIET = CallOptions(quiet=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(run: str, **more: object) -> BuildOptions:
    """Two questions, one sample each, nobody asked but a script."""
    values = {"task": "demo", "tasks": 2, "model": "scripted:policy", "calls": QUIET, **more}
    shape = RunSettings(samples=1, temperatures=(0.7,), **values.pop("shape", {}))  # type: ignore[arg-type]
    return BuildOptions(run=Path(run), shape=shape, **values)  # type: ignore[arg-type]


CHANGES = [
    ({"shape": {"mode": "standard"}}, "mode: 'thinking' → 'standard'"),
    ({"shape": {"turns": 4}}, "turns: 3 → 4"),
    ({"shape": {"seed": 1}}, "seed: 0 → 1"),
    ({"shape": {"split": "test"}}, "split: 'all' → 'test'"),
    ({"shape": {"max_tokens": 9}}, "sampling.max_tokens: 512 → 9"),
    ({"shape": {"top_p": 0.9}}, "sampling.top_p: None → 0.9"),
    ({"model": "scripted:echo"}, "cast.assistant.model: 'scripted:policy' → 'scripted:echo'"),
    ({"tasks": 3}, "task.sample.count: 2 → 3"),
    ({"protocol": "direct"}, "protocol.name: 'reasoning' → 'direct'"),
    (
        {"specs": SpecOptions(sets=("task.instruction=Think of cats.",))},
        "task.instruction: 'This question is from a science exam.' → 'Think of cats.'",
    ),
    (
        {"specs": SpecOptions(sets=("protocol.title=mine",))},
        "→ 'mine'",
    ),
    ({"specs": SpecOptions(sets=("task.sample.count=3",)), "tasks": None}, "count: 2 → 3"),
]


@pytest.mark.parametrize("bare", [False, True], ids=["same command", "only --run"])
def test_changed_specs_are_refused_by_name(here: Path, bare: bool) -> None:
    build_or_resume(small("run"))
    before = {path: path.read_bytes() for path in here.glob("run/*.json*")}
    for change, difference in CHANGES:
        nothing = {"task": None, "tasks": None, "model": None} if bare else {}
        with pytest.raises(RunError, match="the options do not match this run") as refused:
            build_or_resume(small("run", **{**nothing, **change}))
        assert difference in str(refused.value)
        assert "\n" not in str(refused.value)
    assert before == {path: path.read_bytes() for path in here.glob("run/*.json*")}


def test_an_edited_spec_file_is_refused_too(here: Path) -> None:
    mine = here / "specs" / "tasks"
    mine.mkdir(parents=True)
    (mine / "mine.yaml").write_text("extends: demo\ninstruction: First.\n")
    build_or_resume(small("run", task="mine"))
    (mine / "mine.yaml").write_text("extends: demo\ninstruction: Second.\n")
    with pytest.raises(RunError, match=r"task\.instruction: 'First\.' → 'Second\.'"):
        build_or_resume(small("run", task="mine"))
    assert build_or_resume(small("run", task=None, tasks=None, model=None)).resumed


def test_the_same_command_resumes_and_says_nothing_new(here: Path) -> None:
    first = build_or_resume(small("run"))
    again = build_or_resume(small("run"))
    assert (first.resumed, again.resumed) == (False, True)
    assert again.manifest == first.manifest
    assert again.built is not None
    assert again.built.jobs.done == 0
    assert len(records(here / "run" / "conversations.jsonl")) == 2


def test_local_weights_that_changed_are_refused(here: Path) -> None:
    manifest = build_or_resume(small("run")).manifest
    weights = here / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    cast = {**manifest.cast, "assistant": manifest.cast["assistant"].model_copy(
        update={"model": f"local:{weights}", "fingerprint": "0" * 16}
    )}  # fmt: skip
    changed = manifest.model_copy(update={"cast": cast})
    (here / "run" / "run.json").write_text(changed.model_dump_json())
    with pytest.raises(RunError, match=r"cast\.assistant\.fingerprint: '0000000000000000' → "):
        build_or_resume(BuildOptions(run=Path("run"), calls=QUIET))


@pytest.mark.parametrize("where", ["check", "speaker"])
def test_a_pulled_run_names_no_code(here: Path, where: str) -> None:
    """Its specs came from elsewhere: they are data."""
    manifest = build_or_resume(small("run")).manifest.model_dump(mode="json")
    manifest["pulled_from"] = "someone/something@abc"
    if where == "check":
        manifest["protocol"]["checks"] = [{"function": "os:getcwd"}]
    else:
        manifest["cast"]["assistant"]["model"] = "rule:os:getcwd"
    (here / "run" / "run.json").write_text(json.dumps(manifest))
    (here / "run" / "conversations.jsonl").unlink()
    with pytest.raises(SpecError, match="os:getcwd: named by a downloaded spec"):
        build_or_resume(BuildOptions(run=Path("run"), calls=QUIET))
    assert records(here / "run" / "conversations.jsonl") == []
    if where == "check":
        with pytest.raises(SpecError, match="os:getcwd: named by a downloaded spec"):
            evaluate_policy(EvalOptions("scripted:policy", Path("run"), split="train", calls=QUIET))


def test_a_pulled_run_asks_the_models_that_the_user_names_and_no_other(here: Path) -> None:
    run = build_or_resume(small("run"))
    pulled = Run(
        here / "run", run.manifest.model_copy(update={"pulled_from": "someone/something@abc"})
    )
    check_consent(pulled, "openai/mine", None, QUIET.with_user_models("openai/mine"))
    with pytest.raises(RunError, match="openai/theirs"):
        check_consent(pulled, "openai/theirs", None, QUIET.with_user_models("openai/mine"))


def test_torn_files_cost_only_what_was_torn(provider: str, here: Path) -> None:
    """Both files cut at random bytes: the missing calls are made again, and no other."""
    calls = CallOptions(api_base=f"{provider}/v1", quiet=True)
    build_or_resume(small("whole", model="openai/scripted", calls=calls))
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
        build_or_resume(BuildOptions(run=run, calls=calls))
        assert said(run) == expected
        assert get(provider, "/_stats")["calls"] == len(missing)


def test_a_failed_conversation_is_tried_again(provider: str, here: Path) -> None:
    """The provider says that one question is too long; later it does not."""
    calls = CallOptions(api_base=f"{provider}/v1", quiet=True)
    question = "longer in the late afternoon"
    post(provider, "/_config", {"poison": {question: "empty"}, "context_tokens": 40})
    built = build_or_resume(small("run", tasks="all", model="openai/scripted", calls=calls)).built
    assert built is not None
    assert built.failed == 40
    assert all("context" in message for message in built.failures)
    post(provider, "/_config", {"poison": {}, "context_tokens": None})
    again = build_or_resume(BuildOptions(run=Path("run"), calls=calls)).built
    assert again is not None
    assert (again.jobs.done, again.failed) == (40, 0)
    attempts = [record["attempt"] for record in records(here / "run" / "conversations.jsonl")]
    assert sorted(attempts) == [0] * 40 + [1] * 40


# -- budgets


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
        assert limit - 1500 < spent(provider) <= limit
    ended = convbench(tmp_path, "build", *common, "--budget-tokens", "1000000")
    assert ended.code == 0, ended.err
    assert len(said(tmp_path / "run")) == 18
    assert get(provider, "/_stats")["calls"] == 54
    assert get(provider, "/_stats")["repeats"] == 0


def test_a_dollar_budget_stops_before_it_is_passed(provider: str, here: Path) -> None:
    """gpt-4o-mini's price is known; the run's own journal says what was paid."""
    calls = CallOptions(api_base=f"{provider}/v1", quiet=True, budget=0.001)
    built = build_or_resume(small("run", tasks=20, model="gpt-4o-mini", calls=calls)).built
    assert built is not None
    assert isinstance(built.jobs.stopped, BudgetError)
    assert "resume with a larger --budget" in str(built.jobs.stopped)
    paid = sum(record["cost_usd"] for record in records(here / "run" / "calls.jsonl"))
    assert 0.0001 < paid <= 0.001
    more = CallOptions(api_base=f"{provider}/v1", quiet=True, budget=1.0)
    ended = build_or_resume(BuildOptions(run=Path("run"), calls=more)).built
    assert ended is not None
    assert ended.jobs.stopped is None
    assert len(said(here / "run")) == 20


def test_dollars_cannot_limit_what_has_no_price(here: Path) -> None:
    calls = CallOptions(api_base="http://127.0.0.1:9/v1", quiet=True, budget=5.0)
    with pytest.raises(BudgetError, match=r"price of openai/nameless is unknown.*--budget-tokens"):
        build_or_resume(small("run", model="openai/nameless", calls=calls))
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
    calls = CallOptions(api_base=f"{provider}/v1", quiet=True, budget=100.0)
    built = build_or_resume(small("run", model="mine", calls=calls)).built
    assert built is not None
    assert built.jobs.stopped is None
    paid = [record["cost_usd"] for record in records(here / "run" / "calls.jsonl")]
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
