"""A learner of its own: rewards weigh by their rank, as somebody would add one."""

from convbench.learn.job import Job, script
from convbench.learn.select import select
from convbench.learn.weights import Weighted


def data(job: Job) -> Weighted:
    """Weigh each conversation by its rank among all, from 0 to 1."""
    logged = select(job.run, job.recipe.data)
    by_reward = sorted(logged.logged, key=lambda item: item.reward)
    most = max(len(by_reward) - 1, 1)
    return Weighted(logged, tuple((item, i / most) for i, item in enumerate(by_reward)))


def fit(job: Job, weighted: Weighted) -> None:
    """Fit by weighted NLL."""
    from convbench.learn import weighted_sft

    weighted_sft.fit(job, weighted)


if __name__ == "__main__":
    script(data, fit)
