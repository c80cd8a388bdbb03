"""Options of `train`, for one training and for several rounds of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import WHERE, Opt
from convbench.options.shared import (
    MOST_EACH,
    CallOptions,
    DryRun,
    ModelCallMixin,
    MultiRunMixin,
    SpecOptions,
)


@dataclass(frozen=True)
class TrainOptions(MultiRunMixin):
    """Train a policy on the judged conversations of a run.

    Models are asked only where a learner samples: --rounds, sweet.
    """

    EXAMPLES: ClassVar = (
        "convbench train swift",
        "convbench train refit --judge gpt-4o --launch zero2",
        "convbench train swift --set fit.learning_rate=1e-5 --set lora.r=16",
        "convbench train swift --dry-run",
        "convbench train swift --rounds 2",
        "convbench train swift --run runs/arc --run runs/sciq --set data.mix=[1,0.5]",
    )

    recipe: Annotated[
        str,
        Opt(
            "Recipe: a name from `convbench list recipes`, or a file.",
            argument=True,
            names="recipes",
        ),
    ]
    run: Annotated[
        tuple[Path, ...],
        Opt(
            "Run directory, several times to learn from several runs as one log; without it the "
            "newest run.",
            "--run",
            "DIR",
            WHERE,
            names="runs",
            either=True,
        ),
    ] = ()
    model: Annotated[
        str | None,
        Opt(
            "Model to start from; without it the policy of the run's conversations.",
            names="policies",
        ),
    ] = None
    judge: Annotated[
        str | None,
        Opt("Judge whose verdicts are the reward, where there are several.", names="judges"),
    ] = None
    out: Annotated[
        Path | None,
        Opt("Where the checkpoint goes; without it into the run.", metavar="DIR"),
    ] = None
    launch: Annotated[
        str | None,
        Opt(
            "How training is started: auto (the recipe's, or another that fits), none, ddp, zero0, "
            "zero2, zero3, or a launch file.",
            names="launch",
        ),
    ] = None
    rounds: Annotated[
        int | None,
        Opt(
            "Train, build again with the new policy, judge, and so on, N times; each round is "
            "evaluated. Without it the recipe's own `rounds`, where it has them (seal).",
            metavar="N",
            least=1,
            most=MOST_EACH,
        ),
    ] = None
    cards: Annotated[
        str | None,
        Opt(
            "With --dry-run: plan for these accelerators in place of this machine's, 8x80 for 8 of "
            "80 GB.",
            metavar="COUNTxGB",
        ),
    ] = None
    dry_run: DryRun = False
    calls: CallOptions = field(default_factory=CallOptions)
    """Options of model calls, for learners that sample (candidates)."""
    specs: SpecOptions = SpecOptions()
    in_process: bool = False
    """Train in this process if one is enough, which saves loading torch again."""


@dataclass(frozen=True)
class RoundsOptions(ModelCallMixin):
    """Options of `train RECIPE --rounds N`."""

    recipe: str
    rounds: int | None = None
    """Number of rounds; None takes the recipe's `rounds`."""
    run: Path | None = None
    """The run of the first round, built with the initial policy."""
    judge: str | None = None
    """The judge whose verdicts are the reward; None takes the run's only judge, or the task's."""
    evaluate: bool = True
    """Whether every round's policy is evaluated on the test split."""
    in_process: bool = False
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
    label: str = ""
    """Tells two learners of one recipe apart: part of the names of its folders."""

    @property
    def learner_name(self) -> str:
        """The learner in names of folders: the recipe's, with the label after a dash."""
        return "-".join(filter(None, (Path(self.recipe).stem, self.label)))
