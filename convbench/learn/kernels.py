"""Faster computation on a CPU: eager attention of short rows, logits of labelled tokens only, and
rows packed end to end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MethodType
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl.trainer.utils import FusedCausalLMOutput

from convbench.errors import TrainError
from convbench.learn.fitting import on_cpu
from convbench.learn.losses import anchors

PAIR_BYTES = 6
"""Bytes saved of each pair of tokens for the backward pass, in float32 (4) and bfloat16 (2)."""
MAX_PAIR_BYTES = 3 << 30
"""Most bytes that all pairs together may take."""


def prefer_eager_attention(model: Any, rows: int, longest: int, *, checkpointed: bool) -> None:
    """Set eager attention if a batch of `rows` times `longest` tokens then saves at most 3 GiB;
    `checkpointed`: it saves one layer's at a time. A model with another attention than `sdpa` is
    left unchanged."""
    config = model.config.get_text_config()
    if getattr(config, "_attn_implementation", None) != "sdpa":
        return
    layers = 1 if checkpointed else config.num_hidden_layers
    if layers * config.num_attention_heads * rows * longest**2 * PAIR_BYTES <= MAX_PAIR_BYTES:
        model.set_attn_implementation("eager")


CHUNK_TOKENS = 256
"""Tokens whose logits exist at once; the backward pass computes them again."""
SCALED_LOGITS = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)
"""Settings of models whose logits are more than the head's product; TRL knows each."""


def free_logits(trainer: Any) -> None:
    """On a CPU, make a TRL preference trainer compute logits of labelled tokens only, in its policy
    and its reference model.

    Their `forward` is replaced (`score_labels_alone`). With an accelerator, or for a model with
    scaled logits, nothing changes.
    """
    if not on_cpu():
        return
    policy = trainer.model
    score_labels_alone(policy.get_base_model() if is_peft_model(policy) else policy, looks=True)
    if trainer.ref_model is not None:  # DeepSpeed has wrapped it in an engine already
        score_labels_alone(trainer.accelerator.unwrap_model(trainer.ref_model))


@dataclass(frozen=True)
class ReferenceStates:
    """The reference model's states at the labels, from which its distributions are computed."""

    kind: str
    """The divergence: `kl` or `forward-kl`."""
    hidden: torch.Tensor
    """The reference's last hidden states before the labels, shape (labels, width)."""
    head: Any
    """The reference's output head."""


@dataclass
class LabelScores(FusedCausalLMOutput):
    """TRL's output, and the divergence from a reference model."""

    divergence: torch.Tensor | None = None


