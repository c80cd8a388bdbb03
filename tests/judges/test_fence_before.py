"""Verdicts from before question and options were quoted: they stay, nobody is asked again unasked;
`judge` and `query` say what they are, and `report` refuses to set them beside quoted ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.judges.resolve import resolve_judge
from convbench.store import Run
from tests.helpers.cli import Done, convbench
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

JUDGE = "hosted_vllm/judge"
BEFORE = "fence: nonce"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    monkeypatch.chdir(tmp_path)
    with Provider(Plan(context_tokens=None, keep_requests=100)) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def build(*more: str, run: str = "runs/one") -> None:
    done = convbench(
        Path(), "build", "demo", "--tasks", "3", "--temperatures", "0.5", "--model",
        "hosted_vllm/policy", "--run", run, *more,
    )  # fmt: skip
    assert done.code == 0, done.out + done.err


def judge(*more: str) -> Done:
    done = convbench(Path(), "judge", "--judge", JUDGE, *more)
    assert done.code == 0, done.out + done.err
    return done


def told(done: Done) -> str:
    return " ".join((done.out + done.err).split())


def test_verdicts_of_before_stay_and_are_named(provider: Provider) -> None:
    build("--samples", "1")
    judge("--set", "judge.fence=nonce")  # as every judge did
    marks = {verdict.fingerprint for verdict in Run.open(Path("runs/one")).verdicts()}
    assert marks == {resolve_judge(JUDGE).earlier.fingerprint}  # type: ignore[union-attr]
    calls = provider.stats.calls
    assert BEFORE in told(judge("--dry-run"))
    assert BEFORE in told(judge())
    assert provider.stats.calls == calls, "nothing is paid again"
    shown = convbench(Path(), "query", "select distinct fence from verdicts", "--format", "csv")
    assert shown.out.split() == ["fence", "nonce"]

    provider.requests.clear()
    judge("--set", "judge.fence=quoted")
    assert provider.stats.calls == calls + 3, "asked for, so asked again"
    assert BEFORE not in told(judge())
    assert provider.stats.calls == calls + 3


def test_a_report_refuses_them_beside_quoted_ones(provider: Provider) -> None:
    build("--samples", "1")
    judge("--run", "runs/one", "--set", "judge.fence=nonce")
    build("--samples", "1", run="runs/two")
    judge("--run", "runs/two")
    both = ("report", "runs/one", "runs/two", "--split", "all")
    refused = convbench(Path(), *both)
    assert refused.code == 1
    assert "judge hosted_vllm/judge.fence: 'nonce' → 'quoted'" in told(refused)
    assert convbench(Path(), *both, "--allow-incomparable").code == 0


def test_what_is_still_to_be_scored_of_such_a_run_is_scored_alike(provider: Provider) -> None:
    """One run's verdicts stay comparable with each other."""
    build("--samples", "1")
    judge("--set", "judge.fence=nonce")
    convbench(Path(), "build", "--run", "runs/one", "--samples", "2")
    judge()
    verdicts = list(Run.open(Path("runs/one")).verdicts())
    assert len({verdict.fingerprint for verdict in verdicts}) == 1
    assert len(verdicts) == len(list(Run.open(Path("runs/one")).conversations()))


def test_a_new_run_is_judged_with_all_quoted(provider: Provider) -> None:
    build("--samples", "1")
    assert BEFORE not in told(judge())
    shown = convbench(Path(), "query", "select distinct fence from verdicts", "--format", "csv")
    assert shown.out.split() == ["fence", "quoted"]
