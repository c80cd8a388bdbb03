"""Recipe: how a policy is learnt from a judged run. Launch: on which processes.

A recipe makes four choices: which logged conversations, which reward, how it becomes a weight or a
pair, and how the model is fitted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from convbench.schema.base import FrozenModel, Name

FlaggedRule = Literal["drop", "keep"]
EditFilter = Literal["best-of-k", "improves", "right"]
TieRule = Literal["random", "all", "drop"]
Unit = Literal["conversation", "turn"]
Share = Annotated[float, Field(gt=0, le=100)]
OURS = ("output_dir", "resume_from_checkpoint", "push_to_hub")
"""Options of TRL that `fit.arguments` may not set: where results go is convbench's."""


class Data(FrozenModel):
    """Which logged conversations are used, and what counts as their reward."""

    judge: str | None = None
    """Judge whose verdicts count; null takes the only one there is."""
    metric: str = "reward"
    """`reward`, or the name of a score, taken as it is."""
    least: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Scores that a conversation must reach to be used, by judge and metric, if the judge gave
    them: `{fidelity: {overall: 6}}`. A judge may be named without its `@MODEL`, and `*` is every
    judge that gives the metric."""
    flagged: FlaggedRule = "drop"
    """Conversations in which a check found that another speaker gave the answer away (`leak`), left
    its role (`role`) or said nothing (`empty`), or a check of your own found anything: `drop`
    leaves them out, `keep` takes them. Findings of form (too many words, no question, a
    repetition) do not count. Their number is shown and recorded."""
    unit: Unit = "conversation"
    """What one row is: a `conversation` with the loss on all of the policy's turns, in one
    forward pass if its tokens are prefix-stable; or a `turn`, one policy turn under its history.
    Batches, steps, `rows` and sizes in tables count this unit. A preference learner's row is
    always a pair."""
    rows: int | None = Field(default=None, ge=1)
    """Size of the logged dataset in rows of `unit`: complete tasks are taken, in a fixed order,
    until they come nearest to it, so that a smaller dataset is part of a larger one. Null takes
    all."""
    reasoning: Literal["loss", "drop"] = "loss"
    """What the policy thought in a separate channel: `loss` is learnt with the reply, `drop` is
    left out, but for the tag that closes it where the prompt opens it. Tags within a reply are its
    text."""
    max_length: int | None = Field(default=None, ge=8)
    """Longest row in tokens; a longer one is cut at its end and counted. Null: no limit but
    the model's own."""
    too_long: Literal["slide", "drop"] = "slide"
    """What becomes of a conversation that is longer than a row: `slide` makes a row of each of the
    policy's turns, with the system message and the last messages before it that fit; `drop` leaves
    it out. Both are counted."""
    mix: tuple[Share, ...] = ()
    """With several runs (`--run A --run B`), how often each one's questions are taken, in their
    order: 2 trains on every row twice, 0.5 on half of the questions, by a hash of their names.
    Empty takes all once."""


class Weighting(FrozenModel):
    """How rewards become weights."""

    reward: Literal["conversation", "turn", "advantage"] = "conversation"
    """Whose reward is the weight: the conversation's for all of its turns; each `turn`'s own, if
    its judge scored turns (`per: turn`), compared with the same turns of the task's other
    conversations; or each turn's `advantage`, the credit of a critic. The last two need
    `data.unit: turn`."""
    center: bool = True
    """Subtract the mean over the group: the advantage A of a reward."""
    scale: bool = True
    """Divide by the standard deviation over the group, ddof 1. A group of one is left out."""
    over: Literal["task", "all"] = "task"
    """The group: the conversations of one `task`, that is question, or `all` that train."""
    keep: Literal["all", "positive", "best"] = "all"
    """Which conversations train: all, those whose advantage is above 0, or each group's best, ties
    as `ties` says."""
    threshold: float | None = None
    """Least reward of a conversation that trains, among those that `keep` leaves."""
    ties: TieRule = "random"
    """Several best conversations of a group (`keep: best`): `random` draws one by `fit.seed`,
    `all` takes all of them, `drop` leaves the group out. The number of tied groups is shown and
    recorded."""
    weight: Literal["advantage", "one"] = "advantage"
    """The weight: the advantage, or 1."""
    temperature: float | None = Field(default=None, gt=0)
    """Null: the weight is the advantage A itself; a number: exp(A / temperature), never negative
    (AWR)."""
    clip: float | None = Field(default=None, gt=0)
    """Clip weights to [-clip, clip]; null leaves them."""


