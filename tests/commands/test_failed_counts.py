"""What failed is counted once: the same number in progress, summary, records and exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench.errors import RunError
from convbench.experiments.evaluate import check_evaluation
from convbench.experiments.experiment import ExperimentResult
from convbench.options.shared import CallOptions, FailureLimit
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import Done, convbench
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.provider import Provider

POISON = "a metal spoon"
"""Stands in one of the five questions: a provider's filter refuses it."""
SAME = {"1": "1", "2": "2", "20%": "25%", "21%": "26%"}
"""One of five that are built is one of four that are judged."""
QUIET = CallOptions(quiet=True)
COUNTED = re.compile(r"(\d+) failed")


def reply(call: Call) -> str:
    """A judge has no word for one of the questions."""
    unread = "Overall:" in call.system and "sense organ" in call.text
    return "I would rather not say." if unread else scripted_reply(call)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    monkeypatch.chdir(tmp_path)
    plan = Plan(poison={POISON: "filter"}, context_tokens=None)
    with Provider(plan, reply=reply) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def built(*more: str, code: int = 0) -> Done:
    """Five questions, one with the poison; the run lies in runs/one."""
    done = convbench(
        Path(), "build", "demo", "--tasks", "5", "--samples", "1", "--temperatures", "0.5",
        "--set", "task.sample.train=0.8", "--model", "hosted_vllm/policy", "--run", "runs/one",
        *more,
    )  # fmt: skip
    assert done.code == code, done.out + done.err
    return done


def failures(file: str) -> int:
    lines = (Path("runs/one") / file).read_text().splitlines()
    return sum(json.loads(line)["failure"] is not None for line in lines)


def said(done: Done) -> set[str]:
    return set(COUNTED.findall(done.out + done.err))


def test_progress_summary_and_records_of_a_build_say_one_number(provider: Provider) -> None:
    done = built()
    assert failures("conversations.jsonl") == 1
    assert said(done) == {"1"}
    assert "4 complete, 1 failed" in done.out


def test_a_resumed_build_tells_what_it_had_before(provider: Provider) -> None:
    built()
    provider.change(poison={})
    done = convbench(Path(), "build", "--run", "runs/one")
    assert "5 complete (4 before, 1 now), 0 failed" in done.out


def test_progress_summary_and_records_of_a_judge_say_one_number(provider: Provider) -> None:
    built()
    done = convbench(Path(), "judge", "--judge", "hosted_vllm/judge")
    assert (done.code, failures("verdicts.jsonl"), said(done)) == (0, 1, {"1"})
    assert "1 without a score" in done.err


@pytest.mark.parametrize(("limit", "code"), [("1", 1), ("2", 0), ("20%", 1), ("21%", 0)])
def test_fail_on_decides_the_exit_code(provider: Provider, limit: str, code: int) -> None:
    built("--fail-on", limit, code=code)
    again = convbench(Path(), "build", "--run", "runs/one", "--fail-on", limit)
    assert again.code == (limit != "2"), "it is one of one now"
    judging = ("judge", "--judge", "hosted_vllm/judge", "--fail-on", SAME[limit])
    assert convbench(Path(), *judging).code == code


@pytest.mark.parametrize("wrong", ["0", "-1", "0%", "101%", "many", "5%5", ""])
def test_a_limit_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="expected a number of failures"):
        FailureLimit.parse_limit(wrong)
    with pytest.raises(ValueError, match="expected a number of failures"):
        CallOptions(fail_on=wrong)


def test_an_evaluation_of_which_all_failed_is_no_success(provider: Provider) -> None:
    built()
    assert convbench(Path(), "judge", "--judge", "rules").code == 0
    provider.change(poison={"Which of these is a solid": "filter"})
    done = convbench(Path(), "eval", "hosted_vllm/other", "--run", "runs/one")
    assert done.code == 1
    assert "0 complete, 1 failed" in done.out
    assert "filter" in done.err
    child = Run.open(Path("runs/one/evals/hosted_vllm-other"))
    found = stages.evaluate_result("hosted_vllm/other", Path("runs/one"))
    assert found.run.path.resolve() == child.path.resolve()
    with pytest.raises(RunError, match="1 of 1 conversations failed"):
        check_evaluation(found, QUIET)


