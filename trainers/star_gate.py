"""STaR-GATE: fine-tune on the best conversation of each task, every weight 1.

The reward in equation (5) of Mukherjee et al. (NeurIPS 2025) replaced by an indicator that it is
high; Andukuri et al. (2024).

    python trainers/star_gate.py --recipe FILE    under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Return the best conversation of each task, with weight 1; with `weighting.threshold` all of
    at least that reward."""
    logged = job.log()
    return weights.weigh_star_gate(logged, job.recipe.weighting, job.recipe.fit.seed)


def fit(job: Job, weighted: WeightedData) -> None:
    """Train by supervised fine-tuning, since all weights are 1, and save the checkpoint in the
    job's folder."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted)


if __name__ == "__main__":
    script(data, fit)
