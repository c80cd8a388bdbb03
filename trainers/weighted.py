"""Any weighting, any objective: rewards become weights as `weighting` says, `loss` says what is
minimised. ReFit, SWiFt and STaR-GATE are settings of it; so are AWR, A-LoL, PPO and GRPO on a log.

    python trainers/weighted.py --recipe FILE     under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Log, reward, weigh."""
    logged = job.log()
    return weights.composed(logged, job.recipe.weighting, job.recipe.fit.seed)


def fit(job: Job, weighted: WeightedData) -> None:
    """Fit: the objective's sum over the policy's tokens, over N."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted)


if __name__ == "__main__":
    script(data, fit)
