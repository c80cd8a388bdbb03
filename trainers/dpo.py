"""DPO: final replies of each task's best and worst conversation, as answers to the question.

Shows what is possible without a conversation (section 4 of Mukherjee et al., NeurIPS 2025):
trained and evaluated under the prompt of protocol `direct`.

    python trainers/dpo.py --recipe FILE          under any launcher
"""

from convbench.catalog import load_spec
from convbench.learn import pairs
from convbench.learn.job import Job, PairData, script
from convbench.learn.pairs import Pairs
from convbench.learn.steps import LogSize
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import Recipe

STEP, SEQUENCES = "preference", 2
"""What a step computes, and the sequences of a row in the model at once (`learn/placement.py`)."""


def most_rows(recipe: Recipe, log: LogSize) -> int:
    """Return the most pairs, of a best and a worst conversation each."""
    return log.count_contrasts(recipe.pairing.ties)


def data(job: Job) -> Pairs:
    """Return pairs of final replies of each task's best and worst conversation, under the prompt of
    protocol `direct` or the named one.

    Raise TrainError if no pair is left.
    """
    logged = job.log()
    pairing = job.recipe.pairing
    direct = None  # imported conversations have no task whose prompt could be rendered
    if any(run.manifest.kind != "import" for run in job.runs):
        direct = load_spec(ProtocolSpec, "protocols", pairing.protocol or "direct")
    return pairs.final_replies(logged, direct, pairing, job.recipe.fit.seed)


def fit(job: Job, pair_data: PairData) -> None:
    """Train with the loss -log sigmoid(beta * difference of log(pi / pi_0)) and save the checkpoint
    in the job's folder."""
    from convbench.learn import preference

    preference.fit(job, pair_data)


if __name__ == "__main__":
    script(data, fit)
