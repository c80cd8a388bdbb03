"""KTO: each of the policy's turns by itself, desirable or undesirable by the sign of its weight.

Ethayarajh et al. (2024): lambda (1 - sigmoid(beta (log(pi / pi_0) - z))) of desirable replies,
lambda (1 - sigmoid(beta (z - log(pi / pi_0)))) of others, z the batch's estimate of the KL
divergence from the base (equations (7) and (8)). TRL's loss on our own token ids.

    python trainers/kto.py --recipe FILE          under any launcher
"""

from collections.abc import Sequence

from convbench.errors import TrainError
from convbench.learn import weights
from convbench.learn.job import Job, WeightedData, script
from convbench.learn.weights import Weighted
from convbench.schema.recipe import Fit

OWN_LOSS = True
"""It uses no field of `loss`."""
STEP = "preference"
"""What a step computes (`learn/placement.py`)."""
ROWS_STAY = True
"""It estimates the divergence within the rows at once, whose number must stay."""


def count_trained(weights: Sequence[float], fit: Fit) -> int:
    """Return how many rows of these weights it trains on: those of weight 0 are left out, and so is
    one that would be alone in the last batch."""
    count = sum(weight != 0 for weight in weights)
    return count - 1 if count > 1 and count % fit.batch_size == 1 else count


def data(job: Job) -> Weighted:
    """Return the policy's turns with weights, of which only the signs count.

    Raise TrainError for a unit other than `turn`, or if all weights are 0.
    """
    if job.recipe.data.unit != "turn":
        raise TrainError(
            "data.unit: found conversation; kto learns single replies; expected turn; add --set "
            "data.unit=turn"
        )
    logged = job.log()
    return weights.weigh_composed(logged, job.recipe.weighting, job.recipe.fit.seed)


def fit(job: Job, weighted: WeightedData) -> None:
    """Train with TRL's KTO and save the checkpoint in the job's folder."""
    from convbench.learn import kto

    kto.fit(job, weighted)


if __name__ == "__main__":
    script(data, fit)
