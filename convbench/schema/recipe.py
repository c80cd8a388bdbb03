"""Recipe: how a policy is learnt from a judged run. Launch: on which processes.

A recipe makes four choices: which logged conversations, which reward, how it becomes a weight or a
pair, and how the model is fitted.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from convbench.schema.base import FrozenModel, Name
from convbench.schema.reasoning import Trained

FlaggedRule = Literal["drop", "keep"]
EditFilter = Literal["best-of-k", "improves", "right"]
TieRule = Literal["random", "all", "drop"]
Unit = Literal["conversation", "turn"]
Align = Literal["none", "standard", "range", "rank"]
Order = Literal["shuffled", "easy", "hard", "spread", "even"]
Share = Annotated[float, Field(gt=0, le=100)]


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
    reasoning: Trained = "loss"
    """What the policy thought in a separate channel: `loss` is learnt with the reply, `context`
    comes before the reply without loss, `drop` is left out. Tags within a reply are its text."""
    max_length: int | None = Field(default=None, ge=8)
    """Longest row in tokens; a longer one is cut at its end and counted. Null: no limit but
    the model's own."""
    mix: tuple[Share, ...] = ()
    """With several runs (`--run A --run B`), how often each one's questions are taken, in their
    order: 2 trains on every row twice, 0.5 on half of the questions, by a hash of their names.
    Empty takes all once."""
    judges: tuple[str, ...] = ()
    """With several runs, each one's judge, in their order; empty takes `judge` for all, or each
    one's only one."""
    align: Align = "none"
    """Makes rewards of judges with different scales comparable, over the conversations of one task
    and judge: `standard` subtracts their mean and divides by their standard deviation, `range` maps
    lowest and highest to 0 and 1, `rank` takes each one's rank, from 0 to 1."""
    order: Order = "shuffled"
    """Curriculum of questions: `easy` and `hard` begin with the highest and the lowest mean reward,
    `spread` with the largest standard deviation, `even` with the smallest. Ties are ordered by a
    hash of their names, and every epoch has the same order. `shuffled` has none."""
    unrewarded: Literal["drop", "sft"] = "drop"
    """Conversations without a reward: left out, or learnt by plain likelihood, -log pi times
    `unrewarded_weight`, whatever the objective (all conversations of a run without judge are
    such)."""
    unrewarded_weight: float = Field(default=1.0, gt=0)
    """Weight of a conversation without a reward (`unrewarded: sft`)."""


class Weighting(FrozenModel):
    """How rewards become weights."""

    reward: Literal["conversation", "turn", "advantage"] = "conversation"
    """Whose reward is the weight (`refit`, `swift`): the conversation's for all of its turns, or
    each turn's own, if its judge scored turns (`per: turn`). SWiFt then standardises a turn among
    the same turns of the task's conversations. `advantage` (`weighted`) takes what `convbench
    credit` gave each turn; conversations without are left out. Both need `data.unit: turn`."""
    credit: str | None = None
    """Source of the advantages (`reward: advantage`), as `convbench credit` names it; null takes
    the only one there is."""
    center: bool = True
    """Subtract the mean over the task's conversations (standardized)."""
    scale: bool = True
    """Divide by the standard deviation over the task's conversations, ddof 1 (standardized)."""
    over: Literal["task", "batch", "all"] = "task"
    """What mean, standard deviation and rank are taken over (`weighted`): the conversations of one
    `task`, `all` that train, or the rows of one optimiser step (`batch`)."""
    leave_one_out: bool = False
    """Subtract the mean of the others in place of the mean of all (`weighted`, with `center`)."""
    rank: bool = False
    """Replace a reward by its rank first (`weighted`), from 0 to 1; equal rewards share the mean of
    their ranks."""
    shape: Literal["linear", "exponential", "one"] = "linear"
    """From the advantage A to the weight (`weighted`): A itself, exp(A / temperature), or 1."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of `shape: exponential`; a high one weighs all alike, which is SFT."""
    keep: Literal["all", "positive", "best"] = "all"
    """Which conversations train (`weighted`): all, those whose advantage is above 0, or each
    group's best, ties as `ties` says."""
    clip: float | None = Field(default=None, gt=0)
    """Clip weights to [-clip, clip]; null leaves them."""
    threshold: float | None = None
    """Keep every conversation with at least this reward: `star-gate` in place of each task's best
    one, `weighted` among those that `keep` leaves."""
    ties: TieRule = "random"
    """Several best conversations of a task (`star-gate`): `random` draws one by `fit.seed`,
    `all` takes all of them, `drop` leaves the task out. The number of tied tasks is shown and
    recorded."""

    @model_validator(mode="after")
    def _check_over(self) -> Self:
        if self.over == "batch" and self.keep == "best":
            raise ValueError("keep: found best with over batch; expected over task or all")
        return self