class Loss(FrozenModel):
    """What is minimised on weighted rows."""

    name: str = "nll"
    """A loss of `trainers/losses.py` (`nll`, `ppo`, `a-lol`), or the path of a file with your own
    (`NAME.py` with a function `loss`)."""
    low: float = Field(default=0.2, ge=0)
    """pi / pi_0 is clipped at 1 - low (`ppo`, `a-lol`)."""
    high: float = Field(default=0.2, ge=0)
    """pi / pi_0 is clipped at 1 + high (`ppo`, `a-lol`)."""
    anchor: Literal["none", "kl"] = "none"
    """What keeps the policy near its base: `kl` adds KL(pi || base), exact over the vocabulary, at
    every token of the log."""
    anchor_weight: float = Field(default=0.0, ge=0)
    """Factor of the anchor; 0 is none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name not in ("nll", "ppo", "a-lol") and not self.name.endswith(".py"):
            raise ValueError(
                f"name: found {self.name!r:.80}; expected one of nll, ppo, a-lol, or the path of "
                "your own file (NAME.py)"
            )
        if (self.anchor == "none") != (self.anchor_weight == 0):
            raise ValueError(
                f"anchor: found {self.anchor} with anchor_weight {self.anchor_weight:g}; expected "
                "both or neither"
            )
        return self


class Pairing(FrozenModel):
    """How rewards become pairs of a better and a worse reply."""

    replies: Literal["final", "turns"] = "final"
    """Which replies of a task's best and worst conversation are paired: the `final` ones, as
    answers to the question, or those of all `turns`, each under the better one's history."""
    protocol: str | None = None
    """Protocol under whose first prompt final replies are compared; null takes the conversation's
    own opening."""
    min_gap: float = Field(default=0.0, ge=0)
    """Two conversations make a pair if their rewards differ by more than this."""
    ties: TieRule = "random"
    """Several best or several worst conversations of a task: `random` draws one of each by
    `fit.seed`, `all` pairs every best with every worst, `drop` leaves the task out. The number of
    tied tasks is shown and recorded."""
    loss: str = "sigmoid"
    """Loss of TRL's DPOTrainer by its name there: `sigmoid` is DPO, `ipo`, `hinge`, `robust`,
    `apo_zero` …"""
    beta: float = Field(default=0.1, gt=0)
    """DPO's beta, the strength of the pull to the starting policy; IPO's tau."""


