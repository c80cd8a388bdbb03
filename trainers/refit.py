"""ReFit: fine-tune on every train conversation, weighted by its reward r >= 0.

Maximises E[ r(x, tau) * sum_t log pi(a_t | x, tau_<t) ], equation (5) of Mukherjee et al.
(NeurIPS 2025), a lower bound on the policy's value (Lemma 1).

    python trainers/refit.py --recipe FILE        under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Return the log's conversations, or with `weighting.reward: turn` their turns, weighted by
    their rewards.

    Raise TrainError for a negative reward.
    """
    logged = job.log()
    return weights.weigh_refit(logged, job.recipe.weighting)


def fit(job: Job, weighted: WeightedData) -> None:
    """Train with the loss (1/N) sum_i w_i sum_tokens -log pi and save the checkpoint in the job's
    folder."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted, compares_weightings=True)


if __name__ == "__main__":
    script(data, fit)
