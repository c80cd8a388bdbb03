"""Provider batches in waves: half the price, the same conversations, nothing sent twice or lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.engine import Budget, Journal
from convbench.engine.session import Session
from convbench.errors import BudgetError, ConvbenchError, FatalModelError
from convbench.models.batches import Batches
from convbench.options.shared import CallOptions
from convbench.rollout.batches_status import batches_status, cancel_batches
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.batched import ANTHROPIC, OPENAI, base, quick, sent
from tests.helpers.cli import ROOT, environment, finish, records, said, start, until
from tests.helpers.typed import exit_code
from tests.support.batches import BatchProvider
from tests.support.chat.replies import Call, scripted_reply
from tests.support.killer import post
from tests.support.one_line import one_line
from tests.support.serve import spawn

__all__ = ["quick"]

MOMENTS = (
    "after intent", "stall uploaded", "stall created", "after batch",
    "stall results", "after reply 2", "before ended", "after conversation",
)  # fmt: skip


@pytest.fixture
def provider() -> Iterator[BatchProvider]:
    with BatchProvider() as server:
        yield server


def built(provider: BatchProvider, run: str, model: str = OPENAI, **more: Any) -> Path:
    return convbench.build(
        "demo", model=model, api_base=base(provider, model), run=run,
        **{"tasks": 4, "quiet": True, **more},
    ).path  # fmt: skip


def cost(run: Path) -> float:
    frame = convbench.query("select sum(cost_usd) as usd from conversations", run)
    return float(frame["usd"][0])


def answered(run: Path) -> list[dict[str, Any]]:
    """The replies in a run's journal, beside what was held for them."""
    return [record for record in records(run / "calls.jsonl") if "content" in record]


def held(run: Path) -> list[float]:
    """The dollars that each batch held."""
    found = records(run / "calls.jsonl")
    usd = {record["held"]: record["usd"] for record in found if "held" in record}
    sent = [record["calls"] for record in records(run / "batches.jsonl") if "calls" in record]
    return [sum(usd[name] for name in calls) for calls in sent]


def words(run: Path) -> dict[str, Any]:
    """What was said, without what it cost."""
    found = said(run)
    for _, turns, _ in found.values():
        for turn in turns:
            turn.pop("cost_usd")
    return found


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_three_turns_and_a_judge_are_four_waves_at_half_price(
    provider: BatchProvider, model: str
) -> None:
    plain = built(provider, "plain", model)
    provider.reset()
    run = built(provider, "batched", model, batch=True, concurrency=2)
    convbench.judge(run, model, api_base=base(provider, model), batch=True, quiet=True)
    assert sent(provider) == [12, 12, 12, 12]
    assert provider.summary()["calls"] == 0
    assert words(run) == words(plain)
    assert cost(run) == pytest.approx(cost(plain) / 2)
    frame = convbench.query("select count(reward) as n, sum(cost_usd) as usd from verdicts", run)
    assert frame["n"][0] == 12
    key = "key-of-anthropic" if model == ANTHROPIC else "Bearer key-of-openai"
    assert set(provider.keys) == {key}


def test_killed_at_every_state_it_sends_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    arguments = ["build", "demo", "--tasks", "2", "--model", OPENAI, "--run", "run", "--batch"]
    with spawn("batches") as url:
        more = ["--api-base", f"{url}/v1", "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.killer", url, str(tmp_path),
             json.dumps(MOMENTS), json.dumps(arguments + more)],
            cwd=ROOT, env=environment() | {"OPENAI_API_KEY": "k"}, capture_output=True, text=True,
            timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = post(url, "/_batch_state", None)
    assert json.loads(done.stdout) == [-9] * len(MOMENTS) + [0], done.stderr
    assert [batch["requests"] for batch in found["batches"]] == [6, 6, 6], "sent twice"
    assert found["answered"] == 18
    assert found["repeats"] == found["calls"] == 0
    assert len(said(tmp_path / "run")) == 6
    assert len(answered(tmp_path / "run")) == 18


