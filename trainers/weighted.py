"""Any weighting and any objective: `weighting` turns rewards into weights, `loss` is minimised.
ReFit, SWiFt and STaR-GATE are settings of it; so are AWR, A-LoL, PPO and GRPO on a log.

    python trainers/weighted.py --recipe FILE     under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Return the log's conversations, or their turns, weighted by the fields of `weighting`.

    Raise TrainError if none is left, or if all weights are 0.
    """
    logged = job.log()
    return weights.weigh_composed(logged, job.recipe.weighting, job.recipe.fit.seed)


def fit(job: Job, weighted: WeightedData) -> None:
    """Train with the objective, summed over the policy's tokens and divided by N, and save the
    checkpoint in the job's folder."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted)


if __name__ == "__main__":
    script(data, fit)
