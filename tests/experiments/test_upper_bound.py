"""The plan of an experiment is an upper bound of what each of its steps takes, and a near one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from convbench.engine.session import Session
from convbench.experiments.amounts import ResourceEstimate
from convbench.experiments.experiment import ExperimentResult
from tests.helpers import stages
from tests.support.later import later
from tests.support.provider import Call, Plan, Provider, scripted_reply

torch = later("torch")

PRICED = "openai/gpt-4o-mini"
TOO_MANY = {"calls": 1.5, "tokens": 3.5, "usd": 7.0}
"""How many times what is taken the plan may be. Most of it is that tokens are estimated at 3 bytes
each, and that the tests' provider counts words, says one for a grade, and may say 64."""
FIT = """
    all:
      launch: none
      fit.batch: 8
      fit.batch_size: 4
      fit.epochs: 1
      fit.precision: fp32
      fit.gradient_checkpointing: false
      fit.save: end
"""
SWEET = f"""
title: a critic, then candidates that it ranks
tasks: [pocket-collaboration]
modes: [standard]
turns: [2]
model: local:pocket
judges: [rules]
learners: [base, mt-dpo, sweet]
count: 30
samples: 4
temperatures: [1.0]
sets: {{protocol.speakers.assistant.max_tokens: 12, protocol.speakers.human.max_tokens: 8}}
recipe_sets:{FIT}
      data.metric: accuracy
      args.select: gap
      args.gap: 0.5
    sweet:
      args.share: 1
      args.held_out: 0
      args.conversations: 1
      args.candidates: 4
      args.pairs: 2
      args.critic: {{epochs: 1}}
"""
SEAL = f"""
title: two rounds, and many passages
tasks: [pocket-notes]
modes: [standard]
protocols: [self-edit]
model: local:pocket
judges: [graded.yaml]
learners: [base, seal]
count: 8
samples: 2
temperatures: [1.0]
max_tokens: 24
sets: {{task.sample.train: 0.5, task.sample.each.test: 1}}
recipe_sets:{FIT}
      fresh: true
      lora.r: 4
      args.sequences: 2
      args.length: 2
      args.pretraining: 1
"""
GRADED = f"""
title: answers graded by a priced model
extends: adaptation
args:
  grader: {PRICED}
  inner:
    r: 4
    alpha: 8
    epochs: 6
    learning_rate: 0.01
    batch_size: 4
    seeds: 2
    max_tokens: 8
    grade: model
  pretraining: {{texts: lines, epochs: 1}}
"""
POCKET = f"""
title: two judges, one of them priced
tasks: [pocket]
modes: [thinking]
model: local:pocket
judges: [rules, scored.yaml]
learners: [base, step-dpo]
count: 12
max_tokens: 24
recipe_sets:{FIT}
"""
SCORED = f"{{title: a priced rubric, extends: rubric, model: {PRICED}, max_tokens: 150}}"


@dataclass(frozen=True)
class Taken:
    """What a step took."""

    calls: int
    tokens: int
    usd: float
    steps: int
    conversations: int
    verdicts: int


class Experiment:
    """An experiment of which each step is planned, then done."""

    def __init__(self, folder: Path, spec: str) -> None:
        self.file, self.root = folder / "experiment.yaml", folder / "r"
        for name, judge in (("graded.yaml", GRADED), ("scored.yaml", SCORED)):
            (folder / name).write_text(judge)
            spec = spec.replace(name, str(folder / name))
        self.file.write_text(spec)

    def plan_step(self, address: str) -> ResourceEstimate:
        plan = self._start(address, Session(), dry_run=True).plan
        assert plan.missing == []
        return plan.total_estimate

    def do_step(self, address: str) -> Taken:
        before, session = self._count_results(), Session()
        result = self._start(address, session)
        assert [outcome.state for outcome in result.outcomes] == ["done"], result.failure_lines
        spent, after = session.ledger.all, self._count_results()
        counts = [now - then for now, then in zip(after, before, strict=True)]
        return Taken(spent.attempts, spent.tokens, spent.usd, *counts)

    def _start(self, address: str, session: Session, **more: Any) -> ExperimentResult:
        return stages.experiment(
            str(self.file), run=self.root, only=(address,), session=session, **more
        )

    def _count_results(self) -> tuple[int, int, int]:
        """Return (optimiser steps, conversations, verdicts) of all runs so far, with those of
        critics, rounds and evaluations."""
        trainings = [json.loads(file.read_text()) for file in self.root.rglob("training.json")]
        conversations, verdicts = (
            sum(len(file.read_text().splitlines()) for file in self.root.rglob(f"{name}.jsonl"))
            for name in ("conversations", "verdicts")
        )
        return sum(training.get("steps", 0) for training in trainings), conversations, verdicts


def graded_or_scripted(call: Call) -> str:
    """Say yes or no to an answer, always the same; else speak or score."""
    if "Reply with yes or no" in call.asked:
        return "yes" if zlib.crc32(call.asked.encode()) % 2 else "no"
    return scripted_reply(call)


@pytest.fixture
def priced_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for an experiment with a priced judge."""
    torch.set_num_threads(1)
    with Provider(Plan(), reply=graded_or_scripted) as provider:
        monkeypatch.setenv("OPENAI_API_BASE", provider.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        yield tmp_path


@pytest.mark.parametrize(
    ("spec", "learners", "paid"),
    [
        pytest.param(SWEET, ("mt-dpo", "sweet"), set(), marks=pytest.mark.exhaustive),
        (SEAL, ("seal",), {"judge", "train/seal"}),
        pytest.param(
            POCKET, ("step-dpo",), {"judge", "eval/step-dpo"}, marks=pytest.mark.exhaustive
        ),
    ],
    ids=["sweet", "seal", "pocket"],
)
def test_no_step_takes_more_than_its_plan(
    priced_folder: Path, spec: str, learners: tuple[str, ...], paid: set[str]
) -> None:
    experiment = Experiment(priced_folder, spec)
    trained = [f"{kind}/{name}" for name in learners for kind in ("train", "eval")]
    for step in ("build", "judge", *trained):
        planned, taken = experiment.plan_step(f"*/{step}"), experiment.do_step(f"*/{step}")
        judged = planned.verdicts if "scored.yaml" in spec else 0  # at most a call for each
        for name, factor in TOO_MANY.items():
            own, most = getattr(taken, name), getattr(planned, name)
            more = judged if name == "calls" else 0
            assert own <= most + more, (step, name)
            assert most <= factor * own, (step, name)
        assert (taken.usd > 0) == (step in paid), step
        assert taken.conversations == planned.conversations, step
        assert taken.verdicts == planned.verdicts, step
        assert (taken.steps > 0) == step.startswith("train"), step
