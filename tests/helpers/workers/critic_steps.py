"""Worker of the test of launchers: train the critic, write what it did to a file.

python -m tests.helpers.workers.critic_steps --recipe FILE      under any launcher
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from convbench.learn import fitting, launch
from convbench.learn.job import Job
from convbench.learn.sweet import critic as advantage
from tests.helpers.workers.gradients import GRADIENTS, gloo_alone, watched


def record(file: Path) -> dict[str, Any]:
    """Train and return gradients, parameters, losses, and the measures on held-out tasks."""
    job = Job.from_file(file)
    pairs: Any = launch.load_trainer(launch.locate_trainer("sweet_critic")).data(job)
    trainer, table = advantage.critic_trainer(job, pairs)
    found = watched(trainer)
    return {
        **found,
        "pairs": len(table.pairs),
        "held_out": advantage.held_out_figures(trainer, table),
    }


def main(file: Path) -> None:
    """Read the recipe, train, write."""
    gloo_alone()
    found = record(file)
    if found["main"]:
        torch.save(found, file.with_name(GRADIENTS))
    fitting.close_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # as trainers leave: gloo's threads race the interpreter's end
