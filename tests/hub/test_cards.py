"""What a card and the viewer say of cost, judges and home is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import RunError
from convbench.hub.checkpoint import results_of
from convbench.hub.figures import card_figures
from convbench.judges.resolve import resolve_judge
from convbench.schema import Conversation
from convbench.store import Run
from convbench.store.query import run_query
from convbench.viewer.figures import overview_figures
from convbench.viewer.library import index_runs
from tests.helpers import stages
from tests.helpers.runs import (
    ANSWERS,
    JUDGE,
    append,
    conversation,
    example,
    failed,
    verdict,
    write_run,
)
from tests.support.chat.plan import Plan
from tests.support.provider import Provider

PAID = resolve_judge("openai/gpt-4o").spec.model_copy(
    update={"name": "paid", "model": "openai/gpt-4o"}
)


def judged(folder: Path, **usage: float | None) -> Run:
    """A run whose conversations cost 0.003 dollars each, judged by rules and by a model."""
    run = write_run(folder, count=2)
    for spec, mark in ((JUDGE, "f00d"), (PAID, "beef")):
        run.store_judge(mark, spec)
    append(run.verdicts_file, [
        verdict(conversation(n, s), judge="paid", fingerprint="beef", **usage)
        for n in range(2) for s in range(2)
    ])  # fmt: skip
    return run


def card(run: Run, **more: str) -> str:
    done = stages.publish(run, "me/set", folder=run.path / "publish", **more)
    return " ".join((done.folder / "README.md").read_text().split())


@pytest.mark.parametrize(("each", "judging", "both"), [
    (0.5, "2.00 USD", "2.01 USD"), (None, "cost unknown", "cost unknown"),
])  # fmt: skip
def test_cost_counts_the_judges(
    tmp_path: Path, each: float | None, judging: str, both: str
) -> None:
    run = judged(tmp_path / "run", cost_usd=each)
    text = card(run, judge="paid")
    assert f"Judging: {judging}. Together: {both}." in text
    totals = overview_figures(index_runs([run.path], lambda text: None))["totals"]
    assert totals["judge_usd"] == (None if each is None else 2.0)
    assert totals["total_usd"] == (None if each is None else pytest.approx(2.012))


def test_a_judge_that_asks_nobody_costs_nothing(tmp_path: Path) -> None:
    assert "Judging: 0.00 USD. Together: 0.01 USD." in card(write_run(tmp_path / "run", count=2))


def test_publish_asks_which_of_two_judges(tmp_path: Path) -> None:
    run = judged(tmp_path / "run")
    with pytest.raises(RunError, match=r"2 judges \(paid, rules\).*--judge NAME"):
        card(run)
    assert "`reward` is that of judge `rules`" in card(run, judge="rules")


def test_no_card_names_a_page_that_is_not_there(tmp_path: Path) -> None:
    assert "pypi.org" not in card(write_run(tmp_path / "run"))


def test_a_checkpoint_s_card_tells_the_reward_that_it_learnt_from(tmp_path: Path) -> None:
    run = judged(tmp_path / "run")
    folder = run.checkpoints_folder / "tuned"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    said = {"run": run.manifest.id, "judge": "rules"}
    (folder / "training.json").write_text(json.dumps(said))
    child = write_run(
        run.evals_folder / "tuned", kind="eval", parent=run.manifest.id, checkpoint=str(folder),
        split="test", id="20260101-000000-abcdef02",
    )  # fmt: skip
    append(child.verdicts_file, [
        verdict(conversation(n, s), judge="paid", fingerprint="beef")
        for n in range(5) for s in range(2)
    ])  # fmt: skip
    found = results_of(run, folder)
    assert found is not None
    assert found.judge == "rules"
    (folder / "training.json").write_text(json.dumps({**said, "judge": "gone"}))
    with pytest.raises(RunError, match=r"2 judges \(paid, rules\)"):
        results_of(run, folder)


@pytest.mark.parametrize(("refuse", "said"), [
    ({}, "temperature 0"),
    ({"temperature": "unsupported_parameter"}, "its own (no temperature sent)"),
])  # fmt: skip
def test_a_card_tells_the_temperature_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: dict[str, str], said: str
) -> None:
    run = write_run(tmp_path / "run", verdicts=[])
    with Provider(Plan(refuse=refuse, keep_requests=99)) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        stages.judge(run.path, "hosted_vllm/judge")
        answered = server.requests[-1]
    assert ("temperature" in answered) == (not refuse)
    assert f"| `hosted_vllm/judge` | {said} |" in card(run)


def test_a_card_counts_what_a_query_counts(tmp_path: Path) -> None:
    """Splits, failures, cuts, flags, answers and usage: added up here by the database."""
    talks = [conversation(n, s, ANSWERS[n % 2]) for n in range(10) for s in range(2)]
    talks[3] = failed(1, 1, turns=conversation(1, 1).turns[:2])  # what it cost does not count
    talks[4] = with_turn(talks[4], 3, finish_reason="length", cost_usd=0.5, prompt_tokens=70)
    tokens = {"prompt_tokens": 3, "completion_tokens": 4}
    talks[6] = with_turn(  # a teacher's, which is no cut
        talks[6], 0, finish_reason="length", cost_usd=0.25, **tokens
    )
    talks[7] = talks[7].model_copy(update={"flags": ("teacher:words",)})
    talks[9] = with_turn(talks[9], 2, finish_reason="rule", cost_usd=0.0)
    run = write_run(tmp_path / "run", examples=[example(n) for n in range(10)], conversations=talks)
    found = card_figures(run)
    well = "FROM conversations WHERE failure IS NULL"
    sums = "sum(cost_usd), sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT"
    ((usd, *spent),) = run_query(f"SELECT {sums} {well}", [run]).rows
    assert (found.cost_usd, [*found.tokens]) == (pytest.approx(usd), spent)
    counts = (
        "count(*), count(failure), count(*) FILTER (cut_turns > 0), count(*) FILTER (flags != [])"
    )
    assert run_query(f"SELECT {counts} FROM conversations", [run]).rows == [
        (found.total, found.failed, found.cut, found.flagged)
    ]
    assert (found.total, found.failed, found.cut, found.flagged) == (20, 1, 1, 1)
    assert found.failures == [("TransientModelError", 1)]
    means = "avg(correct::INT), avg(thinking::INT), count(*) FILTER (answer IS NULL), count(*)"
    rows = run_query(
        f"SELECT split, temperature, {means} {well} GROUP BY ALL ORDER BY ALL", [run]
    ).rows
    assert len(rows) == len(found.policy) == 4
    for row, (split, temperature, right, thinking, unparsed, n) in zip(
        found.policy, rows, strict=True
    ):
        assert row.accuracy is not None
        assert row.thinking is not None
        assert (row.split, row.temperature, row.unparsed, row.n) == (
            split, temperature, unparsed, n,
        )  # fmt: skip
        assert (row.accuracy.mean, row.thinking.mean) == pytest.approx((right, thinking))


def test_of_what_one_reply_cost_nobody_knows_the_sum_is_unknown(tmp_path: Path) -> None:
    talks = [conversation(0), with_turn(conversation(0, 1), 3, cost_usd=None)]
    run = write_run(tmp_path / "run", examples=[example(0)], conversations=talks)
    assert (card_figures(run).cost_usd, card_figures(run).tokens) == (None, (40, 20))


def with_turn(talk: Conversation, place: int, **more: Any) -> Conversation:
    """Return a conversation with one of its turns changed."""
    turns = list(talk.turns)
    turns[place] = turns[place].model_copy(update=more)
    return talk.model_copy(update={"turns": tuple(turns)})
