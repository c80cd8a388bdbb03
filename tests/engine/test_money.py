"""Providers that bill by their own rules: what they charge stays within the budget."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Budget, Caller, Journal, RetryPolicy
from convbench.engine.progress import format_spend
from convbench.engine.session import Session
from convbench.errors import BudgetError, ModelError
from convbench.models import open_model
from convbench.options.shared import CallOptions
from convbench.rollout.calls import limit_spend
from convbench.schema import Completion, Sampling
from tests.helpers import stages
from tests.helpers.bills import CASES, INPUT, MODEL, OUTPUT, always, spend
from tests.helpers.cli import convbench, finish, start, until
from tests.support.chat.plan import Plan
from tests.support.exhaustive import by_turns, every_nth
from tests.support.provider import Provider

CAP = 0.004
"""Dollars: 80 honest calls, or 2 whose max_tokens is ignored."""
TOLD = every_nth(3, [name for name in CASES if name not in ("usage zero", "cost said to be 0")])
"""Providers that say what they charge."""


@pytest.mark.parametrize("name", TOLD)
def test_what_is_charged_stays_within_the_cap_and_the_excess_of_calls_in_flight(
    name: str, tmp_path: Path
) -> None:
    found = spend(CASES[name], CAP, tmp_path, flight=64, calls=600, latency_s=0.01)
    assert found.true <= CAP + (0 if name == "honest" else found.peak * found.dearest)
    assert found.counted >= found.true * 0.999
    assert "--budget" in found.stopped
    if name == "honest":
        assert found.true > 0.95 * CAP


@pytest.mark.parametrize("name", ["honest", "all reasoning"])
def test_tokens_are_limited_likewise(name: str, tmp_path: Path) -> None:
    with Provider(Plan().changed(CASES[name].plan)) as provider:
        caller = Caller(Journal(tmp_path / "calls.jsonl"), Budget(tokens=3000))
        assert not asyncio.run(ask(caller, provider, range(100)))
        charged = provider.stats.billed_prompt + provider.stats.billed_reply
        dearest = provider.stats.dearest_prompt + provider.stats.dearest_reply
    assert 3000 - 2 * (400 + 64) < charged <= 3000 + dearest


def test_concurrency_opens_once_replies_have_told_how_they_bill(tmp_path: Path) -> None:
    found = spend(always("free"), 0.2, tmp_path, flight=64, calls=400, latency_s=0.02)
    assert found.stopped == ""
    assert found.peak > 32


async def ask(
    caller: Caller, provider: Provider, numbers: Any, model: str = MODEL
) -> list[Completion | BaseException]:
    """Ask one after the other until the budget stops it; return the replies if it does not."""
    opened = open_model(model, api_base=provider.api_base)
    got: list[Completion | BaseException] = []
    try:
        for number in numbers:
            text = f"question {number} of some length " * 8
            sampling = Sampling(max_tokens=64)
            try:
                got.append(
                    await caller.complete(
                        opened, [{"role": "user", "content": text}], sampling, key=f"q{number}"
                    )
                )
            except ModelError as error:
                got.append(error)
    except BudgetError:
        return []
    finally:
        await opened.aclose()
    return got


@pytest.mark.parametrize(
    ("kind", "model"),
    by_turns(["reasoning", "filter", "malformed"], [MODEL, "deepseek/deepseek-chat"]),
)
def test_a_refused_reply_is_booked_with_its_own_usage(
    kind: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    ledger = Budget()
    with Provider(Plan(faults={kind: 1.0})) as provider:
        caller = Caller(budget=ledger, retry=RetryPolicy(tries=1, empty_tries=1))
        (error,) = asyncio.run(ask(caller, provider, [1], model))
        stats = provider.stats
    assert isinstance(error, ModelError)
    assert ledger.lost.attempts == 1
    assert ledger.all.tokens == stats.billed_prompt + stats.billed_reply
    assert ledger.assumed.attempts == 0


def test_what_cannot_be_is_counted_and_said_and_not_recorded(tmp_path: Path) -> None:
    ledger = Budget(usd=1.0)
    journal = Journal(tmp_path / "calls.jsonl")
    schedule = {"1": "huge", "2": "negative", "3": "text", "4": "billed_500"}
    with Provider(Plan(schedule=schedule)) as provider:
        caller = Caller(journal, ledger, RetryPolicy(backoff_s=0.01))
        got = asyncio.run(ask(caller, provider, range(4)))
    assert [(r.prompt_tokens, r.cost_usd) for r in got[:3]] == [(None, None)] * 3  # type: ignore[union-attr]
    assert ledger.assumed.attempts == 4
    assert ledger.lost.attempts == 1
    said = format_spend(ledger)
    assert f"${ledger.all.usd:.4f} of $1" in said
    assert "1 attempt without a usable reply" in said
    assert "4 attempts with unreported usage" in said
    assert journal.total_cost() == (ledger.all.tokens, pytest.approx(ledger.all.usd))


@pytest.mark.parametrize("kind", ["429", "429_retry_after"])
def test_what_was_refused_before_any_work_costs_nothing(kind: str, tmp_path: Path) -> None:
    ledger, journal = Budget(usd=1.0), Journal(tmp_path / "calls.jsonl")
    with Provider(Plan(schedule={"1": kind}, retry_after=0.01)) as provider:
        asyncio.run(ask(Caller(journal, ledger, RetryPolicy(backoff_s=0.01)), provider, [1]))
        charged = provider.stats.billed_prompt + provider.stats.billed_reply
    assert ledger.all.tokens == charged
    assert ledger.lost.attempts == 0
    assert journal.total_cost()[0] == charged


def build(provider: Provider, *more: str) -> list[str]:
    return ["build", "demo", "--tasks", "12", "--samples", "2", "--max-tokens", "64", "--model",
            MODEL, "--api-base", provider.api_base, "--run", "run", "--concurrency", "16",
            "--quiet", *more]  # fmt: skip


def charged(provider: Provider) -> float:
    return provider.stats.billed_prompt * INPUT + provider.stats.billed_reply * OUTPUT


def test_killed_builds_do_not_forget_what_was_in_flight(tmp_path: Path) -> None:
    """Three sessions, two of them killed with calls in flight, all with one budget."""
    cap = 0.008
    with Provider(Plan(latency_s=0.4)) as provider:
        for _ in range(2):
            before = provider.stats.calls
            process = start(tmp_path, *build(provider, "--budget", str(cap)))
            until(lambda before=before: provider.stats.calls > before, process)
            process.send_signal(signal.SIGKILL)
            finish(process)
        provider.change(latency_s=0.0)
        ended = convbench(tmp_path, *build(provider, "--budget", str(cap)))
        spent = charged(provider)
        dearest = provider.stats.dearest_prompt * INPUT + provider.stats.dearest_reply * OUTPUT
    assert ended.code == 1, ended.err
    assert spent <= cap + dearest
    assert "before this command $" in ended.err


def test_a_command_says_what_it_lost(tmp_path: Path) -> None:
    with Provider(Plan(faults={"reasoning": 1.0})) as provider:
        ended = convbench(tmp_path, *build(provider, "--budget", "0.0005"))
        spent = charged(provider)
    assert ended.code == 1
    assert 0 < spent <= 0.0006
    line = next(line for line in ended.err.splitlines() if line.startswith("spent: "))
    assert f"${spent:.4f} of $0.0005" in line
    assert "attempts without a usable reply $" in line


FOUR_CELLS = (
    "title: small\ntasks: [demo]\nmodes: [thinking, standard]\nseeds: [0, 1]\n"
    f"learners: [base]\nmodel: {MODEL}\njudges: [rules]\ncount: 8\nsamples: 1\n"
    "temperatures: [0.7]\nmax_tokens: 24\n"
)
"""Of eight conversations each."""


def test_an_experiment_has_one_ledger_for_all_its_runs(tmp_path: Path) -> None:
    """Each of 4 runs alone stays below the budget; together they would pass it twice over."""
    (tmp_path / "small.yaml").write_text(FOUR_CELLS)

    def go(budget: float | None) -> None:
        stages.experiment(
            str(tmp_path / "small.yaml"),
            run=tmp_path / "runs",
            api_base=provider.api_base,
            budget=budget,
        )

    with Provider(Plan()) as provider:
        with pytest.raises(BudgetError):
            go(0.002)
        assert charged(provider) <= 0.002
        runs = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
        assert len(runs) >= 2
        alone = max(Journal(run / "calls.jsonl").total_cost()[1] for run in runs)
        assert alone < 0.0012
        with pytest.raises(BudgetError):  # what all its runs spent counts before the first goes on
            go(0.002)
        assert charged(provider) <= 0.002
        go(None)


def test_cells_under_one_budget_call_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(FOUR_CELLS)
    with Provider(Plan(latency_s=0.3)) as provider:
        stages.experiment(
            str(tmp_path / "small.yaml"),
            run=tmp_path / "runs",
            api_base=provider.api_base,
            budget=1.0,
        )
        assert provider.stats.peak_in_flight > 8
        assert charged(provider) < 1.0


def test_a_run_is_counted_once_with_all_below_it(tmp_path: Path) -> None:
    for name in ("", "evals/a", "rounds/swift/2"):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        Journal(folder / "calls.jsonl").append("k", "h", Completion("x", "stop", 5, 5, 0.1))
    session = Session()
    for folder in (tmp_path, tmp_path / "evals"):
        limit_spend(session, CallOptions(budget=1.0), *folder.rglob("calls.jsonl"))
    assert session.ledger.all.tokens == 30
    assert session.ledger.all.usd == pytest.approx(0.3)


OLD = (
    b'{"key":"a","hash":"h","content":"x","prompt_tokens":5,"completion_tokens":2,"cost_usd":0.5}\n'
)
ODD = [
    b'{"attempt":"x","tokens":-1000000,"usd":-99}',
    b'{"attempt":"y","tokens":"many","usd":[1]}',
    b'{"attempt":["z"],"tokens":1e400,"usd":1e400}',
    b"[1, 2]", b"null", b"\xff\xfe", b'{"attempt":"torn","tok',
]  # fmt: skip


def test_odd_lines_of_a_journal_make_no_room(tmp_path: Path) -> None:
    odd = OLD.replace(b"5,", b"-9,").replace(b"0.5", b"-9") + b"\n".join(ODD)
    (tmp_path / "calls.jsonl").write_bytes(OLD + odd)
    journal = Journal(tmp_path / "calls.jsonl")
    assert journal.load_calls() == 1
    assert journal.total_cost() == (9, 0.5)


def test_cancelled_calls_are_booked(tmp_path: Path) -> None:
    ledger, journal = Budget(usd=1.0), Journal(tmp_path / "calls.jsonl")

    async def main(provider: Provider) -> None:
        task = asyncio.ensure_future(ask(Caller(journal, ledger), provider, [1]))
        while not provider.stats.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Provider(Plan(latency_s=5)) as provider:
        asyncio.run(main(provider))
        assert ledger.all.usd >= charged(provider) > 0
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").open()]
    assert [line.get("lost") for line in lines] == [None, "CancelledError"]
    assert journal.total_cost()[1] == pytest.approx(ledger.all.usd)
