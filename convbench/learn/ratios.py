"""Log importance ratios of logged conversations under another policy: log pi - log pi_0.

Both are taken at the sampling temperature of the conversation, over all tokens of the policy's
turns, replies that called tools included. Imports torch only when it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convbench.errors import ConvbenchError, TrainError
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.rows import TrainingRow, training_rows
from convbench.learn.select import Selection
from convbench.learn.weights import Weighted
from convbench.models.weights_path import (
    check_model,
    member_weights,
    own_sampling,
    resolve_reference,
    weights_place,
)
from convbench.schema import ModelConfig, RunManifest
from convbench.schema.chat import TokenProbs
from convbench.schema.recipe import Pi0, Recipe
from convbench.store.run import Run
from convbench.store.token_probs import RecordedProbs


class NotEstimable(ConvbenchError):
    """The log cannot say anything about the policy, and more conversations would not help."""


@dataclass(frozen=True)
class LogRatio:
    """One conversation and its log importance ratio under the policy."""

    logged: LoggedConversation
    log_ratio: float


def log_ratios(selection: Selection, policy: str, pi_0: Pi0 = "base") -> list[LogRatio]:
    """Return the log ratio, in nats, of every conversation of a selection; temperatures in rising
    order.

    Conversations of one temperature keep their order. `policy` is a checkpoint's folder or any
    model whose weights are local; pi_0 is computed with the weights of the run's own policy, or
    `recorded` with the log. Raise NotEstimable if the log was sampled in a way that gives some
    tokens no chance, if probabilities are unavailable, or if tokens differ.
    """
    run = selection.run
    check_sampling(run.manifest, selection.logged)
    model = policy_weights_path(ModelConfig(model=policy), "the policy")
    conversation_ratios = []
    temperatures = sorted({item.conversation.temperature for item in selection.logged})
    base = (
        None
        if pi_0 == "recorded"
        else policy_weights_path(policy_member(run.manifest), f"run {run.manifest.id}")
    )
    models = {path: _load_model(path) for path in (model, base) if path is not None}
    for temperature in temperatures:
        items = [item for item in selection.logged if item.conversation.temperature == temperature]
        policy_log_probs, rows = _log_probs(models[model], run, model, items, temperature, pi_0)
        if base is None:
            base_log_probs = [list(row.tokens.pi_0) for row in rows]
        else:
            base_log_probs, others = _log_probs(models[base], run, base, items, temperature, "base")
            _check_same_tokens(rows, others)
        conversation_ratios += list(_sum_ratios(items, rows, policy_log_probs, base_log_probs))
    return conversation_ratios


def policy_member(manifest: RunManifest) -> ModelConfig:
    """Return the policy of a run's cast."""
    return manifest.cast[manifest.protocol.policy]


def check_sampling(manifest: RunManifest, logged: Sequence[LoggedConversation]) -> None:
    """Raise NotEstimable if conversations were sampled in a way that gives some tokens no chance,
    or at an unknown temperature."""
    policy = manifest.protocol.policy
    member = policy_member(manifest)
    greedy = sum(item.conversation.temperature == 0 for item in logged)
    if greedy:
        raise NotEstimable(
            f"{greedy} of {len(logged)} conversations were sampled at temperature 0, where the "
            "log's policy has a single possible reply, so no ratio exists; expected samples of a "
            "temperature above 0"
        )
    if member.sampling.top_p is not None and member.sampling.top_p < 1:
        raise NotEstimable(
            f"the log was drawn with top_p {member.sampling.top_p:g}, which gives all other tokens "
            "probability 0; expected a log of build --top-p 1"
        )
    unsent = sum("temperature" in _left_out(item, policy) for item in logged)
    if unsent:
        raise NotEstimable(
            f"the temperature of {unsent} of {len(logged)} conversations was not sent to the "
            "model, so the one that they were drawn at is unknown"
        )
    path = weights_place(member.model, member.weights)
    for name, value in (member.own_sampling or own_sampling(path, fetch=True)).items():
        if name != "top_p" or member.sampling.top_p is None:
            hint = "; expected a log of build --top-p 1" if name == "top_p" else "; expected none"
            raise NotEstimable(
                f"the log's policy draws with {name} {value:g} by its own configuration, which "
                f"gives all other tokens probability 0{hint}"
            )


