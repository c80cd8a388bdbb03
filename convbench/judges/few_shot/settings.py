"""Settings of a few-shot adaptation: rows, inner LoRA, and how the test is asked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from convbench.judges.adaptation.settings import InnerSettings
from convbench.schema.base import FrozenModel
from convbench.tasks.arc_agi.edit import GROUPS, MOST_ROWS, MOST_STEPS, ORACLE, Group, Strategy
from convbench.tasks.arc_agi.grids import INSTRUCTION, Style


class OracleEdit(FrozenModel):
    """The best known edit: a baseline with fixed settings."""

    tools: tuple[Group, ...] = GROUPS
    """Groups of tools that are switched on."""
    strategy: Strategy = ORACLE.strategy
    """Which tokens have a loss."""
    learning_rate: float = Field(default=ORACLE.learning_rate, gt=0, le=1)
    """Peak learning rate."""
    num_train_epochs: int = Field(default=ORACLE.epochs, ge=1)
    """Passes over the rows."""


class FewShotSettings(FrozenModel):
    """`args` of a few-shot judge. Defaults: few-shot learning of Zweiger et al. 2025 (SEAL)."""

    learner: str | None = None
    """Model that learns: a path, a Hub id or a reference that names weights. Null takes the policy
    that wrote the edit."""
    r: int = Field(default=128, ge=1)
    """Rank of the adapter."""
    alpha: float = Field(default=16, gt=0)
    """The update is multiplied by alpha / r. Dropout is 0."""
    target_modules: tuple[str, ...] = ("q_proj", "v_proj", "gate_proj", "up_proj", "down_proj")
    """Linear layers that get an adapter, by the last part of their name."""
    schedule: Literal["linear", "cosine", "constant"] = "cosine"
    """How the learning rate decays."""
    warmup_steps: int = Field(default=11, ge=0)
    """Steps of warm-up from 0 to the peak rate."""
    batch_size: int = Field(default=2, ge=1)
    """Rows per step."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradient norm at which gradients are clipped; 0 turns clipping off."""
    max_rows: int = Field(default=MOST_ROWS, ge=1)
    """Most rows of an edit; more are sampled by the seed."""
    max_length: int = Field(default=8192, ge=2)
    """Rows with at least this many tokens are left out."""
    max_steps: int = Field(default=MOST_STEPS, ge=1)
    """An edit with more than this many `epochs * rows // 2` is not trained on."""
    max_seconds: float = Field(default=600, gt=0)
    """Most seconds of training; an edit that takes longer counts as not trained on."""
    seed: int = 0
    """Seed of rows, views, the adapter's initial weights and the order of rows."""
    max_tokens: int = Field(default=2048, ge=1)
    """Longest answer in tokens; decoding is greedy. A 30 by 30 grid takes up to 1,900."""
    ask_at_once: int = Field(default=64, ge=1)
    """Views asked in one batch."""
    grids: Style = "lists"
    """How a grid is written: `lists` as `[[0, 1], [2, 3]]`, `digits` as rows of digits, `places` as
    `r1c1=0 r1c2=1 r2c1=2 r2c2=3`."""
    sentence: str = INSTRUCTION
    """Introduction of the task before the demonstrations; may be empty."""
    oracle: OracleEdit = OracleEdit()
    """The edit of the baseline with the best known settings."""

    def inner_settings(self, learning_rate: float, epochs: int) -> InnerSettings:
        """Return the settings of one adaptation with this learning rate and number of epochs, one
        seed, and no limit of steps but that of `max_rows`."""
        return InnerSettings(
            r=self.r,
            alpha=self.alpha,
            target_modules=self.target_modules,
            learning_rate=learning_rate,
            schedule=self.schedule,
            warmup_steps=self.warmup_steps,
            epochs=epochs,
            batch_size=self.batch_size,
            max_grad_norm=self.max_grad_norm,
            seeds=1,
            seed=self.seed,
            max_length=self.max_length,
            max_seconds=self.max_seconds,
            max_steps=epochs * self.max_rows,
        )