def label_states(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return the last hidden state before each label that is not -100, shape (labels, width), row
    by row.

    The label of a row's first token has none before it and is left out.
    """
    rest = {name: value for name, value in inputs.items() if name != "labels"}
    states = model.base_model(**rest, use_cache=False).last_hidden_state[:, :-1]
    return states[inputs["labels"][:, 1:] != -100]


def score_labels_alone(model: Any, *, looks: bool = False) -> bool:
    """Replace `model.forward` so that a call with `fused_lm_head=True` returns log-probabilities of
    the labels; return True.

    They have shape (rows, tokens - 1), 0 where masked, as after TRL's `add_fused_lm_head`. With
    `looks` it adds, without gradient, each prediction's entropy in nats, its mean logit, and
    whether the label was likeliest; a call with `beside` adds the divergence at each label. Return
    False and change nothing for a model with scaled logits.
    """
    config = model.config.get_text_config()
    if any(getattr(config, name, None) is not None for name in SCALED_LOGITS):
        return False
    original_forward = model.forward

    @functools.wraps(type(model).forward)
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **named: Any) -> Any:
        if not fused_lm_head:
            return original_forward(*args, **named)
        labels, beside = named.pop("labels")[:, 1:], named.pop("beside", None)
        hidden = self.base_model(*args, **named).last_hidden_state[:, :-1]
        mask = labels != -100
        hidden, labels = hidden[mask], labels[mask]
        head = self.get_output_embeddings()
        log_probs, divergences = _chunked_log_probs(head, hidden, labels, beside)
        with_stats = looks and not _speaks_without_adapters(
            self
        )  # of the policy, not of its reference
        stats = _prediction_stats(head, hidden.detach(), labels) if with_stats else {}
        # connected to the model even where no label is left
        return LabelScores(
            **{
                name: values.new_zeros(mask.shape).masked_scatter(mask, values)
                for name, values in {"log_probs": log_probs, **divergences, **stats}.items()
            }
        )

    model.forward = MethodType(forward, model)
    return True


def _speaks_without_adapters(model: Any) -> bool:
    """Return True if the model's adapters are disabled at the moment."""
    return any(getattr(part, "disable_adapters", False) is True for part in model.modules())


def _chunked_log_probs(
    head: Any, hidden: torch.Tensor, labels: torch.Tensor, reference: ReferenceStates | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return (log pi of each label, shape (tokens,); with a reference the divergence by name, else
    an empty dict), computed chunk by chunk."""
    parts = [hidden.split(CHUNK_TOKENS), labels.split(CHUNK_TOKENS)]
    if reference is None:
        log_probs = [
            checkpoint(_chunk_log_probs, head, *chunks, use_reentrant=False)
            for chunks in zip(*parts, strict=True)
        ]
        return torch.cat(log_probs), {}
    chunk_results = [
        checkpoint(
            _chunk_with_divergence,
            head,
            *chunks,
            reference.head,
            reference.kind,
            use_reentrant=False,
        )
        for chunks in zip(*parts, reference.hidden.split(CHUNK_TOKENS), strict=True)
    ]
    label_log_probs, divergences = (
        torch.cat(values) for values in zip(*chunk_results, strict=True)
    )
    return label_log_probs, {"divergence": divergences}


def _prediction_stats(
    head: Any, hidden: torch.Tensor, labels: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the logged figures of each label's prediction by name, each of shape (tokens,)."""
    stats = []
    with torch.no_grad():
        for states, targets in zip(
            hidden.split(CHUNK_TOKENS), labels.split(CHUNK_TOKENS), strict=True
        ):
            logits = _head_logits(head, states)
            likely = logits.log_softmax(-1)
            entropy = -(likely.exp() * likely).sum(-1)
            stats.append((entropy, logits.mean(-1), logits.argmax(-1) == targets))
    entropies, mean, top = (torch.cat(parts) for parts in zip(*stats, strict=True))
    return {"entropy": entropies, "mean_logits": mean, "is_top1": top}


def _chunk_log_probs(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _label_log_probs(_head_logits(head, hidden), labels)


def _chunk_with_divergence(
    head: Any,
    hidden: torch.Tensor,
    labels: torch.Tensor,
    reference_hidden: torch.Tensor,
    reference_head: Any,
    kind: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = _head_logits(head, hidden)
    with torch.no_grad():
        reference_logits = _head_logits(reference_head, reference_hidden)
    return _label_log_probs(logits, labels), anchors.kl_divergence(kind, logits, reference_logits)


def _label_log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return logits.gather(-1, labels[:, None])[:, 0] - logits.logsumexp(-1)


def _head_logits(head: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return the logits in float32, or in float64 for a float64 model."""
    logits = head(hidden)
    return logits if logits.dtype == torch.float64 else logits.float()


BY_ROW = "convbench-by-row"
"""Name of the attention that computes `sdpa` row by row within one pack."""
BY_MASK = ("sdpa", "eager")
"""Attention for which transformers makes a mask from the positions, pack by pack."""
PROBE_TOKENS = 12
"""Tokens of each row in the test whether packs keep rows apart."""


@dataclass(frozen=True)
class PackedBatch:
    """A padded batch, packed."""

    inputs: dict[str, torch.Tensor]
    """`input_ids`, `position_ids` and `labels`, of shape (packs, width); for attention row by row
    also `cu_seq_lens_q`, of shape (rows + 1,): the start of each row, and the end."""
    score_index: torch.Tensor
    """Index into the flattened scores (packs, width - 1) of each row's tokens but the first, shape
    (rows, tokens - 1)."""
    real: torch.Tensor
    """True for those that are not padding, of the same shape."""

    def unpack(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores (packs, width - 1, ...) as (rows, tokens - 1, ...), 0 where padded."""
        by_row = scores.flatten(0, 1)[self.score_index]
        is_real = self.real.reshape(*self.real.shape, *[1] * (by_row.ndim - 2))
        return by_row.masked_fill(~is_real, 0)


def assign_packs(lengths: Sequence[int], limit: float) -> list[list[int]]:
    """Return the indices of the rows of each pack, none longer than the limit (or its only row), by
    best fit decreasing: the longest row first, each into the pack with least room left."""
    packs: list[list[int]] = []
    room: list[float] = []
    for row in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = [i for i, free in enumerate(room) if free >= lengths[row]]
        if fits:
            best = min(fits, key=lambda i: room[i])
            packs[best].append(row)
            room[best] -= lengths[row]
        else:
            packs.append([row])
            room.append(limit - lengths[row])
    return packs


def pack_batch(inputs: dict[str, Any], attention: str) -> PackedBatch:
    """Return the packed batch of `input_ids`, `attention_mask` and `labels`, of shape (rows,
    tokens), rows padded at their end. Attention row by row gets one pack of all rows; otherwise no
    pack is longer than the longest row, since a mask grows with the square of its length."""
    ids, labels = inputs["input_ids"], inputs["labels"]
    lengths = inputs["attention_mask"].sum(-1).tolist()
    assignment = assign_packs(lengths, math.inf if attention == BY_ROW else max(lengths))
    width = max(sum(lengths[row] for row in pack) for pack in assignment)
    starts = [0] * len(lengths)
    positions: list[int] = []
    for number, pack in enumerate(assignment):
        offset = 0
        for row in pack:
            starts[row] = number * width + offset
            positions += range(lengths[row])
            offset += lengths[row]
        positions += range(width - offset)  # the padding counts as a row
    steps = torch.arange(ids.shape[1], device=ids.device)
    places = torch.tensor(starts, device=ids.device)[:, None] + steps
    real = inputs["attention_mask"].bool()
    targets = labels.clone()
    targets[:, 0] = -100  # no token of its own row precedes it
    flat = {"input_ids": ids.new_zeros(len(assignment) * width)}
    flat["labels"] = labels.new_full((len(assignment) * width,), -100)
    flat["input_ids"][places[real]] = ids[real]
    flat["labels"][places[real]] = targets[real]
    flat["position_ids"] = torch.tensor(positions, device=ids.device)
    packed_inputs = {name: values.view(-1, width) for name, values in flat.items()}
    if attention == BY_ROW:
        begins = flat["position_ids"].eq(0).nonzero()[:, 0]
        packed_inputs["cu_seq_lens_q"] = torch.cat([begins, begins.new_tensor([width])])
    places, real = places[:, 1:], real[:, 1:]
    return PackedBatch(packed_inputs, (places - places // width - 1).masked_fill(~real, 0), real)


def row_by_row(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    cu_seq_lens_q: Any = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Return (the attention of each row of a pack to itself only, None), the first of shape (1,
    tokens, heads, d).

    Queries have shape (1, heads, tokens, d); `cu_seq_lens_q` holds the starts of the rows followed
    by the end. Without it, return the result of transformers' `sdpa`.
    """
    attend = partial(sdpa_attention_forward, module, attention_mask=attention_mask, **settings)
    if cu_seq_lens_q is None:
        return attend(query, key, value)  # type: ignore[no-any-return]
    outputs = [
        attend(*(part[:, :, start:end] for part in (query, key, value)))[0]
        for start, end in pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(outputs, dim=1), None


AttentionInterface.register(BY_ROW, row_by_row)


def choose_attention(model: Any, inner: Any, like: torch.Tensor) -> str:
    """Set the attention of `inner`, the model within `model`, to one that keeps rows of a pack
    apart, and return its name. Raises TrainError if none does. `like` is a tensor on the device.

    This is tested: logits of a row that follows another in a pack must be those of the row alone. A
    model with a recurrent state (Mamba), or one that ignores given positions, fails with any
    attention.
    """
    config = inner.config.get_text_config()
    current: str = config._attn_implementation or "eager"
    if current not in BY_MASK:
        raise TrainError(
            f"fit.packing: found attention {current!r}, which is not known to keep rows of one "
            "pack "
            f"apart; expected {' or '.join(BY_MASK)}, or fit.packing=false"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    is_full = kinds == {"full_attention"} and not getattr(config, "sliding_window", None)
    error = math.inf
    for attention in [BY_ROW, current] if current == "sdpa" and is_full else [current]:
        if attention != current or error < math.inf:
            inner.set_attn_implementation(attention)
        error, limit = _packing_error(model, config.vocab_size, attention, like)
        if error < limit:
            return attention
    raise TrainError(
        f"fit.packing: rows of one pack see each other in this model ({config.model_type}, "
        f"attention {current}: logits {error:.1%} off); expected fit.packing=false"
    )


def _packing_error(
    model: Any, vocabulary: int, attention: str, like: torch.Tensor
) -> tuple[float, float]:
    """Return (largest error of a packed row's logits relative to the largest logit, the limit that
    rounding explains)."""
    count = torch.arange(2 * PROBE_TOKENS, device=like.device)
    ids = (count * 7919 % vocabulary).view(2, PROBE_TOKENS)
    packs = pack_batch(
        {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}, BY_ROW
    )
    packed_inputs = {name: value for name, value in packs.inputs.items() if name != "labels"}
    if attention != BY_ROW:
        del packed_inputs["cu_seq_lens_q"]
    training = model.training
    model.eval()
    with torch.no_grad():
        behind = model(**packed_inputs, use_cache=False).logits[0, PROBE_TOKENS:]
        alone = model(input_ids=ids[1:], use_cache=False).logits[0]
    model.train(training)
    error = float((behind - alone).abs().max() / alone.abs().max())
    return error, 1e-3 if alone.dtype in (torch.float32, torch.float64) else 0.05
