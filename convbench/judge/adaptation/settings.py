"""How an adaptation goes: the inner LoRA, its limits, how answers are graded, and the texts that an
edit is trained on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from convbench.errors import DataError
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
            raise ValueError(
                "server: found one with tuning full; expected tuning lora: a server "
                "takes adapters, no whole weights"
            )
        return self

    grade: Literal["recall", "exact", "f1", "contains", "model"] = "recall"
    """`recall`: most words of a gold answer stand in the reply, in this form or another; `exact`:
    the answer is one of the gold ones after SQuAD's normalisation; `f1`: its word overlap with
    the best of them; `contains`: a gold one stands in it; `model`: a judge model says yes or
    no, as in the paper."""


_RULE = re.compile(r"^-{3,}$")
"""A line that parts an edit."""
_QUESTION = re.compile(r"^\W*+question\s*+\d*+\s*+[:.)]", re.IGNORECASE)
"""How a line begins that a question with its answer begins with."""
_FIELD = re.compile(r"\{(title|line)\}")
"""What of `Inner.line` is filled in: no format may name more, or ask for a width."""


def training_texts(edit: str | None, title: str, passage: str, inner: Inner) -> list[str]:
    """Return the texts: every part of the edit under the title, then the passage.

    `edit` None trains on the passage alone. Parts without a letter or digit are none. Raises
    DataError for an edit that has no part, which is no edit.
    """
    texts = []
    if edit is not None:
        texts = [_filled(inner.line, {"title": title, "line": part}) for part in parts(edit, inner)]
        if not texts:
            raise DataError(f"the self-edit {edit[:60]!r} has no line to train on")
    return [*texts, passage_text(title, passage, inner)] if inner.passage or not texts else texts


def passage_text(title: str, passage: str, inner: Inner) -> str:
    """Return the passage as it is trained on."""
    return _filled(inner.line, {"title": title, "line": passage}) if inner.titled else passage


def parts(edit: str, inner: Inner) -> list[str]:
    """Return what of an edit each becomes a text, as `Inner.texts` says."""
    lines = [line.strip() for line in edit.splitlines()]
    if inner.texts == "whole":
        found = ["\n".join(lines).strip()]
    elif inner.texts == "paper" and any(_RULE.fullmatch(line) for line in lines):
        found = _joined(lines, _RULE, keep=False)
    elif inner.texts == "paper" and any(_QUESTION.match(line) for line in lines):
        found = _joined(lines, _QUESTION, keep=True)
    else:
        found = [line for line in lines if line]
        if inner.texts == "paper" and len(found) > 1 and found[1].startswith("1."):
            found = found[1:]
    return [part for part in found if any(sign.isalnum() for sign in part)]


def _joined(lines: Sequence[str], begins: re.Pattern[str], *, keep: bool) -> list[str]:
    """Return the lines as parts, a new one from each line that begins one; `keep` that line."""
    found: list[list[str]] = [[]]
    for line in lines:
        if begins.match(line):
            found.append([line] if keep else [])
        elif line:
            found[-1].append(line)
    return ["\n".join(part) for part in found]


def _filled(form: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda found: values[found[1]], form)


def steps(texts: int, inner: Inner) -> int:
    """Return the optimiser steps that this many texts take."""
    batches = -(-texts // inner.batch_size)
    return inner.epochs * -(-batches // inner.accumulation)
