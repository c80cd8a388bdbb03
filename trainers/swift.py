"""SWiFt: ReFit with rewards standardised within each task; negative weights are kept.

Weight (r - mean) / std over the conversations about one question, ddof 1: equation (9) and
section 3.3 of Mukherjee et al. (NeurIPS 2025).

    python trainers/swift.py --recipe FILE        under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Return the log's conversations, or with `weighting.reward: turn` their turns, weighted by
    rewards standardised within each task.

    Raise TrainError if no task has two conversations, or if all weights are 0.
    """
    logged = job.log()
    return weights.weigh_swift(logged, job.recipe.weighting)


def fit(job: Job, weighted: WeightedData) -> None:
    """Train with the loss (1/N) sum_i w_i sum_tokens -log pi and save the checkpoint in the job's
    folder."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted, compares_weightings=True)


if __name__ == "__main__":
    script(data, fit)
