"""A question's conversations judged beside each other: one call, a verdict each, learnt from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from convbench.commands.judge import judged_run
from convbench.judges.group import group_schema, read_group
from convbench.judges.replies import Complaint
from convbench.judges.resolve import resolve_judge
from convbench.learn.select import select
from convbench.learn.weights import weigh
from convbench.reports.frame import read_settings
from convbench.reports.judges import agreement_table
from convbench.schema.recipe import Data, Weighting
from convbench.store.query import run_query
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.support.provider import Plan, Provider

SPEC = resolve_judge("relative@x/y").spec


def talks(folder: Path, samples: int = 3) -> Run:
    """Two questions with `samples` conversations each."""
    names = ("q0", "q1")
    items = [tiny.conversation(name, i, [f"SAID{i}"]) for name in names for i in range(samples)]
    return tiny.make_run(folder, [(one, []) for one in items], [tiny.example(n) for n in names])


def by_sample(call: Any) -> str:
    """Sample i gets 2 + 3i, wherever it is shown."""
    shown = re.findall(r"> SAID(\d)", call.messages[1][1])
    return json.dumps({
        f"conversation_{place}": {"overall": {"score": 2 + 3 * int(i), "justification": "So."}}
        for place, i in enumerate(shown, 1)
    })  # fmt: skip


def judged(run: Run, provider: Provider, **more: Any) -> Any:
    return stages.judge_result(
        run.path, "relative@openai/judge", api_base=provider.api_base, **more
    )


def test_one_call_gives_each_a_verdict_that_swift_standardises(tmp_path: Path) -> None:
    run = talks(tmp_path / "run")
    with Provider(Plan(keep_requests=9), reply=by_sample) as provider:
        (shown,) = judged(run, provider, dry_run=True).previews
        assert (shown.estimate.conversations, shown.estimate.calls) == (6, 2)
        found = judged(run, provider).summaries[0]
        assert (found.jobs.done, found.failed_count, provider.stats.calls) == (6, 0, 2)
        assert judged(run, provider).summaries[0].already_scored == 6
        assert provider.stats.calls == 2
        text = str(provider.requests[0]["messages"][1]["content"])
        assert text.count("\n</transcript-") == 3
    sql = (
        "select c.sample, avg(v.overall), avg(v.reward) "
        "from verdicts v join conversations c using (conversation_id) group by 1 order by 1"
    )
    rows = run_query(sql, [run]).rows
    assert [(row[1], row[2]) for row in rows] == [(2.0, 0.2), (5.0, 0.5), (8.0, 0.8)]
    spent = run_query("select sum(prompt_tokens), sum(cost_usd) from verdicts", [run]).rows[0]
    assert spent[0] == sum(v.prompt_tokens or 0 for v in run.verdicts())
    beside = judged_run(stages.judge_result(run.path, "rules"))
    (setting,) = read_settings([run], "all", allow=True)
    assert len(beside.judges) == 2
    assert agreement_table(setting) is None, "it agrees with no judge over questions"
    selection = select([run], Data(judge="relative@openai/judge"))
    items = weigh(selection, Weighting()).of_conversations()
    given = {logged.conversation.sample: weight for logged, weight in items}
    assert given == pytest.approx({0: -1.0, 1: 0.0, 2: 1.0}), "standardised within a question"


def test_a_new_sample_has_its_question_judged_again_and_failures_are(tmp_path: Path) -> None:
    run = talks(tmp_path / "run")
    with Provider(Plan(), reply=lambda call: "Conversation 1\nOverall: 5\nSo.") as provider:
        found = judged(run, provider).summaries[0]
        assert found.failed_count == 6
        assert provider.stats.calls == 2 * 3, "asked again with the complaint"
    with Provider(Plan(), reply=by_sample) as provider:
        assert judged(run, provider).summaries[0].failed_count == 0
        assert provider.stats.calls == 2
    alone = talks(tmp_path / "alone", samples=1)
    with Provider(Plan(), reply=by_sample) as provider:
        found = judged(alone, provider).summaries[0]
        assert provider.stats.calls == 0
        assert "expected 2 to 16" in next(iter(found.failures))


TEXT = "Conversation 1\nOverall: 7\nGood.\n\n**Conversation 2**\nOverall: 3\nWorse."
JSON = json.dumps({f"conversation_{k}": {"overall": {"score": s, "justification": ""}}
                   for k, s in ((1, 7), (2, 3))})  # fmt: skip


@pytest.mark.parametrize("reply", [TEXT, JSON, f"```json\n{JSON}\n```"])
def test_both_forms_are_read(reply: str) -> None:
    found = read_group(reply, SPEC, 2)
    assert isinstance(found, tuple), found
    assert [one.scores["overall"] for one in found] == [7, 3]


@pytest.mark.parametrize(
    "reply",
    [
        TEXT.replace("2**", "3**"), TEXT + "\n\nConversation 2\nOverall: 9\nNo, this.",
        TEXT.replace("Overall: 3", "Overall: 30"), JSON.replace("conversation_2", "conversation_1"),
        "{}", "[]", "", "[" * 3000,
    ],
)  # fmt: skip
def test_anything_else_is_complained_about(reply: str) -> None:
    assert isinstance(read_group(reply, SPEC, 2), Complaint)
    assert set(group_schema(SPEC, 2)["properties"]) == {"conversation_1", "conversation_2"}
