"""How an adaptation goes: the inner LoRA, its limits, and how answers are graded."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from convbench.schema.noun import Noun


class Inner(Noun):
    """One adaptation. Defaults: knowledge incorporation of Zweiger et al. 2025 (SEAL).

    The paper is silent on schedule and clipping; linear decay and 1.0 are the Trainer's defaults.
    """

    tuning: Literal["lora", "full"] = "lora"
    """What is trained: adapters, or all weights (`full`, continued pre-training in the paper's
    second version; seeds then train one after the other, and r, alpha and target_modules count for
    nothing). A rate that suits adapters is too high for all weights."""
    r: int = Field(default=32, ge=1)
    """Rank of the adapter."""
    alpha: float = Field(default=64, gt=0)
    """The update is multiplied by alpha / r. Dropout is 0."""
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")
    """Linear layers that get an adapter, by the last part of their name. The released code names
    none, and peft then takes these two."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate of AdamW (no weight decay)."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps in which it rises from 0 first."""
    epochs: int = Field(default=10, ge=1)
    """Passes over the texts."""
    batch_size: int = Field(default=1, ge=1)
    """Texts in a batch."""
    accumulation: int = Field(default=1, ge=1)
    """Batches in a step."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Clipping of the gradient's norm; 0 turns it off."""
    precision: Literal["auto", "bf16"] = "auto"
    """In what training computes: `auto` as the weights are, `bf16` under autocast, in
    some two thirds of the time on a CPU with AVX512-BF16 or AMX. Adapters and AdamW keep float32;
    questions are asked in the weights' own."""
    seeds: int = Field(default=3, ge=1)
    """Adapters of one edit, each with its own start and order; accuracy is their mean. They
    train side by side in one batch."""
    seed: int = 0
    """First of the seeds."""
    max_length: int = Field(default=2048, ge=2)
    """Longest text in tokens; a longer one is cut."""
    end: bool = True
    """Every text ends with the tokenizer's end token."""
    passage: bool = True
    """The passage itself is among the texts."""
    titled: bool = True
    """The passage stands under its title, like every other text."""
    texts: Literal["paper", "lines", "whole"] = "paper"
    """How an edit becomes texts. `paper`: parts between lines `---` where there are such, else a
    question with its answer (`Question 1: …`) where there are such, else lines, without a first
    line that only announces a numbered list. `lines`: every line. `whole`: the edit is one text,
    and the passage follows every edit (continued pre-training)."""
    line: str = "{title}\n{line}"
    """How such a part becomes a text."""
    max_steps: int = Field(default=2000, ge=1)
    """Most optimiser steps; an edit that asks for more is no improvement."""
    max_seconds: float = Field(default=600, gt=0)
    """Most seconds of training; an edit that takes longer is no improvement."""
    max_tokens: int = Field(default=64, ge=1)
    """Longest answer in tokens; greedy."""
    ask_at_once: int = Field(default=64, ge=1)
    """Questions asked in one batch."""
    server: str | None = None
    """Address of a vLLM server on this machine that serves the learner's weights and takes
    adapters while it runs: questions are asked there, each edit's adapters swapped in. Null asks
    in this process. Its arithmetic may differ in a last digit, so that a reply may too."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.server is not None and self.tuning == "full":
            raise ValueError("server: found one with tuning full; expected tuning lora: a server "
                             "takes adapters, no whole weights")  # fmt: skip
        return self

    grade: Literal["recall", "exact", "f1", "contains", "model"] = "recall"
    """`recall`: most words of a gold answer stand in the reply, in this form or another; `exact`:
    the answer is one of the gold ones after SQuAD's normalisation; `f1`: its word overlap with
    the best of them; `contains`: a gold one stands in it; `model`: a judge model says yes or
    no, as in the paper."""