def test_ctrl_c_leaves_the_batch_and_says_how_to_come_back(
    provider: BatchProvider,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.plan_batches(looks=0)
    keys = {"OPENAI_API_KEY": "k"}
    build = ["build", "demo", "--tasks", "2", "--model", OPENAI, "--api-base", provider.api_base]
    process = start(tmp_path, *build, "--run", "run", "--batch", extra=keys)
    until(lambda: provider.summary()["looks"] > 0, process)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130
    assert "1 batch of 6 calls is still at the provider: convbench status run" in ended.err
    assert "convbench build --run run --batch" in ended.err

    exit_code(monkeypatch, ["status", "run"])
    assert "1 openai/gpt-4o-mini in_progress 6 0 0" in " ".join(capsys.readouterr().out.split())
    assert exit_code(monkeypatch, ["cancel", "run"]) == 0
    assert "6 calls of openai/gpt-4o-mini: cancelled" in capsys.readouterr().out

    provider.plan_batches(looks=1)
    convbench.build(run="run", quiet=True)
    assert len(said(tmp_path / "run")) == 6
    assert sent(provider) == [6], "a resume without --batch sends none"
    assert provider.summary()["calls"] == 18 - 2, "two were answered before the end"
    assert provider.summary()["repeats"] == 0


def test_several_models_have_waves_of_their_own(
    provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", provider.api_base)
    run = convbench.build(
        "demo", tasks=4, protocol="clarifying", model=OPENAI, teacher="openai/gpt-4o",
        api_base=provider.api_base, run="both", batch=True, quiet=True,
    ).path  # fmt: skip
    by_model: dict[str, list[int]] = {}
    for batch in provider.summary()["batches"]:
        by_model.setdefault(batch["model"], []).append(batch["requests"])
    assert set(by_model) == {"gpt-4o-mini", "gpt-4o"}
    assert all(counts[0] == 12 for counts in by_model.values())
    assert provider.summary()["calls"] == 0
    assert len(said(run)) == 12


def test_limits_of_a_batch_and_of_what_may_wait_split_a_wave(
    provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batches, "most_requests", 5)
    whole = built(provider, "requests", batch=True)
    assert sent(provider) == [5, 5, 2] * 3
    monkeypatch.setattr(Batches, "most_bytes", 3000)
    provider.batches.clear()
    assert words(built(provider, "bytes", batch=True)) == words(whole)
    assert max(sent(provider)) < 5
    monkeypatch.undo()


def test_a_budget_holds_the_worst_case_before_a_wave_is_sent(provider: BatchProvider) -> None:
    with pytest.raises(BudgetError, match="the next call may"):
        built(provider, "none", batch=True, budget=1e-6)
    assert sent(provider) == []
    run = built(provider, "some", batch=True, budget=0.003)
    assert max(held(run)) <= 0.003
    assert len(held(run)) > 3, "the whole of a wave does not fit at once"
    assert len(said(run)) == 12


def test_a_parameter_that_is_refused_is_left_out_of_the_next_wave(provider: BatchProvider) -> None:
    provider.plan_batches(refuse="temperature")
    run = built(provider, "run", batch=True)
    assert len(said(run)) == 12
    ended = [record["counts"] for record in records(run / "batches.jsonl") if "counts" in record]
    assert [count["answered"] for count in ended] == [0, 12, 12, 12]
    sent_so = [record["sent"] for record in records(run / "conversations.jsonl")]
    assert all("temperature" in next(iter(one.values()))["left_out"] for one in sent_so)
    assert sent(provider) == [12] * 4


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_results_elsewhere_are_not_fetched_and_long_ones_are_cut(
    provider: BatchProvider, model: str
) -> None:
    with BatchProvider() as other:
        provider.plan_batches(redirect=f"{other.url}/v1/files/out-1/content")
        with pytest.raises(ConvbenchError, match="no redirect is followed"):
            built(provider, "away", model, batch=True)
        assert other.keys == []
    provider.plan_batches(redirect=None, lines=("huge",))
    run = built(provider, "away", model, batch=True, budget_tokens=2_000_000)
    assert len(said(run)) == 12
    assert len(sent(provider)) == 3


def test_what_has_no_batches_is_refused_in_one_line(provider: BatchProvider) -> None:
    with pytest.raises(FatalModelError, match="local:pocket cannot go in batches") as policy:
        convbench.build("demo", tasks=1, model="local:pocket", batch=True, quiet=True, run="none")
    one_line(policy.value)
    run = built(provider, "run")
    with pytest.raises(FatalModelError, match="rules cannot go in batches") as judge:
        convbench.judge(run, "rules", batch=True, quiet=True)
    one_line(judge.value)
    assert not Path("none").exists()


def test_an_estimate_is_at_the_price_of_batches() -> None:
    found = []
    for batch in (False, True):
        shown = stages.build_result("demo", model=OPENAI, dry_run=True, batch=batch).preview
        assert shown is not None
        found.append(shown.estimate.usd)
    assert found[1] == pytest.approx(found[0] / 2)


def test_conversations_that_end_early_leave_the_waves(tmp_path: Path) -> None:
    """Adaptive: whoever is ready ends at another turn than the others."""

    def ready(call: Call) -> str:
        done = sum(role == "assistant" for role, _ in call.messages) >= len(call.question) % 3
        return "READY TO ANSWER" if done and "ONE specific" in call.asked else scripted_reply(call)

    options = {"tasks": 4, "protocol": "clarifying-adaptive", "turns": 4, "quiet": True}
    with BatchProvider(reply=ready) as provider, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", provider.api_base)
        named = {"model": OPENAI, "teacher": "openai/gpt-4o", "api_base": provider.api_base}
        plain = convbench.build("demo", run="plain", **named, **options).path
        made = convbench.build("demo", run="waves", batch=True, **named, **options).path
        assert words(made) == words(plain)
        lengths = {len(turns) for _, turns, _ in said(made).values()}
        assert len(lengths) > 1, "all ended at one turn"
        waves = [b["requests"] for b in provider.summary()["batches"] if b["model"] == "gpt-4o"]
        assert waves == sorted(waves, reverse=True)
        assert len(waves) <= 3


@pytest.mark.parametrize("kind", ["anthropic", "deepseek-v4"])
def test_thinking_models_think_in_batches_too(provider: BatchProvider, kind: str) -> None:
    """The server refuses a history that does not hold what was thought, as its rule says."""
    provider.change(thinks=kind)
    model = ANTHROPIC if kind == "anthropic" else OPENAI
    Path("mine").mkdir()
    alias = {"ref": model, "replay": "signed" if kind == "anthropic" else "always"}
    Path("mine/models.yaml").write_text(json.dumps({"models": {"thinker": alias}}))
    run = convbench.build(
        "demo", tasks=2, model="thinker", api_base=base(provider, model), run="run", batch=True,
        quiet=True, specs=["mine"], mode="standard",
    ).path  # fmt: skip
    assert sent(provider) == [6, 6, 6]
    turns = [turn for _, turns, _ in said(run).values() for turn in turns]
    thoughts = [turn["reasoning"]["text"] for turn in turns if turn.get("reasoning")]
    assert len(thoughts) == 18
    assert all(text.startswith("Let me see.") for text in thoughts)


def test_a_batch_taken_for_ours_is_told_by_its_results(
    provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creation fails while somebody else's batch of as many requests is under way."""
    built(provider, "other", ANTHROPIC, batch=True)
    theirs = sent(provider)
    provider.plan_batches(create_503=(4,))
    run = built(provider, "ours", ANTHROPIC, batch=True, seed=5)
    assert len(said(run)) == 12
    assert sent(provider) == theirs * 2
    named = [record["batch"] for record in records(run / "batches.jsonl") if "batch" in record]
    assert {"msgbatch_1", "msgbatch_2", "msgbatch_3"} & set(named), "they were taken for ours"


def test_a_batch_that_nobody_knows_any_more_can_be_forgotten(
    provider: BatchProvider, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path("run/batches.jsonl")
    run = built(provider, "run", batch=True)
    kept = [line for line in file.read_text().splitlines() if '"ended"' not in line]
    file.write_text("\n".join(kept[-3:]) + "\n")
    for name in ("calls.jsonl", "conversations.jsonl"):
        (run / name).write_text("")
    provider.batches.clear()
    with pytest.raises(FatalModelError, match="convbench cancel RUN"):
        built(provider, "run", batch=True)
    exit_code(monkeypatch, ["status", "run"])
    assert "HTTP 404" in capsys.readouterr().err
    assert exit_code(monkeypatch, ["cancel", "run"]) == 0
    assert len(said(built(provider, "run", batch=True))) == 12


def test_records_from_elsewhere_lead_nowhere(provider: BatchProvider) -> None:
    """A batch's name becomes part of an address: one that is none is not asked for."""
    run = built(provider, "run", batch=True)
    file = run / "batches.jsonl"
    first = json.loads(file.read_text().splitlines()[0])
    for line in ({"batch": "../../admin?x="}, {"batch": 7}, {"calls": [[1]]}, {"mark": []}, [], 3):
        with file.open("a") as out:
            more = line if isinstance(line, dict) else {}
            out.write(json.dumps({**first, "mark": "new", **more}) + "\n")
            out.write(json.dumps({"mark": first["mark"], **more} if more else line) + "\n")
    keys = len(provider.keys)
    names = {one.sent.batch for one in batches_status(Run.open(run), CallOptions()).batches}
    assert names <= {"batch_1", "batch_2", "batch_3", None}
    assert len(provider.keys) == keys


def test_a_resume_counts_what_open_batches_cost_once(provider: BatchProvider) -> None:
    run = built(provider, "run", batch=True)
    paid, file = cost(run), run / "batches.jsonl"
    *lines, _ = file.read_text().splitlines()  # the last batch has no end, ...
    file.write_text("\n".join(lines) + "\n")
    worst = held(run)[-1]
    replies = (run / "calls.jsonl").read_text().splitlines(keepends=True)
    (run / "calls.jsonl").write_text("".join(replies[:-5]))  # five of its replies are not there
    (run / "conversations.jsonl").write_text("")
    session = Session()
    stages.build_result(run=run, budget=paid + worst, session=session)
    assert cost(run) == pytest.approx(paid)
    assert session.ledger.all.usd == pytest.approx(paid)
    assert sent(provider) == [12, 12, 12]


def test_a_provider_that_bills_beyond_all_bounds_gets_one_wave(provider: BatchProvider) -> None:
    """It writes 22 times what was asked for; nothing can be known of it before."""
    provider.plan_batches(endless=True)
    with pytest.raises(BudgetError, match=r"of \$0.01 is spent"):
        built(provider, "run", batch=True, budget=0.01)
    found = provider.summary()
    billed = found["prompt"] * 0.075e-6 + found["reply"] * 0.3e-6
    ledger = Budget()
    ledger.count_earlier("run", Journal(Path("run/calls.jsonl")).total_cost)
    assert len(found["batches"]) == 1
    assert ledger.all.usd == pytest.approx(billed, rel=0.01)


def test_a_pulled_run_has_nobody_asked(provider: BatchProvider) -> None:
    """Its records say where its batches are; the key goes there only with the user's leave."""
    run = built(provider, "run", batch=True)
    file = run / "batches.jsonl"
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if "ended" not in line)
    )
    text = (run / "run.json").read_text()
    manifest = json.loads(text.replace(provider.api_base, "http://stranger.example/v1"))
    (run / "run.json").write_text(json.dumps({**manifest, "pulled_from": "mallory/set@abc"}))
    for word in (batches_status, cancel_batches):
        for one in word(Run.open(run), CallOptions()).open_batches:
            assert one.problem is not None
            assert "--allow-calls openai/gpt-4o-mini@stranger.example" in one.problem


def test_an_evaluation_goes_in_waves_with_every_judge_of_its_own(
    provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", provider.api_base)
    run = built(provider, "run", batch=True, tasks=6)
    convbench.judge(run, OPENAI, "openai/gpt-4o", batch=True, quiet=True)
    before = len(sent(provider))
    child = convbench.eval("openai/gpt-4o", run, batch=True, quiet=True).path
    waves = [(batch["model"], batch["requests"]) for batch in provider.summary()["batches"]]
    asked = len(said(child))
    turns = [("gpt-4o", asked)] * 3
    assert waves[before:] == [*turns, ("gpt-4o-mini", asked), ("gpt-4o", asked)]
    assert provider.summary()["calls"] == 0
