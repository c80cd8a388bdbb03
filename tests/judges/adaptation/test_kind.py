"""The judge kind `adaptation`: ordinary verdicts, kept work, closed books."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Caller
from convbench.engine.session import Session
from convbench.errors import SpecError, TrainError
from convbench.judges.adaptation import metrics
from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.closed_book import questions_of
from convbench.judges.adaptation.grader import open_grader
from convbench.judges.adaptation.learner import Learner, Question
from convbench.judges.adaptation.runner import LearnerRef, cache_of, open_runner, settings_of
from convbench.judges.adaptation.settings import InnerSettings
from convbench.judges.resolve import Judge
from convbench.judges.run import score_pending
from convbench.judges.units import JudgeSummary
from convbench.options.shared import CallOptions
from convbench.schema import Message
from convbench.store import Run
from tests.helpers import seal_runs
from tests.helpers.self_edits import good
from tests.support.later import later

torch = later("torch")
safetensors_torch = later("safetensors.torch")

QUIET = CallOptions(quiet=True)
INNER = InnerSettings(max_tokens=16)


def judged(run: Run, judge: Judge) -> JudgeSummary:
    with run.lock():
        return asyncio.run(score_pending(run, judge, QUIET, Session()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    examples = seal_runs.some_examples(3)
    edits = {examples[0].example_id: [good(examples[0]), " \n--"],
             examples[1].example_id: [good(examples[1]), good(examples[1])]}  # fmt: skip
    return seal_runs.edits_run(tmp_path_factory.mktemp("seal") / "run", examples, edits)


def test_verdicts_are_ordinary_and_finished_work_is_kept(run: Run) -> None:
    judge = seal_runs.quick_judge(**{"args.inner.epochs": 20, "args.inner.learning_rate": 0.01})
    done = judged(run, judge)
    assert (done.jobs.done, done.failed_count, done.already_scored) == (4, 0, 0)
    verdicts = {v.conversation_id.rpartition("-")[2] + v.conversation_id: v for v in run.verdicts()}
    assert len(verdicts) == 4
    for verdict in verdicts.values():
        assert verdict.failure is None
        assert verdict.reward == verdict.scores["overall"] == verdict.scores["accuracy"]
        gain = verdict.scores["accuracy"] - verdict.details["before"]
        assert verdict.scores["gain"] == pytest.approx(gain)
        assert verdict.scores["improves"] == float(gain > 0)
    bad = [v for v in verdicts.values() if "reason" in v.details]
    assert len(bad) == 1
    assert "no line to train on" in bad[0].details["reason"]
    assert bad[0].scores["gain"] == bad[0].scores["improves"] == 0
    assert max(v.scores["gain"] for v in verdicts.values()) > 0
    same = [v for v in verdicts.values() if v.details["texts"] == 5]
    assert len({v.scores["accuracy"] for v in same[-2:]}) == 1

    lines = (run.path / "adaptations.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(set(keys)) == len(keys) == 4, "two passages before, two different edits after"
    whole = run.verdicts_file.read_bytes()
    run.verdicts_file.write_bytes(b"")  # as if killed before a verdict was written
    again = judged(run, judge)
    assert again.jobs.done == 4
    assert (run.path / "adaptations.jsonl").read_text().splitlines() == lines, "nothing anew"
    strip = [(v.conversation_id, v.scores, v.details) for v in run.verdicts()]
    run.verdicts_file.write_bytes(whole)
    assert [(v.conversation_id, v.scores, v.details) for v in run.verdicts()] == strip
    assert judged(run, judge).already_scored == 4


def test_no_passage_in_a_closed_book_prompt(run: Run) -> None:
    with cache_of(run) as kept:
        runner = open_runner(run, settings_of(seal_runs.quick_judge()), kept)
    for example in run.examples.values():
        assert seal_runs.SENTINEL in example.inputs["passage"]
        asked = questions_of(run.manifest.task, example, runner.protocol)
        assert len(asked) == 4
        for question, item in zip(asked, example.hidden["questions"], strict=True):
            text = str(question.messages)
            assert seal_runs.SENTINEL not in text
            assert item["question"] in text
            assert question.topic == example.inputs["title"]
            assert question.topic in text


def test_a_protocol_that_shows_the_passage_gets_none(run: Run, tmp_path: Path) -> None:
    """A template that asks for the passage is refused: it is not among its fields."""
    from convbench import catalog
    from convbench.schema import ProtocolSpec

    text = (catalog.shipped_folder() / "protocols" / "closed-book.yaml").read_text()
    (tmp_path / "open.yaml").write_text(text.replace("{{ question }}", "{{ passage }}"))
    protocol = catalog.load_spec(ProtocolSpec, "protocols", str(tmp_path / "open.yaml"))
    with pytest.raises(SpecError, match="passage"):
        questions_of(run.manifest.task, next(iter(run.examples.values())), protocol)


def test_another_policy_tries_an_identical_edit_anew(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(seal_runs.pocket(), other)
    weights = safetensors_torch.load_file(other / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * 0.5
    safetensors_torch.save_file(weights, other / "model.safetensors", {"format": "pt"})
    one, two = LearnerRef.of_run(run, None), LearnerRef.of_run(run, f"local:{other}")
    assert one.fingerprint != two.fingerprint
    assert LearnerRef.of_run(run, "local:pocket") == one
    judge = seal_runs.quick_judge(**{"args.learner": f"local:{other}"})
    fresh = seal_runs.edits_run(tmp_path / "run", list(run.examples.values()), {
        name: ["- kosan has home field."] for name in list(run.examples)[:1]
    })  # fmt: skip
    judged(fresh, judge)
    (verdict,) = fresh.verdicts()
    assert verdict.details["learner"] == two.fingerprint
    before = (fresh.path / "adaptations.jsonl").read_text().count("\n")
    judged(fresh, seal_runs.quick_judge())
    assert (fresh.path / "adaptations.jsonl").read_text().count("\n") == 2 * before


def test_a_penalty_on_what_is_lost_elsewhere(tmp_path: Path) -> None:
    """The guard is another passage of the same split; its questions lose what they had."""
    examples = seal_runs.some_examples(4)
    first, other = examples[0], examples[2]  # both train; 1 and 3 are test
    known = {**other.hidden["questions"][0]}
    with cache_of(seal_runs.edits_run(tmp_path / "ask", examples, {})) as kept:
        runner = open_runner(Run.open(tmp_path / "ask"), settings_of(seal_runs.quick_judge()), kept)
        (question, *_) = runner.passage_questions(other)
        known["answer"] = metrics.answer_text(
            runner.own_learner().ask_questions([question], INNER, PassClock())[0][0]
        )
    examples[2] = other.model_copy(update={"hidden": {"questions": [known]}})
    edits = {first.example_id: ["- kosan has home field.", " --"]}
    fresh = seal_runs.edits_run(tmp_path / "run", examples, edits)
    sets = {"args.penalty": 0.5, "args.guard": 5, "args.inner.learning_rate": 0.5}
    judge = seal_runs.quick_judge(**sets)
    judged(fresh, judge)
    harmful, empty = sorted(fresh.verdicts(), key=lambda v: "reason" in v.details)
    with cache_of(fresh) as kept:
        runner = open_runner(fresh, settings_of(judge), kept)
        assert [e.example_id for e in runner.guarding_passages(first)] == [other.example_id]
        assert runner.unadapted_accuracy(examples[2]) == 1.0
    assert harmful.details["lost"] == 1.0, "the base knew it, the adapted policy says nonsense"
    accuracy, before = harmful.scores["accuracy"], harmful.details["before"]
    assert harmful.reward == harmful.scores["overall"] == pytest.approx(accuracy - 0.5)
    assert harmful.scores["gain"] == pytest.approx(accuracy - before)
    assert harmful.scores["net"] == pytest.approx(accuracy - 0.5 - before)
    assert harmful.scores["improves"] == 0
    assert (empty.details["lost"], empty.scores["net"]) == (0, 0)


def test_a_policy_without_weights_and_wrong_settings_are_said(run: Run, tmp_path: Path) -> None:
    away = seal_runs.edits_run(tmp_path / "run", list(run.examples.values()), {}, "openai/gpt-4o")
    with pytest.raises(TrainError, match="whose weights are not available; name"):
        LearnerRef.of_run(away, None)
    with pytest.raises(SpecError, match=r"args: inner\.rank: unknown key"):
        settings_of(seal_runs.quick_judge(**{"args.inner.rank": 3}))


def test_a_passage_without_questions(run: Run, tmp_path: Path) -> None:
    """It is refused, or the learner writes its questions."""
    (example, *_) = seal_runs.some_examples(1)
    bare = example.model_copy(update={"hidden": {}})
    fresh = seal_runs.edits_run(tmp_path / "run", [bare], {bare.example_id: [good(example)]})
    done = judged(fresh, seal_runs.quick_judge())
    assert done.failed_count == 1
    assert "found no hidden field `questions`" in next(iter(done.failures))
    with cache_of(fresh) as kept:
        sets = {"args.writes": "self-edit-self-qa"}
        runner = open_runner(fresh, settings_of(seal_runs.quick_judge(**sets)), kept)
        runner.learner_pool.learner = Writer(None, None)
        (found,) = runner.passage_questions(bare)
    assert (found.text, found.golds) == ("What is the home of kosan?", ("field",))
    assert seal_runs.SENTINEL not in str(found.messages)


class Writer(Learner):
    """A learner that writes one question, and sees the passage while it does."""

    def make_twin(self) -> Learner:
        return self

    def write_reply(self, messages: Sequence[Message], most: int) -> str:
        assert seal_runs.SENTINEL in str(messages)
        assert "Write questions and answers." in str(messages)
        assert most == 512
        return "- What is the home of kosan? field."


def strict(messages: list[Message], example: Mapping[str, Any]) -> str:
    """A judge that accepts one answer; an empty one must never reach it."""
    text = str(messages[0]["content"])
    [answer] = re.findall(r"^Answer given:\n<answer-\w+>\n(.*)\n</answer", text, re.M)
    assert answer != ">"
    assert "Topic: Super Bowl\n" in text
    assert "Right answer: Denver Broncos\n" in text, "one gold answer, the first"
    return "Yes." if answer == "> the Broncos" else "No."


def test_a_judge_model_grades(run: Run) -> None:
    inner = settings_of(seal_runs.quick_judge(**{"args.inner.grade": "model"})).inner
    golds = ("Denver Broncos", "The Broncos of Denver")
    asked = [Question((), golds, f"q{i}", "Super Bowl") for i in range(3)]

    async def go(grader: str | None) -> list[float]:
        async with open_grader(run, grader, inner, Caller(), QUIET, Session()) as rate:
            assert rate is not None
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, rate, asked, ["the Broncos", "", "no idea"])

    assert asyncio.run(go("rule:tests.judges.adaptation.test_kind:strict")) == [1.0, 0.0, 0.0]
    with pytest.raises(SpecError, match=r"no args\.grader"):
        asyncio.run(go(None))