def _left_out(item: LoggedConversation, policy: str) -> Sequence[str]:
    sent = item.conversation.sent.get(policy)
    return sent.left_out if sent is not None else ()


def policy_weights_path(member: ModelConfig, who: str) -> str:
    """Return the path or Hub id of a policy's weights. Raises NotEstimable if it is unknown."""
    folder = Path(member.model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder)
    try:
        path = member_weights(member, who)
        path = resolve_reference(path) or path
        check_model(path)
    except TrainError as error:
        raise NotEstimable(
            f"{error}; its probabilities cannot be computed (of the log's own policy they can be "
            "recorded: build with --logprobs, then --pi-0 recorded)"
        ) from None
    return path


class _SampledProbs:
    """Recorded log-probabilities of tokens as they were sampled, at their temperature."""

    def __init__(self, recorded: RecordedProbs, temperature: float) -> None:
        self.recorded, self.temperature = recorded, temperature

    def probs_of(self, key: str, text: str) -> TokenProbs | None:
        """Return the log-probabilities of a reply; None if only those at temperature 1 were
        recorded and the temperature was another."""
        probs = self.recorded.probs_of(key, text)
        if probs is None or probs.drawn:
            return probs and replace(probs, log_probs=probs.drawn)
        return probs if self.temperature == 1 else None


def _load_model(path: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from convbench.learn.fitting import silence_libraries

    silence_libraries()
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model.to("cuda") if torch.cuda.is_available() else model


def _log_probs(
    model: Any,
    run: Run,
    path: str,
    items: Sequence[LoggedConversation],
    temperature: float,
    pi_0: Pi0,
) -> tuple[list[list[float]], list[TrainingRow]]:
    """Return (log pi of every token of every row at a temperature, the rows)."""
    from convbench.learn.losses import reference

    recipe = Recipe(
        name="estimate", title="", trainer=None, model=path, run=str(run.path.resolve())
    )
    job = Job(recipe, run.path)
    weighted = Weighted(Selection(run, "", tuple(items)), tuple((item, 1.0) for item in items))
    recorded: Any = (
        _SampledProbs(RecordedProbs(run.path), temperature) if pi_0 == "recorded" else None
    )
    try:
        rows = training_rows(weighted, job.chat, None, "conversation", recorded).rows
    except TrainError as error:
        raise NotEstimable(str(error).partition("; build with")[0]) from None
    long = sum(len(row.tokens.ids) > (job.max_length or len(row.tokens.ids)) for row in rows)
    if long:
        raise NotEstimable(
            f"{long} of {len(rows)} rows are longer than {path}'s limit of {job.max_length} "
            "tokens; expected none"
        )
    return reference.log_probs(model, rows, temperature=temperature), list(rows)


def _check_same_tokens(rows: Sequence[TrainingRow], others: Sequence[TrainingRow]) -> None:
    """Raise NotEstimable if both policies do not have the same tokens in every row: the ratio of a
    text's probabilities is then not a product over tokens."""
    if [row.tokens.ids for row in rows] != [row.tokens.ids for row in others] or [
        row.tokens.mask for row in rows
    ] != [row.tokens.mask for row in others]:
        raise NotEstimable(
            "the policy tokenises the log differently from the policy that wrote it (another "
            "tokenizer or chat template); expected the same"
        )


def _sum_ratios(
    items: Sequence[LoggedConversation],
    rows: Sequence[TrainingRow],
    policy_log_probs: Sequence[Sequence[float]],
    base_log_probs: Sequence[Sequence[float]],
) -> Iterator[LogRatio]:
    """Yield each conversation with its log ratio, summed over its rows."""
    sums: dict[str, float] = {}
    for row, policy_values, base_values in zip(rows, policy_log_probs, base_log_probs, strict=True):
        change = sum(policy_values) - sum(base_values)
        sums[row.conversation_id] = sums.get(row.conversation_id, 0.0) + change
    for item in items:
        yield LogRatio(item, sums[item.conversation_id])