def experimented(tmp_path: Path, **options: object) -> ExperimentResult:
    spec = tmp_path / "mine.yaml"
    spec.write_text(json.dumps({
        "name": "mine", "title": "Mine", "tasks": ["demo"], "count": 5, "samples": 1,
        "temperatures": [0.5], "learners": ["base"], "model": "hosted_vllm/policy",
        "judges": ["hosted_vllm/judge"], "sets": {"task.sample.train": 0.8},
    }))  # fmt: skip
    return stages.experiment(str(spec), run=tmp_path / "root", **options)


def test_an_experiment_records_what_failed(provider: Provider, tmp_path: Path) -> None:
    found = experimented(tmp_path)
    assert found.is_complete
    assert [line.split(", e.g. ")[0].partition("/")[2] for line in found.failure_lines] == [
        "build: 1 of 5 conversations failed",
        "judge: 1 of 4 verdicts of hosted_vllm/judge failed",
    ]


def test_a_cell_stops_where_too_much_failed(provider: Provider, tmp_path: Path) -> None:
    found = experimented(tmp_path, fail_on=1)
    assert not found.is_complete
    failed, waiting = found.failure_lines
    assert re.search(r"build: 1 of 5 conversations failed.*--fail-on 1", failed)
    assert waiting.endswith("/judge: waits for demo-thinking-seed0/build")
    assert not list(tmp_path.glob("root/*/verdicts.jsonl"))


# -- the newest run, and runs that a judge is given


def scripted(run: str | None = None, **more: object) -> Path:
    values = {"tasks": 3, "samples": 1, "temperatures": (0.5,), "model": "scripted:policy", **more}
    done = stages.build_result("demo", run=run, **values)
    assert done.path is not None
    return done.path


def latest() -> Path:
    return Path("runs/latest").resolve()


def test_a_run_without_a_conversation_is_not_the_newest(provider: Provider) -> None:
    first = scripted("runs/first").resolve()
    assert latest() == first
    provider.change(poison={}, faults={"filter": 1.0})
    scripted("runs/second", model="hosted_vllm/policy")
    assert latest() == first


def test_a_run_made_elsewhere_is_not_the_newest(provider: Provider, tmp_path: Path) -> None:
    first = scripted("runs/first").resolve()
    scripted(str(tmp_path / "elsewhere"))
    assert latest() == first
    done = convbench(Path(), "build", "demo", "--tasks", "3", "--samples", "1", "--temperatures",
                     "0.5", "--model", "scripted:policy", "--run", "here")  # fmt: skip
    assert latest() == first
    assert "next: convbench judge --judge rules --run here" in done.out


def test_a_judge_of_nothing_is_no_success(provider: Provider) -> None:
    provider.change(poison={}, faults={"filter": 1.0})
    scripted("runs/second", model="hosted_vllm/policy")
    error = convbench(Path(), "judge", "--judge", "rules", "--run", "runs/second").error
    assert "no conversation to judge (3 failed)" in error


def test_a_judge_scores_every_run_that_is_named(provider: Provider) -> None:
    for name in ("runs/a", "runs/b"):
        scripted(name)
    done = convbench(Path(), "judge", "--judge", "rules", "--run", "runs/a", "--run", "runs/b")
    assert done.code == 0, done.err
    for name in ("runs/a", "runs/b"):
        assert len(list(Run.open(Path(name)).verdicts())) == 3


def test_no_run_is_judged_where_another_is_not_there(provider: Provider) -> None:
    scripted("runs/a")
    done = convbench(Path(), "judge", "--judge", "rules", "--run", "runs/a", "--run", "runs/b")
    assert "runs/b: found no run.json" in done.error
    assert not Path("runs/a/verdicts.jsonl").exists()


def test_a_command_that_takes_one_run_is_not_given_two(provider: Provider) -> None:
    scripted("runs/a")
    done = convbench(Path(), "export", "--to", "openai", "--run", "runs/a", "--run", "runs/a")
    assert (done.code, "given 2 times" in done.err) == (2, True)
    done = convbench(Path(), "eval", "scripted:policy", "--run", "runs/a", "--run", "runs/a")
    assert (done.code, "found it twice" in done.error) == (2, True)
    assert not Path("runs/a/evals").exists()


def test_judges_come_from_options(provider: Provider) -> None:
    run = scripted("runs/a")
    assert stages.judge_result(run, "rules").summaries[0].failed_count == 0
