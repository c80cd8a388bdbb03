"""SWEET-RL, stage 2: DPO on candidates of each turn, ranked by the critic, without hidden text.

Equation (4) of Zhou et al. (2025). `convbench train sweet` trains the critic, samples the
candidates and ranks them into `ranked.jsonl` in the recipe's folder, then runs this.

    python trainers/sweet_policy.py --recipe FILE     under any launcher
"""

from convbench.errors import TrainError
from convbench.learn.job import Job, PairData, Preparation, TrainContext, script
from convbench.learn.pairs import Pairs
from convbench.learn.select import select
from convbench.learn.steps import LogSize
from convbench.learn.sweet.candidates import reply_key, reply_of
from convbench.learn.sweet.pairs import (
    RANKED,
    Candidate,
    ReplyKey,
    SweetArgs,
    check_base,
    critic_recipe,
    policy_pairs,
)
from convbench.schema.recipe import Recipe
from convbench.store.jsonl import read_records

ONE_RUN = True
"""It learns from the conversations of a single run."""
STEP, SEQUENCES = "preference", 2
"""What a step computes, and the sequences of a row in the model at once (`learn/placement.py`)."""


def earlier_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Return the recipe of the critic, which is trained before the policy."""
    return {"critic": critic_recipe(recipe, SweetArgs.from_args(recipe.args, recipe.name))}


def candidates_per_reply(recipe: Recipe, log: LogSize) -> int:
    """Return the most candidates for one of a conversation's replies, in all conversations."""
    settings = SweetArgs.from_args(recipe.args, recipe.name)
    sampled = sum(min(settings.conversations or count, count) for count in log.samples)
    return max(1, round(settings.share * sampled)) * settings.candidates


def most_rows(recipe: Recipe, log: LogSize) -> int:
    """Return the most pairs of candidates, some for each reply that has any."""
    settings = SweetArgs.from_args(recipe.args, recipe.name)
    replies = candidates_per_reply(recipe, log) // settings.candidates * log.replies
    return replies * settings.pairs


def prepare(job: Job, context: TrainContext) -> Preparation:
    """Return the preparation that trains the critic, samples candidates at every turn and ranks
    them."""
    from convbench.learn.sweet.stages import SweetPreparation

    return SweetPreparation.from_job(job, context)


def data(job: Job) -> Pairs:
    """Return pairs of ranked candidates, from `ranked.jsonl` in the job's folder.

    Raise TrainError if it or the critic is missing, if the base's weights are not those the critic
    was trained from, or if no pair is left.
    """
    check_base(job)
    file = job.folder / RANKED
    if not file.exists():
        raise TrainError(f"{file}: not found; `convbench train sweet` samples and ranks it")
    turns: dict[ReplyKey, list[Candidate]] = {}
    for row in read_records(file):
        candidate = Candidate(reply_of(row), row["advantage"])
        turns.setdefault(reply_key(row), []).append(candidate)
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    logged = select(job.run, job.recipe.data)
    return policy_pairs(logged, turns, settings, job.recipe.fit.seed)


def fit(job: Job, pair_data: PairData) -> None:
    """Train with -log sigmoid(beta' * difference of log(pi / pi_ref)), plus the NLL term, and save
    the checkpoint in the job's folder."""
    from convbench.learn import preference

    nll = SweetArgs.from_args(job.recipe.args, job.recipe.name).nll
    more = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, nll]} if nll else {}
    preference.fit(job, pair_data, **more)


if __name__ == "__main__":
    script(data, fit)
