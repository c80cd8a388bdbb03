"""SWEET-RL, stage 1: the turn-wise advantage model, which sees the hidden reference.

Equations (2) and (3) of Zhou et al. (2025). With nothing hidden and token sums (`args.hidden: []`,
`args.normalize: false`) this is DPO over whole trajectories, the paper's multi-turn DPO.

    python trainers/sweet_critic.py --recipe FILE     under any launcher
"""

from convbench.learn.job import Job, script
from convbench.learn.select import select
from convbench.learn.steps import LogSize
from convbench.learn.sweet.pairs import SweetArgs, TrajectoryPairs, trajectory_pairs
from convbench.schema.recipe import Recipe

ONE_RUN = True
"""It learns from the conversations of a single run."""
STEP, SEQUENCES = "critic", 2
"""What a step computes, and the sequences of a row in the model at once (`learn/placement.py`)."""


def most_rows(recipe: Recipe, log: LogSize) -> int:
    """Return the most pairs that a log has: a task's best conversation with each other one, or all
    pairs of its conversations."""
    settings = SweetArgs.from_args(recipe.args, recipe.name)
    if settings.select == "gap" or recipe.pairing.ties == "all":
        return sum(count * (count - 1) // 2 for count in log.samples)
    return sum(max(0, count - 1) for count in log.samples)


def data(job: Job) -> TrajectoryPairs:
    """Return pairs (better, worse) of a task's conversations by reward, to train on and held out.

    Raise TrainError if there are none to train on, or if a hidden field is missing.
    """
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    recipe = job.recipe
    return trajectory_pairs(
        select(job.run, recipe.data), settings, recipe.pairing.ties, recipe.fit.seed
    )


def fit(job: Job, pairs: TrajectoryPairs) -> None:
    """Train with the Bradley-Terry loss of the sums of turn advantages and save the critic in the
    job's folder."""
    from convbench.learn.sweet import critic as advantage

    advantage.fit(job, pairs)


if __name__ == "__main__":
    script(data, fit)  # type: ignore[arg-type]