class Distil(FrozenModel):
    """Distillation of a teacher checkpoint into a student."""

    teacher: str | None = None
    """Teacher checkpoint; null takes the run's newest `star-gate` checkpoint."""
    student_layers: int | None = Field(default=None, ge=1)
    """The student is the base's first k layers; null takes the complete base."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """alpha * CE + (1 - alpha) * T^2 * KL(teacher || student)."""
    temperature: float = Field(default=2.0, gt=0)
    """T."""


class Lora(FrozenModel):
    """A low-rank adapter in place of training all weights."""

    r: int = Field(default=8, ge=1)
    """Rank."""
    alpha: int = Field(default=16, ge=1)
    """Scale: the update is multiplied by alpha / r."""
    dropout: float = Field(default=0.05, ge=0, lt=1)
    """Dropout on the adapter's input."""
    target_modules: tuple[str, ...] = (
        "q_proj",
        "v_proj",
        "k_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Linear layers that get an adapter."""
    quantize: Literal["none", "4bit"] = "none"
    """`4bit`: QLoRA, the base held in NF4 (needs bitsandbytes and a GPU)."""
    merge: bool = True
    """Merge the adapter into the saved weights, so that any loader takes the checkpoint."""


class Fit(FrozenModel):
    """How the model is fitted; `arguments` has every other option of TRL."""

    learning_rate: float = Field(default=3e-5, gt=0)
    """Peak learning rate."""
    epochs: float = Field(default=4, gt=0)
    """Passes over the rows."""
    max_steps: int | None = Field(default=None, ge=1)
    """Optimiser steps, in place of epochs."""
    batch_size: int = Field(default=8, ge=1)
    """Rows (of `data.unit`) a process takes at once; with `batch` the most."""
    accumulation: int = Field(default=4, ge=1)
    """Batches summed up for one step, if `batch` is null."""
    batch: int | None = Field(default=None, ge=1)
    """Rows of one step over all processes; batches and accumulation follow from it. If it is null,
    or a user sets `accumulation`: `batch_size` x `accumulation` x processes."""
    packing: bool = False
    """Concatenate the rows of a batch in place of padding them, each attending to itself only: the
    same gradient with fewer tokens read (TRL's `padding_free`; weighted rows only)."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass to save memory."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`auto`: bf16 on an accelerator that supports it, fp32 elsewhere."""
    seed: int = 0
    """Seed of shuffling, dropout, ties and new weights."""
    save: Literal["epoch", "end", "keep"] = "epoch"
    """When to save: after each epoch, to resume from (`checkpoint-*`, gone once training is done),
    or only the end result; `keep`: after each epoch, and these stay."""
    log_every: int = Field(default=5, ge=1)
    """Steps between log lines; the first step is always logged."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Options of TRL's configuration by their names there (SFTConfig, DPOConfig), word for word:
    schedule, warm-up, betas, weight decay, clipping, optimiser, `report_to` …"""

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        ours = [name for name in arguments if name in OURS or name.startswith("hub_")]
        if ours:
            raise ValueError(f"found {ours[0]}, which convbench sets; remove it")
        return arguments


class Recipe(FrozenModel):
    """How a policy is learnt from a judged run."""

    name: Name
    """Name on the command line."""
    title: str
    """One line for lists and cards."""
    label: str = ""
    """Its name in tables and pictures, as its paper writes it; empty takes `name`. A recipe that
    extends another one has a label of its own, or none."""
    trainer: str | None
    """Learner: `weighted_sft`, `preference`, `distil`, `critic`, `sweet`, or a path to your own
    program; null trains nothing."""
    model: str | None = None
    """Model to start from: a path or Hub id; null takes the run's own policy."""
    data: Data = Data()
    """Which conversations, which reward."""
    weighting: Weighting = Weighting()
    """How rewards become weights."""
    loss: Loss = Loss()
    """What is minimised on weighted conversations."""
    pairing: Pairing = Pairing()
    """How rewards become pairs."""
    distil: Distil | None = None
    """Distillation, if the trainer distils."""
    lora: Lora | None = None
    """Train an adapter; null trains all weights."""
    fit: Fit = Fit()
    """Hyper-parameters."""
    rounds: int | None = Field(default=None, ge=1)
    """Rounds: log, reward, fit, then log again with the resulting policy; the same as `train
    --rounds N`. Null trains once, on the run as it is."""
    replay: float = Field(default=0.0, ge=0, lt=1)
    """Share of a later round's rows that come from earlier rounds' logs (`rounds`), all of these
    alike; if they have fewer, all they have. 0 learns from the round's own log only."""
    fresh: bool = False
    """Every later round draws train questions from the task's source that no earlier one saw, as
    many as the first has, instead of asking the same again."""
    filter: EditFilter | None = None
    """Which self-edits are learnt (`seal`). `best-of-k`: each passage's best one; `improves`: every
    one that raises the accuracy (SEAL, equation 2); `right`: every one after which the task is
    solved (SEAL, few-shot). Null is for recipes that learn from others."""
    launch: str = "auto"
    """Launch spec that the recipe asks for. Without `--launch` it is used if this machine has the
    accelerators and their memory; otherwise another is chosen, and a line says so."""
    eval_protocol: str | None = None
    """Protocol the result is evaluated in; null takes the run's."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Settings of SWEET's stages, or of your own program."""
    reference: str | None = None
    """Where this learner is specified."""
    run: str | None = None
    """Filled in by `convbench train`: the run, relative to this file's folder or absolute."""
    runs: tuple[str, ...] = ()
    """Filled in by `convbench train --run A --run B`: the runs after the first, of one log with
    it."""


class LaunchSpec(FrozenModel):
    """On which processes a trainer runs."""

    name: Name
    """Name on the command line."""
    title: str
    """One line for lists."""
    accelerate: dict[str, Any] | None = None
    """A configuration file of `accelerate launch`, word for word (machines, ranks and
    addresses too); null starts one process without a launcher. Precision, accumulation and
    clipping are the recipe's."""
    reference: str | None = None
    """Where these settings are specified."""

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        if self.accelerate is not None and "num_processes" not in self.accelerate:
            raise ValueError("accelerate.num_processes: missing; expected a number of processes")
        for name in ("num_processes", "num_machines", "machine_rank"):
            value = (self.accelerate or {}).get(name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"accelerate.{name}: found {value!r}; expected a whole number")
        return self

    @property
    def process_count(self) -> int:
        """Return the number of processes on all machines together; 1 without a launcher."""
        return int(self.accelerate["num_processes"]) if self.accelerate else 1