class Loss(FrozenModel):
    """What is minimised on weighted rows."""

    name: str = "nll"
    """Objective: a file of `convbench/learn/losses/` by its stem (`nll`, `tis`, `a-lol`, `ppo`), or
    a path to your own."""
    ratio: Literal["token", "sequence"] = "token"
    """What pi / pi_0 is taken over (`tis`, and `negative: taper`): each token, or the complete
    row."""
    most: float = Field(default=1.0, gt=0)
    """Largest importance weight (`tis`)."""
    low: float = Field(default=0.2, ge=0)
    """pi / pi_0 is clipped at 1 - low (`ppo`, `a-lol`)."""
    high: float = Field(default=0.2, ge=0)
    """pi / pi_0 is clipped at 1 + high (`ppo`, `a-lol`)."""
    negative: Literal["full", "unlikelihood", "floor", "taper"] = "full"
    """Effect of a weight below 0 (`nll`): `full`, the paper's, lowers log pi without end;
    `unlikelihood` minimises -log(1 - pi); `floor` stops `floor` nats below log pi_0; `taper`
    multiplies by min(1, pi / pi_0)."""
    floor: float = Field(default=1.0, gt=0)
    """Nats a token below log pi_0 at which `negative: floor` stops."""
    anchor: Literal["none", "sft", "k3", "kl", "forward-kl"] = "none"
    """What keeps the policy near its base: `sft` adds -log pi of every logged token; `k3` an
    estimate of the KL divergence from the base on these; `kl` and `forward-kl` are exact, KL(pi ||
    base) and KL(base || pi) over the complete vocabulary at each of them."""
    anchor_weight: float = Field(default=0.0, ge=0)
    """Factor of the anchor; 0 is none."""

    @property
    def has_anchor(self) -> bool:
        """Return whether there is an anchor."""
        return self.anchor != "none" and self.anchor_weight > 0

    @model_validator(mode="after")
    def _check_anchor(self) -> Self:
        if (self.anchor == "none") != (self.anchor_weight == 0):
            raise ValueError(
                f"anchor: found {self.anchor} with anchor_weight {self.anchor_weight:g}; expected "
                "both or neither"
            )
        return self


class Pairing(FrozenModel):
    """How rewards become pairs of a better and a worse reply."""

    protocol: str | None = None
    """Protocol under whose first prompt the final replies are compared (`dpo`)."""
    min_gap: float = Field(default=0.0, ge=0)
    """Two conversations make a pair if their rewards differ by more than this."""
    ties: TieRule = "random"
    """Several best or several worst conversations of a task (`dpo`, and `step-dpo` from the log):
    `random` draws one of each by `fit.seed`, `all` pairs every best with every worst, `drop` leaves
    the task out. The number of tied tasks is shown and recorded."""
    loss: Literal["dpo", "ipo"] = "dpo"
    """-log sigmoid of the margin, or IPO's squared distance of the margin from 1 / (2 beta)."""
    beta: float = Field(default=0.1, gt=0)
    """DPO's beta, the strength of the pull to the starting policy; IPO's tau, KTO's beta."""


