"""A judge's server is in the run's record: whoever goes on with a judge need not name it again, and
calls no other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from convbench.store import Run
from tests.helpers.cli import Done, convbench
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

JUDGE = ("judge", "--judge", "rubric@openai/judge", "--run", "runs/one")
SECRET = "pw-12"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    """The judge's server, and two conversations to score. No key of OpenAI's is there."""
    monkeypatch.chdir(tmp_path)
    with Provider(Plan(context_tokens=None)) as server:
        build("runs/one", "scripted:policy")
        yield server


def build(run: str, model: str) -> None:
    typed("build", "demo", "--tasks", "2", "--samples", "1", "--temperatures", "0.5",
          "--model", model, "--run", run)  # fmt: skip


def typed(*words: str) -> Done:
    done = convbench(Path(), *words)
    assert done.code == 0, done.out + done.err
    return done


def scores() -> int:
    return sum(one.failure is None for one in Run.open(Path("runs/one")).verdicts())


def leave_unscored(base: str, words: Sequence[str] = JUDGE) -> Done:
    """Have a judge stop before its first call."""
    done = convbench(Path(), *words, "--api-base", base, "--budget-tokens", "1")
    assert (done.code, "Resume:" in done.err) == (1, True), done.out + done.err
    return done


def test_the_same_judge_is_asked_where_it_was_asked_before(provider: Provider) -> None:
    leave_unscored(provider.api_base)
    assert (provider.stats.calls, scores()) == (0, 0)
    typed(*JUDGE)
    assert (provider.stats.calls, scores()) == (2, 2)


def test_another_judge_is_asked_at_its_own_address(provider: Provider) -> None:
    typed(*JUDGE, "--api-base", provider.api_base)
    done = convbench(Path(), "judge", "--judge", "rubric@openai/other", "--run", "runs/one")
    assert (done.code, provider.stats.calls) == (1, 2)
    assert "openai/other: no key" in done.error


def test_an_address_that_is_typed_goes_before_the_record(provider: Provider) -> None:
    leave_unscored("http://127.0.0.1:9/v1")
    typed(*JUDGE, "--api-base", provider.api_base)
    assert (provider.stats.calls, scores()) == (2, 2)


def test_a_comparison_is_gone_on_with_where_it_began(provider: Provider) -> None:
    build("runs/two", "scripted:echo")
    words = ("judge", "--pairwise", "runs/one", "runs/two", "--judge", "pairwise@openai/judge")
    leave_unscored(provider.api_base, words)
    assert provider.stats.calls == 0
    convbench(Path(), *words)
    assert provider.stats.calls >= 4


def test_no_key_of_an_address_is_kept_or_printed(provider: Provider) -> None:
    """Neither in the record nor in what is to be typed next."""
    base = provider.api_base.replace("http://", f"http://me:{SECRET}@")
    planned = typed(*JUDGE, "--dry-run", f"--api-base={base}?token={SECRET}")
    stopped = leave_unscored(base)
    scored = typed(*JUDGE, "--api-base", base)
    (record,) = Path("runs/one/judges").iterdir()
    assert json.loads(record.read_text())["api_base"] == provider.api_base
    for done in (planned, stopped, scored):
        assert SECRET not in done.out + done.err
        assert ("--api-base" in done.out + done.err) is (done is not scored)


def test_the_address_of_a_pulled_run_is_asked_for_before_it_is_called(provider: Provider) -> None:
    """A record that somebody else made steers nobody's keys."""
    leave_unscored(provider.api_base)
    manifest = json.loads(Path("runs/one/run.json").read_text())
    pulled = {**manifest, "pulled_from": "mallory/set@abc"}
    Path("runs/one/run.json").write_text(json.dumps(pulled))
    (record,) = Path("runs/one/judges").iterdir()
    record.write_text(record.read_text().replace(provider.api_base, "http://203.0.113.5/v1"))
    assert "--allow-calls openai/judge@203.0.113.5" in convbench(Path(), *JUDGE).error
