"""Answers in imported logs: what the strict reader reads, and what `answers@MODEL` reads."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import ConvbenchError, TrainError
from convbench.learn.select import select
from convbench.reports.document import mean_of
from convbench.schema.recipe import Data
from convbench.store import Run
from convbench.store.query import run_query
from tests.helpers import stages
from tests.helpers.cli import convbench, start
from tests.support.chat.replies import Call
from tests.support.provider import Provider

FINALS = yaml.safe_load(
    (Path(__file__).parent.parent / "answers" / "finals.yaml").read_text(encoding="utf-8")
)
ROCKS = ["granite", "sandstone", "marble", "basalt"]
SAID = {
    "The answer is C.": None,
    "The answer is A.": None,
    "Marble, I would say, since it was limestone once.": "C",
    "I go with the volcanic one.": "D",
    "Who knows?": "none",
    "It has to be the third of them.": "C",
    "Sandstone or basalt.": "none",
}
"""Final turns, and what a model reads in those that the strict reader does not."""


def imported(folder: Path, rows: list[dict[str, Any]]) -> Run:
    """Return a new run of these logged rows."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "log.jsonl").write_text(lines, encoding="utf-8")
    done = convbench(folder, "import", "log.jsonl", "--run", "run")
    assert done.code == 0, done.err
    return Run.open(folder / "run")


