"""STaR-GATE-D: distil the STaR-GATE checkpoint into a student, on the conversations it learnt from.

alpha * CE + (1 - alpha) * T^2 * KL(teacher || student) over the policy's tokens: Table 27 of
Mukherjee et al. (NeurIPS 2025); Andukuri et al. (2024).

    python trainers/star_gate_d.py --recipe FILE  under any launcher
"""

from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.teacher import find_teacher
from convbench.learn.weights import Weighted

OWN_LOSS = True
"""It uses no field of `loss`."""
STEP = "distillation"
"""What a step computes (`learn/placement.py`)."""


def data(job: Job) -> Weighted:
    """Return the best conversation of each task, with weight 1; with `weighting.threshold` all of
    at least that reward.

    Raise TrainError without a teacher.
    """
    find_teacher(job.run, job.recipe)
    logged = job.log()
    return weights.weigh_star_gate(logged, job.recipe.weighting, job.recipe.fit.seed)


def fit(job: Job, weighted: WeightedData) -> None:
    """Distil the teacher into the student and save it in the job's folder."""
    from convbench.learn import distil

    distil.fit(job, weighted, find_teacher(job.run, job.recipe))


if __name__ == "__main__":
    script(data, fit)
