"""A training of both stages, which most tests of this folder look at."""

from __future__ import annotations

from typing import Any

import pytest

from convbench.learn.job import Job
from tests.helpers import stages
from tests.helpers.collaboration import Trained, judged_run
from tests.helpers.tiny import save_model

SETS = (
    "args.candidates=4", "args.nll=0", "args.share=1", "args.held_out=0", "args.conversations=1",
    "fit.precision=fp64", "fit.epochs=1", "fit.batch_size=4", "fit.accumulation=1",
    "fit.log_every=1", 'args.critic={"epochs": 2, "learning_rate": 1.0e-3}',
    "fit.learning_rate=1e-3", "fit.save=end", "fit.gradient_checkpointing=false",
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    from convbench.learn import fitting

    tmp_path = tmp_path_factory.mktemp("sweet")
    base = save_model(tmp_path / "base")
    told = [
        (f"q{i}", [f"which {w}?", "I WANT TO ANSWER: x"], reward)
        for i in range(4)
        for w, reward in (("colour", 1.0), ("mood", 0.0))
    ]
    run = judged_run(tmp_path / "run", told, f"local:{base}")
    options = {"recipe": "sweet", "run": run.path, "set": SETS, "in_process": True}
    seen: list[Any] = []
    fit = fitting.run_training

    def seen_train(trainer: Any, job: Job, steps: Any) -> None:
        seen.append(trainer)
        fit(trainer, job, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "run_training", seen_train)
        done = stages.train(**options)
    assert done.path == run.checkpoints_folder / "sweet"
    return Trained(base, run.checkpoints_folder / "sweet", options, *seen)