def row_of(question: str, reply: str, **more: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": question}
    return {"messages": [asked, {"role": "assistant", "content": reply}], **more}


def sql(run: Run, text: str) -> list[tuple[Any, ...]]:
    return run_query(text, [run]).rows


@pytest.fixture
def rocks(tmp_path: Path) -> Run:
    """A run of the turns in `SAID` about one question whose answer is C."""
    rows = [
        row_of(f"Which rock is metamorphic? ({place})", said, choices=ROCKS, answer="C")
        for place, said in enumerate(SAID)
    ]
    return imported(tmp_path, rows)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Prompts that a model was sent; it reads what stands in `SAID`."""
    prompts: list[str] = []

    def reply(call: Call) -> str:
        prompts.append(call.asked)
        return json.dumps({"answer": read_in(call.asked)})

    with Provider(reply=reply) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield prompts


def read_in(prompt: str) -> str | None:
    return next(letter for said, letter in SAID.items() if said in prompt)


def test_each_style_of_an_answer_is_the_answer_of_query(tmp_path: Path) -> None:
    """The question's options come as a log has them; letters are given on import."""
    lettered = {
        name: list(question["options"].values())
        for name, question in FINALS["questions"].items()
        if next(iter(question["options"])) == "A"
    }
    finals = [one for one in FINALS["read"] if one["question"] in lettered]
    rows = [
        row_of(f"{one['question']} {place}?", one["text"], choices=lettered[one["question"]],
               metadata={"expected": one["answer"]})
        for place, one in enumerate(finals)
    ]  # fmt: skip
    run = imported(tmp_path, rows)
    found = sql(run, "select metadata->>'$.expected', answer, read_by from conversations")
    assert len(found) == len(finals) > 50
    assert [row for row in found if row[1] not in (row[0], None)] == []
    assert sum(row[1] is None for row in found) <= 3
    assert {row[2] for row in found} == {None}


def test_only_unread_answers_are_asked_about_and_query_says_who_read_them(
    rocks: Run, asked: list[str]
) -> None:
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    assert len(asked) == 5
    assert all("The answer is" not in prompt for prompt in asked)
    by = "answers@openai/gpt-4o"
    question = "select answer, correct, read_by from conversations order by example_id, answer"
    assert sorted(sql(rocks, question), key=str) == sorted(
        [("C", True, None), ("A", False, None), ("C", True, by), ("C", True, by),
         ("D", False, by), (None, False, None), (None, False, None)], key=str,
    )  # fmt: skip
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    assert len(asked) == 5, "none is asked about again"


def test_a_model_that_reads_is_shown_the_last_turn_and_not_the_right_letter(
    rocks: Run, asked: list[str]
) -> None:
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    for prompt in asked:
        assert "C. marble" in prompt
        assert "right answer" not in prompt.lower()
        assert prompt.count("Which rock is metamorphic?") == 1


def test_a_dry_run_counts_the_unread_answers_alone(rocks: Run, asked: list[str]) -> None:
    done = stages.judge_result(rocks.path, "answers@openai/gpt-4o", dry_run=True)
    (preview,) = done.previews
    assert (preview.estimate.conversations, preview.estimate.calls) == (5, 5)
    assert preview.estimate.usd
    assert preview.reply_schema["properties"]["answer"]["enum"] == ["A", "B", "C", "D", "none"]
    assert asked == []


def test_accuracy_of_a_report_counts_what_a_model_read(rocks: Run, asked: list[str]) -> None:
    def shares() -> tuple[float | None, ...]:
        table = stages.report(rocks.path, split="all").document.parts[0].tables[0]
        keys = [column.key for column in table.columns]
        cells = dict(zip(keys, table.rows[0].cells, strict=True))
        return tuple(mean_of(cells.get(key)) for key in ("correct", "unread", "unread_first"))

    assert shares() == pytest.approx((1 / 7, 500 / 7, None))
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    assert shares() == pytest.approx((3 / 7, 200 / 7, 500 / 7))


def test_what_a_model_read_is_no_reward(rocks: Run, asked: list[str]) -> None:
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    assert sql(rocks, "select distinct reward, failure from verdicts") == [(None, None)]
    with pytest.raises(TrainError, match="found no verdicts"):
        select([rocks], Data())


def test_replies_that_are_no_letter_are_asked_again_and_then_fail(
    rocks: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = ['{"answer": "E"}', "C", '{"answer": "C", "sure": true}']
    sent: list[str] = []

    def reply(call: Call) -> str:
        sent.append(call.asked)
        return replies[len(sent) - 1] if len(sent) <= 3 else '{"answer": null}'

    with Provider(reply=reply) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        done = stages.judge_result(rocks.path, "answers@openai/gpt-4o", concurrency=1)
    assert "one of A, B, C, D, none" in sent[1]
    assert (done.summaries[0].jobs.done, done.summaries[0].failed_count) == (1, 4)
    assert len(sent) == 3 * 5


def test_a_question_without_options_is_held_against_its_gold_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row_of("What does marble come from?", "From limestone, of course.", answer="limestone"),
        row_of("What is pumice?", "A kind of cheese.", answer="a volcanic rock"),
        row_of("How are you?", "Fine."),
    ]
    run, prompts = imported(tmp_path, rows), list[str]()

    def reply(call: Call) -> str:
        prompts.append(call.asked)
        return json.dumps({"gives_answer": "limestone" in call.asked})

    with Provider(reply=reply) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        stages.judge(run.path, "answers@openai/gpt-4o")
    assert len(prompts) == 2
    assert all("The right answer:" in prompt for prompt in prompts)
    by = "answers@openai/gpt-4o"
    found = sql(run, "select answer, correct, read_by from conversations")
    assert sorted(found, key=str) == sorted(
        [("limestone", True, by), (None, False, by), (None, None, None)], key=str
    )


def test_a_reading_that_was_killed_pays_for_no_reply_twice(rocks: Run) -> None:
    answered: list[str] = []
    child: list[Any] = []

    def reply(call: Call) -> str:
        answered.append(call.asked)
        if len(answered) == 3:
            os.kill(child[0].pid, signal.SIGKILL)
            time.sleep(0.5)
        return json.dumps({"answer": read_in(call.asked)})

    with Provider(reply=reply) as server:
        typed = ("judge", "--judge", "answers@openai/gpt-4o", "--run", "run", "--concurrency", "1",
                 "--api-base", server.api_base)  # fmt: skip
        child.append(start(rocks.path.parent, *typed))
        assert child[0].wait(60) == -signal.SIGKILL
        done = convbench(rocks.path.parent, *typed)
        assert done.code == 0, done.err
    assert len(answered) == 3 + 3, "two replies were kept, the third was lost with the process"
    assert len(set(answered)) == 5


def test_a_reader_without_a_model_says_what_to_type(rocks: Run) -> None:
    with pytest.raises(ConvbenchError, match=re.escape("expected answers@MODEL")):
        stages.judge(rocks.path, "answers")


def test_show_prints_the_schema_of_a_reader_and_what_it_read(rocks: Run, asked: list[str]) -> None:
    assert '"enum": ["A", "B", "C", "D", "none"]' in convbench(rocks.path, "show", "answers").out
    stages.judge(rocks.path, "answers@openai/gpt-4o")
    ((name,),) = sql(rocks, "select conversation_id from conversations where answer = 'D'")
    assert "answer: D" in convbench(rocks.path.parent, "show", name, "--run", "run").out
