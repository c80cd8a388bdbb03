"""Settings of an adaptation (inner LoRA, limits, grading), and the training texts of an edit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from convbench.errors import DataError
from convbench.schema.base import FrozenModel


class InnerSettings(FrozenModel):
    """One adaptation. Defaults: knowledge incorporation of Zweiger et al. 2025 (SEAL).

    The paper is silent on schedule and clipping; linear decay and 1.0 are the Trainer's defaults.
    """

    tuning: Literal["lora", "full"] = "lora"
    """What is trained: adapters, or all weights (`full`, continued pre-training in the paper's
    second version; seeds then train one after the other, and r, alpha and target_modules count for
    nothing). A rate that suits adapters is too high for all weights."""
    offload: Literal["auto", "none", "cpu"] = "auto"
    """Where float32 weights, gradients and AdamW's moments are with `full`: on the device, or
    (`cpu`) in host memory, 20 bytes a weight there and 6 on the device. `auto`: in host memory if
    the device has no room for them. Outcomes are the same up to rounding."""
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
    """How the learning rate decays."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps of warm-up from 0 to the peak rate."""
    epochs: int = Field(default=10, ge=1)
    """Passes over the texts."""
    batch_size: int = Field(default=1, ge=1)
    """Texts per batch."""
    accumulation: int = Field(default=1, ge=1)
    """Batches per step."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradient norm at which gradients are clipped; 0 turns clipping off."""
    precision: Literal["auto", "bf16"] = "auto"
    """Precision of training: `auto` is that of the weights, `bf16` uses autocast and takes some two
    thirds of the time on a CPU with AVX512-BF16 or AMX. Adapters and AdamW stay in float32;
    questions are asked in the weights' own precision."""
    seeds: int = Field(default=3, ge=1)
    """Number of adapters of one edit, each with its own initial weights and order of texts;
    accuracy is their mean. They are trained together in one batch."""
    seed: int = 0
    """First of the seeds."""
    max_length: int = Field(default=2048, ge=2)
    """Longest text in tokens; a longer one is cut."""
    end: bool = True
    """Whether each text ends with the tokenizer's end token."""
    passage: bool = True
    """Whether the passage itself is among the texts."""
    titled: bool = True
    """Whether the passage has its title above it, like every other text."""
    texts: Literal["paper", "lines", "whole"] = "paper"
    """How an edit is split into texts. `paper`: parts between lines `---` if there are any, else
    questions with their answers (`Question 1: …`) if there are any, else lines, without a first
    line that only announces a numbered list. `lines`: every line. `whole`: the edit is one text,
    and the passage follows every edit (continued pre-training)."""
    line: str = "{title}\n{line}"
    """Template of a text from such a part."""
    max_steps: int = Field(default=2000, ge=1)
    """Most optimiser steps; an edit that needs more is no improvement."""
    max_seconds: float = Field(default=600, gt=0)
    """Most seconds of training; an edit that takes longer is no improvement."""
    max_tokens: int = Field(default=64, ge=1)
    """Longest answer in tokens; decoding is greedy."""
    ask_at_once: int = Field(default=64, ge=1)
    """Questions asked in one batch."""
    server: str | None = None
    """Address of a vLLM server on this machine that serves the learner's weights and accepts
    adapters while it runs. Each edit's adapters are loaded into it, and questions are asked there.
    Null asks in this process. Its arithmetic may differ in the last digit, and so may a reply."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.server is not None and self.tuning == "full":
            raise ValueError(
                "server: found one with tuning full; expected tuning lora: a server "
                "takes adapters, no whole weights"
            )
        return self

    grade: Literal["recall", "exact", "f1", "contains", "model"] = "recall"
    """How answers are graded. `recall`: the reply has most words of a gold answer, in some form;
    `exact`: the answer is one of the gold ones after SQuAD's normalisation; `f1`: its word overlap
    with the best of them; `contains`: the reply contains a gold answer; `model`: a judge model
    replies yes or no, as in the paper."""


_RULE = re.compile(r"^-{3,}$")
"""A line that separates parts of an edit."""
_QUESTION = re.compile(r"^\W*+question\s*+\d*+\s*+[:.)]", re.IGNORECASE)
"""The beginning of a line with a question."""
_FIELD = re.compile(r"\{(title|line)\}")
"""The fields of `line`; no other field and no format width is filled in."""


def training_texts(edit: str | None, title: str, passage: str, inner: InnerSettings) -> list[str]:
    """Return the training texts: each part of the edit in the template `line` with the title, in
    order, then the passage, if the settings' `passage` is true.

    `edit` None gives the passage alone, whatever the settings. Parts without a letter or digit are
    left out. Raise DataError for an edit without a part.
    """
    texts = []
    if edit is not None:
        texts = [
            _fill_form(inner.line, {"title": title, "line": part})
            for part in edit_parts(edit, inner)
        ]
        if not texts:
            raise DataError(f"the self-edit {edit[:60]!r} has no line to train on")
    return [*texts, passage_text(title, passage, inner)] if inner.passage or not texts else texts


def passage_text(title: str, passage: str, inner: InnerSettings) -> str:
    """Return the training text of a passage, with its title if `titled`."""
    return _fill_form(inner.line, {"title": title, "line": passage}) if inner.titled else passage


def edit_parts(edit: str, inner: InnerSettings) -> list[str]:
    """Return the parts of an edit in order, split as `texts` of the settings says.

    Parts without a letter or digit are left out; empty if none has one.
    """
    lines = [line.strip() for line in edit.splitlines()]
    if inner.texts == "whole":
        pieces = ["\n".join(lines).strip()]
    elif inner.texts == "paper" and any(_RULE.fullmatch(line) for line in lines):
        pieces = _join_lines(lines, _RULE, keep=False)
    elif inner.texts == "paper" and any(_QUESTION.match(line) for line in lines):
        pieces = _join_lines(lines, _QUESTION, keep=True)
    else:
        pieces = [line for line in lines if line]
        if inner.texts == "paper" and len(pieces) > 1 and pieces[1].startswith("1."):
            pieces = pieces[1:]
    return [part for part in pieces if any(sign.isalnum() for sign in part)]


def _join_lines(lines: Sequence[str], begins: re.Pattern[str], *, keep: bool) -> list[str]:
    """Return lines grouped into parts; a line that matches `begins` starts a new one, and belongs
    to it with `keep`."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if begins.match(line):
            groups.append([line] if keep else [])
        elif line:
            groups[-1].append(line)
    return ["\n".join(part) for part in groups]


def _fill_form(form: str, values: Mapping[str, str]) -> str:
    """Return a template with its fields filled in."""
    return _FIELD.sub(lambda match: values[match[1]], form)


POSITIONS = 4096
"""Most positions of one pass. A larger batch is divided, down to one row of each seed, and layers
compute their activations again in the backward pass: with 7 billion weights 6 MB a position."""


def rows_at_once(longest: int, seeds: int, inner: InnerSettings) -> int | None:
    """Return how many rows of each seed go through the model in one pass so that they keep to
    `POSITIONS`, at least one; None if a batch does. The step is the same."""
    if seeds * inner.batch_size * longest <= POSITIONS:
        return None
    return max(1, POSITIONS // (seeds * longest))


def count_steps(texts: int, inner: InnerSettings) -> int:
    """Return the number of optimiser steps of each seed for this many texts, over all epochs."""
    batches = -(-texts // inner.batch_size)
    return inner.epochs * -(-batches // inner.accumulation)
