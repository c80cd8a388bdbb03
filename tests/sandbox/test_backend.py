"""ColBench's backend from build to verdict, on tasks of our own and its real ones."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from convbench import views
from convbench.errors import DataError, RunError
from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.judges.unit_tests import _cached_task, _sandbox_limits, answer_code
from convbench.judges.unit_tests import parse_tests as calls_of
from convbench.sandbox import Limits, agree, check_reference, run_calls
from convbench.schema import Conversation, Example
from convbench.store import Run
from tests.helpers import plug_backend
from tests.helpers.cli import convbench
from tests.helpers.excerpts import Source
from tests.helpers.sandbox import (
    CALLS,
    REFERENCE,
    TASKS,
    example,
    judged,
    needs_wall,
    protocol,
    talk,
)

PLUGIN = Path(plug_backend.__file__)


def _task() -> Any:
    """What is alike for all answers to this task: run and compared once."""
    args = resolve_judge("unit-tests").spec.args
    limits = {k: v for k, v in args.items() if k not in ("reference", "tests", "checker")}
    return _cached_task(
        REFERENCE, tuple(CALLS.values()), _sandbox_limits({**limits, "scope": "module"}, "x")
    )


@needs_wall
def test_the_reward_is_the_share_of_tests() -> None:
    right = judged("thought OUTPUT: I WANT TO ANSWER:\n```python\n" + REFERENCE + "\n```\nDone.")
    assert right.scores == {"overall": 1.0, "accuracy": 1.0, "constant": 0.1}
    assert right.reward == 1.0
    once = _task()
    had = once.expected, once.constants
    assert None not in had
    half = judged("I WANT TO ANSWER: def add(a, b):\n    return a + b if a < 5 else None")
    assert half.scores == {"overall": 0.5, "accuracy": 0.0, "constant": 0.1}
    counts = {"passed": 5, "tests": 10, "reasons": {"another output": 5}}
    assert half.details == {**counts, "constants": {"False": 0.1, "0": 0.1}}
    broken = judged("I WANT TO ANSWER: def add(a, b:")
    assert broken.reward == 0
    assert _task() is once
    assert (once.expected is had[0], once.constants is had[1]) == (True, True)
    assert list(broken.details["reasons"]) == [
        "raised SyntaxError: '(' was never closed (answer, line 1)"
    ]


@needs_wall
def test_the_papers_checker_is_another() -> None:
    """Function scope: helpers, recursion and hoisted imports fail; classes are equal."""

    def both(answer: str, **hidden: object) -> tuple[float, float]:
        asked = {"reference": REFERENCE, "tests": json.dumps(CALLS), **hidden}
        said = talk(("assistant", f"I WANT TO ANSWER:\n{answer}"))
        found = []
        for name in ("unit-tests", "unit-tests-paper"):
            judging = judge_conversation(
                None, None, resolve_judge(name), said, example(**asked), protocol()
            )
            found.append(asyncio.run(judging).scores["overall"])
        return found[0], found[1]

    assert both(REFERENCE) == (1, 1)
    helper = "def plus(a, b):\n    return a + b\ndef add(a, b):\n    return plus(a, b)"
    assert both(helper) == (1, 0)
    assert both("import math\ndef add(a, b):\n    return math.fsum([a, b])") == (1, 0)
    assert both("def add(a, b):\n    return add(a - 1, b) + 1 if a > 0 else a + b") == (1, 0.1)
    kinds = json.dumps({"t": "kind(1)", "u": "kind('x')"})
    typed = {"reference": "def kind(x):\n    return type(x)", "tests": kinds}
    answer = talk(("assistant", "I WANT TO ANSWER:\ndef kind(x):\n    return x.__class__"))
    judge = resolve_judge("unit-tests-paper")
    judging = judge_conversation(None, None, judge, answer, example(**typed), protocol())
    assert asyncio.run(judging).scores["overall"] == 1
    raising = {"reference": "def add(a, b):\n    raise ValueError"}
    assert both("def add(a, b):\n    raise ValueError", **raising) == (1, 0)
    wrong = resolve_judge("unit-tests", sets={"args.checker": "mine"})
    asked = example(reference=REFERENCE, tests=json.dumps(CALLS))
    with pytest.raises(RunError, match=r"args\.checker: found 'mine'; expected ours or paper"):
        asyncio.run(judge_conversation(None, None, wrong, answer, asked, protocol()))


@needs_wall
def test_a_task_whose_reference_cannot_run_is_unsupported_not_failed() -> None:
    with pytest.raises(DataError, match=r"unsupported: .* needs the module 'no_such_module'"):
        judged("I WANT TO ANSWER: pass", reference="import no_such_module\n" + REFERENCE)


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("OUTPUT: I WANT TO ANSWER:\n```python\nA\n```\n", "A\n"),
        ("I WANT TO ANSWER: words\n```\nA\n```\nand\n~~~py\nB\n~~~", "A\n\n\nB\n"),
        ("the whole last reply counts", "the whole last reply counts"),
        ("I WANT TO ANSWER:\n```python\nA", "A"),
        ("I WANT TO ANSWER: not this\nOUTPUT: I WANT TO ANSWER:\nB", "B"),
    ],
)
def test_what_counts_as_the_answer(said: str, first: str) -> None:
    assert answer_code(talk(("assistant", said)), protocol())[0] == first


@needs_wall
def test_build_and_judge_on_whole_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_rows: Source
) -> None:
    monkeypatch.setenv("COLBENCH_TASKS", str(hub_rows.place / TASKS))
    source = f"task.source.file={hub_rows.place / TASKS}"
    built = convbench(
        tmp_path, "build", "colbench-backend", "--set", source, "--tasks", "12", "--samples", "1",
        "--temperatures", "1.0", "--model", "rule:plug_backend:agent", "--teacher",
        "rule:plug_backend:human", "--plugin", str(PLUGIN), "--run", "run",
    )  # fmt: skip
    assert built.code == 0, built.err
    done = convbench(tmp_path, "judge", "--run", "run")
    assert done.code == 0, done.err
    run = Run.open(tmp_path / "run")
    verdicts = {v.conversation_id: v for v in run.verdicts()}
    best = [verdict.scores["constant"] for verdict in verdicts.values()]
    assert len(best) == 12
    assert 0 < fmean(best) < 1, "a constant passes some tests, and some tasks whole"
    table = [line.split() for line in done.out.splitlines()]
    (head,) = (words for words in table if words[:1] == ["judge"])
    (row,) = (words for words in table if words[:1] == ["unit-tests"])
    assert row[head.index("constant")] == f"{fmean(best):.2f}", "beside the scores it is a floor of"
    said = convbench(tmp_path, "report", "run", "--split", "all", "--format", "markdown")
    lines = [line.split(" | ") for line in said.out.splitlines() if line.startswith("| ")]
    at = lines[0].index("R Best constant")
    assert lines[1][at].startswith(f"{fmean(best):.2f} ±"), said
    right = set()
    for conversation in run.conversations():
        asked = run.examples[conversation.example_id]
        verdict = verdicts[conversation.conversation_id]
        assert verdict.failure is None
        assert (verdict.scores["accuracy"] == 1) == (len(asked.question) % 2 == 0)
        right.add(verdict.scores["accuracy"])
        leaked = len(asked.question) % 5 == 0
        assert bool({"human:leak", "human:code"} & set(conversation.flags)) == leaked
        _agent_sees_no_reference(run, conversation, asked, leaked)
    assert right == {0.0, 1.0}


@needs_wall
def test_all_references_reproduce_themselves(hub_rows: Source) -> None:
    import duckdb

    rows = duckdb.execute(
        "select ground_truth, test_cases from read_parquet(?)",
        [str(hub_rows.place / TASKS)],
    ).fetchall()
    limits = Limits(modules=("numpy", "bs4"))

    def grade(row: tuple[str, str]) -> str:
        calls = calls_of(row[1], "row")
        wanted = run_calls([row[0]], calls, limits)
        try:
            check_reference(wanted, "row")
        except DataError as error:
            return str(error)
        again = run_calls([row[0]], calls, limits)
        return str(sum(agree(a, b) for a, b in zip(again, wanted, strict=True)))

    with ThreadPoolExecutor(4) as pool:
        found = Counter(pool.map(grade, rows))
    unsupported = {name for name in found if "needs the module" in name}
    assert set(found) - unsupported == {"10"}
    assert sum(found[name] for name in unsupported) <= hub_rows.pick(0, 3)


def _runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of twelve words and signs."""
    tokens = re.findall(r"\w+|[^\w\s]", text.lower())
    return {tuple(tokens[i : i + 12]) for i in range(len(tokens) - 11)}


def _agent_sees_no_reference(
    run: Run, conversation: Conversation, asked: Example, leaked: bool
) -> None:
    made = run.manifest.protocol
    secret = _runs(asked.hidden["reference"]) - _runs(asked.question)
    for index in views.policy_turns(made, conversation):
        seen = str(views.messages_before(made, conversation, made.policy, index))
        assert asked.hidden["tests"] not in seen
        if not leaked:
            assert not secret & _runs(seen)
    others = views.messages_before(made, conversation, "human", 2)
    assert asked.hidden["reference"] in str(others[0]["content"])
