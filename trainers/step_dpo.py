"""StepDPO: at each turn the better conversation's reply against the worse one's.

Section 4 of Mukherjee et al. (NeurIPS 2025): pairs turns of the logged conversations, which all
learners share, under the winner's history.

    python trainers/step_dpo.py --recipe FILE     under any launcher
"""

from convbench.learn import pairs
from convbench.learn.job import Job, PairData, script
from convbench.learn.pairs import Pairs
from convbench.learn.steps import LogSize
from convbench.schema.recipe import Recipe

STEP, SEQUENCES = "preference", 2
"""What a step computes, and the sequences of a row in the model at once (`learn/placement.py`)."""


def most_rows(recipe: Recipe, log: LogSize) -> int:
    """Return the most pairs: one of each reply of the best and worst."""
    return log.replies * log.count_contrasts(recipe.pairing.ties)


def data(job: Job) -> Pairs:
    """Return pairs of replies at each turn of the log. Raise TrainError if no pair is left."""
    return pairs.logged_turns(job.log(), job.recipe.pairing, job.recipe.fit.seed)


def fit(job: Job, pair_data: PairData) -> None:
    """Train with the loss -log sigmoid(beta m) and save the checkpoint in the job's folder.

    m is the better reply's log(pi / pi_0) less the worse one's; with `pairing.loss: ipo` the loss
    is (m - 1 / (2 beta))^2, m of means over a reply's tokens (Azar et al. 2024, equation (17)),
    least at m = 1 / (2 beta).
    """
    from convbench.learn import preference

    preference.fit(job, pair_data)


if __name__ == "__main__":
    script(data, fit)
