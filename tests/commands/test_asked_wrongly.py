"""What cannot be asked is said in one line, before anything is sent or written."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.engine import recorded_jobs
from convbench.errors import ConvbenchError, FatalModelError, SpecError
from convbench.models.aliases import resolve
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import convbench as typed
from tests.support.chat.plan import Plan
from tests.support.exhaustive import exhaustive, first_of
from tests.support.provider import Provider

BAD = ["http://[", "http://h:99999/v1", "http://h:x/v1", "h:8000/v1", "ftp://h/v1", "http://",
       "http://h:0/v1", "https://me:secret@h:99999/v1?key=secret"]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_BASE", "CONVBENCH_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("more", [
    [], ["--model", "openai/gpt-4o"], exhaustive(["--model", "claude-opus", "--temperatures", "1"]),
    ["--model", "hosted_vllm/mine"], ["--model", "local:nowhere"],
])  # fmt: skip
def test_a_dry_run_of_what_could_not_begin_says_so(here: Path, more: list[str]) -> None:
    """After the messages and the estimate: why, and no next line that would fail."""
    done = typed(here, "build", "demo", "--tasks", "2", *more, "--dry-run")
    real = typed(here, "build", "demo", "--tasks", "2", *more)
    assert (done.code, real.code) == (1, 1)
    assert "conversations  6" in done.out
    assert "next:" not in done.out
    assert done.err == real.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    if not more:
        assert "$0.00" not in done.out
    assert list(here.rglob("run.json")) == []


def test_a_dry_run_of_what_can_begin_names_it(here: Path) -> None:
    words = ("build", "demo", "--tasks", "2", "--model", "openai/gpt-4o", "--dry-run")
    done = typed(here, *words, extra={"OPENAI_API_KEY": "k"})
    assert done.code == 0
    assert "next: convbench build demo --tasks 2 --model openai/gpt-4o" in done.out


def test_a_judge_without_a_key_is_told_by_its_dry_run(here: Path) -> None:
    stages.build("demo", tasks=2, model="scripted:policy", run=here / "run")
    done = typed(here, "judge", "--judge", "gpt-4o", "--run", "run", "--dry-run")
    assert done.code == 1
    assert "verdicts" in done.out
    assert "next:" not in done.out
    assert "set the environment variable OPENAI_API_KEY" in done.err


@pytest.mark.parametrize(("model", "why"), first_of([
    ("openai/gpt-4o-mini", "set the environment variable OPENAI_API_KEY"),
    ("nosuch/model", "found no provider 'nosuch'; expected PROVIDER/NAME"),
]))  # fmt: skip
def test_an_evaluation_that_could_not_begin_is_told_by_its_dry_run(
    here: Path, model: str, why: str
) -> None:
    stages.build("demo", tasks=12, model="scripted:policy", run=here / "run")
    done = typed(here, "eval", model, "--run", "run", "--dry-run")
    real = typed(here, "eval", model, "--run", "run")
    assert "conversations" in done.out
    assert "next:" not in done.out
    assert done.error == real.error
    assert why in done.error
    assert not (here / "run" / "evals").exists()


@pytest.mark.exhaustive
def test_a_provider_that_nobody_knows_is_told_before_a_call(here: Path) -> None:
    for words in (("build", "demo"), ("build", "demo", "--dry-run")):
        done = typed(here, *words, "--tasks", "2", "--model", "nosuch/model")
        assert "found no provider 'nosuch'; expected PROVIDER/NAME" in done.error
        assert "next:" not in done.out
    assert list(here.rglob("run.json")) == []


def test_a_dry_run_writes_nothing(here: Path) -> None:
    typed(here, "build", "demo", "--tasks", "2", "--model", "openai/x",
          "--api-base", "http://192.0.2.1/v1", "--dry-run")  # fmt: skip
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("address", BAD)
def test_an_address_that_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = r"expected http\(s\)://HOST\[:PORT\]/v1"
    with pytest.raises(FatalModelError, match=f"^--api-base: found .*{expected}") as found:
        convbench.build("demo", model="openai/x", api_base=address, run="run")
    assert "secret" not in str(found.value)
    monkeypatch.setenv("OPENAI_API_BASE", address)
    with pytest.raises(FatalModelError, match=f"^OPENAI_API_BASE: found .*{expected}"):
        convbench.build("demo", model="openai/x", run="run")
    assert not Path("run").exists()


def test_an_address_in_a_run_that_is_none(here: Path) -> None:
    with Provider() as server:
        stages.build("demo", tasks=1, model="openai/x", run=here / "run", api_base=server.api_base)
    file = here / "run" / "run.json"
    file.write_text(file.read_text().replace(server.api_base, "http://h:99999/v1"))
    with pytest.raises(
        ConvbenchError, match=r"openai/x: its address in the run: found 'http://h:9"
    ):
        stages.build(run=here / "run")


@pytest.mark.parametrize("name", ["openai/", "anthropic/", "hosted_vllm/ ", " "])
@pytest.mark.parametrize("base", [None, "http://127.0.0.1:9/v1"])
def test_a_provider_alone_is_no_model(name: str, base: str | None) -> None:
    with pytest.raises(FatalModelError, match="expected a name too: PROVIDER/NAME"):
        resolve(name, api_base=base)


@pytest.mark.parametrize("said", [{"timeout": 1e308}, {"concurrency": 10**9}, {"top_p": 1.5},
                                  {"timeout": float("nan")}])  # fmt: skip
def test_python_has_the_bounds_of_the_command_line(said: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(said))}: found .*; expected .* to "):
        convbench.build("demo", model="scripted:policy", run="run", **said)


@pytest.mark.parametrize("words", [
    ["build", "demo", "--model", "scripted:policy", "--timeout", "1e308"],
    ["build", "demo", "--model", "scripted:policy", "--concurrency", "1000000000"],
    ["query", "select 1", "--timeout", "1e308"],
])  # fmt: skip
def test_a_number_beyond_reason_is_a_usage_error(here: Path, words: list[str]) -> None:
    done = typed(here, *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert "less than or equal to" in done.err


def test_there_are_no_more_workers_than_jobs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run_jobs = recorded_jobs.run_jobs

    async def counted(jobs: Any, work: Any, concurrency: int) -> Any:
        asked.append(concurrency)
        return await run_jobs(jobs, work, concurrency)

    monkeypatch.setattr(recorded_jobs, "run_jobs", counted)
    stages.build(
        "demo",
        tasks=3,
        model="scripted:policy",
        run=here / "run",
        samples=2,
        temperatures=(0.7,),
        concurrency=10_000,
    )
    assert asked == [6]


def test_the_nucleus_is_sent_recorded_and_evaluated_alike(here: Path) -> None:
    shape = {"samples": 1, "temperatures": (0.7,), "top_p": 0.9}
    with Provider(Plan(keep_requests=99)) as server:
        stages.build(
            "demo", tasks=5, model="openai/x", run=here / "run", **shape, api_base=server.api_base
        )
        stages.build(
            "demo", tasks=5, model="openai/x", run=here / "run", **shape, api_base=server.api_base
        )
        child = stages.evaluate("openai/y", here / "run", api_base=server.api_base)
        assert {body.get("top_p") for body in server.requests} == {0.9}
    for run in (Run.open(here / "run"), child):
        assert run.manifest.cast["assistant"].sampling.top_p == 0.9


@pytest.mark.exhaustive
def test_what_weights_cut_by_themselves_is_recorded(here: Path) -> None:
    weights = here / "weights"
    shutil.copytree(Path(str(resources.files("convbench"))) / "pocket" / "weights", weights)
    config = weights / "generation_config.json"
    said = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps({**said, "top_p": 0.8, "top_k": 20}))
    run = stages.build(
        "pocket",
        tasks=1,
        model=f"local:{weights}",
        run=here / "run",
        samples=1,
        temperatures=(0.7,),
        max_tokens=4,
    )
    policy = run.manifest.cast[run.manifest.protocol.policy]
    assert policy.own_sampling == {"top_p": 0.8, "top_k": 20}
    assert policy.sampling.top_p is None
