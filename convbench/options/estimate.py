"""Options of `estimate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from convbench.options.declare import Opt
from convbench.options.shared import RunDir, SpecOptions
from convbench.util.words import SplitChoice


@dataclass(frozen=True)
class EstimateOptions:
    """Estimate a policy's mean reward from another policy's log, without sampling from it.

    Every logged conversation counts by how much likelier the policy makes it. Where the log is too
    far from the policy, nothing is estimated: the command says why and ends with exit code 1.
    """

    EXAMPLES: ClassVar = (
        "convbench estimate runs/latest/checkpoints/swift",
        "convbench estimate runs/latest/checkpoints/swift --pi-0 recorded --judge gpt-4o",
        "convbench estimate runs/latest/checkpoints/swift --judge human --model-judge gpt-4o",
    )

    policy: Annotated[
        str,
        Opt(
            "A checkpoint folder, or any model whose weights are here.",
            argument=True,
            names="policies",
        ),
    ]
    run: RunDir = None
    judge: Annotated[
        str | None,
        Opt("Judge whose verdicts are the reward, where there are several.", names="judges"),
    ] = None
    metric: Annotated[str, Opt("`reward`, or the name of a score.")] = "reward"
    model_judge: Annotated[
        str | None,
        Opt(
            "A cheaper judge as the reward model; it must have judged the log and the policy's own "
            "conversations (convbench eval). Adds the direct estimate, and sharpens the doubly "
            "robust one.",
            names="judges",
        ),
    ] = None
    split: Annotated[SplitChoice, Opt("Split whose conversations are weighed.")] = "test"
    pi_0: Annotated[
        Literal["base", "recorded"],
        Opt(
            "Source of the log's own probabilities: computed with its policy's weights, or "
            "recorded by build --logprobs."
        ),
    ] = "base"
    specs: SpecOptions = SpecOptions()