class Distil(FrozenModel):
    """Distillation of a teacher checkpoint into a student."""

    teacher: str | None = None
    """Teacher checkpoint; null takes the run's newest `star-gate` checkpoint."""
    student_layers: int | None = Field(default=None, ge=1)
    """The student is the base's first k layers; null takes the complete base. A line warns if the
    student starts further from the teacher than half a nat a token."""
    lora_on: Literal["teacher", "student"] = "teacher"
    """Who carries the LoRA adapter of `lora`. On the teacher, which is frozen, a fresh adapter
    changes nothing, and the student is trained in full."""
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
    """Hyper-parameters of the optimisation."""

    learning_rate: float = Field(default=3e-5, gt=0)
    """Peak learning rate."""
    epochs: float = Field(default=4, gt=0)
    """Passes over the rows."""
    max_steps: int | None = Field(default=None, ge=1)
    """Optimiser steps, in place of epochs."""
    batch_size: int = Field(default=8, ge=1)
    """Rows (of `data.unit`) a process takes at once."""
    accumulation: int = Field(default=4, ge=1)
    """Batches summed up for one step."""
    batch: int | None = Field(default=None, ge=1)
    """Rows of one step over all processes, a multiple of `batch_size`; `accumulation` then follows
    from it. Processes that cannot share them take the nearest number that they can. If it is null,
    or a user sets `accumulation`: `batch_size` x `accumulation` x processes."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's two decay rates."""
    floor: float = Field(default=0.0, ge=0, lt=1)
    """Share of the peak learning rate that a cosine ends at; 0 ends at none."""
    packing: bool = False
    """Concatenate the rows of a batch in place of padding them, each attending to itself only: the
    same gradient with fewer tokens read. Refused if the model's attention cannot keep rows apart,
    or if a trainer does its own padding (pairs, KTO, distillation)."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass to save memory."""
    activation_offloading: bool = False
    """Keep activations in the machine's main memory until the backward pass, by TRL, to save GPU
    memory. Refused on a CPU, which has no other memory."""
    precision: Literal["auto", "bf16", "fp32", "fp64"] = "auto"
    """`auto`: bf16 on an accelerator that supports it, fp32 elsewhere."""
    optimizer: str = "adamw_torch"
    """Optimiser by the name transformers gives it, e.g. `adamw_torch`, `sgd`."""
    scheduler: str = "linear"
    """Learning-rate schedule by the name transformers gives it."""
    warmup_steps: float = Field(default=0, ge=0)
    """Steps of linear warm-up; a number below 1 is a share of all steps."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW's weight decay."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradient clipping; 0 turns it off."""
    normalize: Literal["tokens", "conversations", "lengths"] = "tokens"
    """N of the step loss: unmasked tokens in the accumulated window over all processes, or
    conversations in it. Those of weight 0 count. `lengths`: rows in it, each row's loss the mean
    over its own tokens (GRPO)."""
    shuffle: bool = True
    """Shuffle rows anew in each epoch."""
    seed: int = 0
    """Seed of shuffling, dropout and new weights."""
    log_every: int = Field(default=5, ge=1)
    """Steps between log lines; the first step is always logged."""
    probe: bool = True
    """Follow log(pi / pi_0), the looseness of the bound of Lemma 1, on the first batch of each
    process: one forward pass a log line. ReFit and SWiFt also measure the variance of the first
    step's gradient: at most 16 forward passes of a row."""
    save: Literal["epoch", "end", "keep"] = "epoch"
    """When to save: after each epoch, to resume from (`checkpoint-*`, gone once training is done),
    or only the end result; `keep`: after each epoch, and these stay."""
    save_limit: int = Field(default=4, ge=1)
    """Most saved epochs at a time."""

    @model_validator(mode="after")
    def _check_floor(self) -> Self:
        if self.floor and self.scheduler != "cosine":
            raise ValueError(
                f"floor: found {self.floor:g} with scheduler {self.scheduler!r}; expected cosine"
            )
        return self


class Recipe(FrozenModel):
    """How a policy is learnt from a judged run."""

    OLD_KEYS: ClassVar = {"args.rounds": "rounds", "args.filter": "filter"}

    name: Name
    """Name on the command line."""
    title: str
    """One line for lists and cards."""
    label: str = ""
    """Its name in tables and pictures, as its paper writes it; empty takes `name`. A recipe that
    extends another one has a label of its own, or none."""
    trainer: str | None
    """Script under `trainers/` by its stem, or a path to your own; null trains nothing."""
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
    launch: str = "none"
    """Launch spec. Without `--launch` it is used if this machine has the accelerators it asks for;
    otherwise one process trains."""
    eval_protocol: str | None = None
    """Protocol the result is evaluated in; null takes the run's."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Settings of your own trainer script."""
    reference: str | None = None
    """Where this learner is specified."""
    run: str | None = None
    """Filled in by `convbench train`: the run, relative to this file's folder or absolute."""
    runs: tuple[str, ...] = ()
    """Filled in by `convbench train --run A --run B`: the runs after the first, of one log with
    it."""

    @property
    def shuffles_rows(self) -> bool:
        """Return whether rows are shuffled; a curriculum has a fixed order."""
        return self.fit.shuffle and self.data.order == "shuffled"


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
