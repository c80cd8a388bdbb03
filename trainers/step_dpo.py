"""StepDPO: at each turn the better conversation's reply against the worse one's.

Section 4 of Mukherjee et al. (NeurIPS 2025). `pairing.source: logged` pairs turns of the logged
conversations under the winner's history; `resampled` pairs each with branches that begin at one of
its turns, sampled to the end and judged, as Chen et al. (2025) do (`convbench train` samples them).

    python trainers/step_dpo.py --recipe FILE     under any launcher
"""

from convbench.learn import pairs
from convbench.learn.job import Job, PairData, Preparation, TrainContext, script
from convbench.learn.pairs import Pairs
from convbench.learn.select import select_branches
from convbench.learn.steps import LogSize
from convbench.schema.recipe import Recipe

STEP, SEQUENCES = "preference", 2
"""What a step computes, and the sequences of a row in the model at once (`learn/placement.py`)."""


def most_rows(recipe: Recipe, log: LogSize) -> int:
    """Return the most pairs: of each reply of the best and worst, or of each branch."""
    pairing = recipe.pairing
    if pairing.source == "logged":
        return log.replies * log.count_contrasts(pairing.ties)
    return log.replies * log.conversation_count * pairing.per_turn


def prepare(job: Job, context: TrainContext) -> Preparation | None:
    """Return the preparation that samples and judges branches; None for logged pairs."""
    if job.recipe.pairing.source == "logged":
        return None
    from convbench.learn.branches import BranchPreparation

    return BranchPreparation.from_job(job, context)


def data(job: Job) -> Pairs:
    """Return pairs of replies at each turn, from the log or from the branches in the run.

    Raise TrainError if no pair is left.
    """
    logged = job.log()
    pairing = job.recipe.pairing
    if pairing.source == "logged":
        return pairs.logged_turns(logged, pairing, job.recipe.fit.seed)
    return pairs.branched_turns(logged, select_branches(logged, job.recipe.data), pairing.min_gap)


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
