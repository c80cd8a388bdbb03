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
from convbench.learn.logged import Logged
from convbench.learn.rows import Row, training_rows
from convbench.learn.select import Selection
from convbench.learn.weights import Weighted
from convbench.models.where import (
    check_model,
    member_weights,
    named,
    own_sampling,
    weights_place,
)
from convbench.schema import Member, RunManifest
from convbench.schema.recipe import Pi0, Recipe
from convbench.schema.token_probs import TokenProbs
from convbench.store.run import Run
from convbench.store.token_probs import Recorded


class CannotBeKnown(ConvbenchError):
    """The log cannot say anything about the policy, and more conversations would not help."""


@dataclass(frozen=True)
class Ratio:
    """One conversation and its log importance ratio under the policy."""

    logged: Logged
    log_ratio: float


def ratios(selection: Selection, policy: str, pi_0: Pi0 = "base") -> list[Ratio]:
    """Return the log ratio of every conversation of a run.

    `policy` is a checkpoint's folder or any model whose weights are local; pi_0 is computed with
    the weights of the run's own policy, or `recorded` with the log. Raises NotEstimable if the log
    was sampled in a way that gives some tokens no chance, or if probabilities are unavailable.
    """
    run = selection.run
    check_sampling(run.manifest, selection.logged)
    model = weights_of(Member(model=policy), "the policy")
    found = []
    heats = sorted({item.conversation.temperature for item in selection.logged})
    base = None if pi_0 == "recorded" else weights_of(own(run.manifest), f"run {run.manifest.id}")
    held = {place: _loaded(place) for place in (model, base) if place is not None}
    for heat in heats:
        items = [item for item in selection.logged if item.conversation.temperature == heat]
        now, rows = _of(held[model], run, model, items, heat, pi_0)
        if base is None:
            then = [list(row.tokens.pi_0) for row in rows]
        else:
            then, others = _of(held[base], run, base, items, heat, "base")
            _alike(rows, others)
        found += list(_joined(items, rows, now, then))
    return found


def own(manifest: RunManifest) -> Member:
    """Return the policy of a run's cast."""
    return manifest.cast[manifest.protocol.policy]


def check_sampling(manifest: RunManifest, logged: Sequence[Logged]) -> None:
    """Raise NotEstimable if conversations were sampled in a way that gives some tokens no chance,
    or at an unknown temperature."""
    policy = manifest.protocol.policy
    member = own(manifest)
    cold = sum(item.conversation.temperature == 0 for item in logged)
    if cold:
        raise CannotBeKnown(
            f"{cold} of {len(logged)} conversations were drawn at temperature 0, where the log's "
            "policy had one reply to each and another one has no ratio; expected samples of a "
            "temperature above 0"
        )
    if member.sampling.top_p is not None and member.sampling.top_p < 1:
        raise CannotBeKnown(
            f"the log was drawn with top_p {member.sampling.top_p:g}, which leaves what is outside "
            "no chance; expected a log of build --top-p 1"
        )
    unsent = sum("temperature" in _left_out(item, policy) for item in logged)
    if unsent:
        raise CannotBeKnown(
            f"the temperature of {unsent} of {len(logged)} conversations was not sent to the "
            "model, so the one that they were drawn at is unknown"
        )
    place = weights_place(member.model, member.weights)
    for name, value in (member.own_sampling or own_sampling(place, fetch=True)).items():
        if name != "top_p" or member.sampling.top_p is None:
            way = "; expected a log of build --top-p 1" if name == "top_p" else "; expected none"
            raise CannotBeKnown(
                f"the log's policy draws with {name} {value:g} by its own configuration, which "
                f"leaves what is outside no chance{way}"
            )


def _left_out(item: Logged, policy: str) -> Sequence[str]:
    sent = item.conversation.sent.get(policy)
    return sent.left_out if sent is not None else ()


def weights_of(member: Member, who: str) -> str:
    """Return the path or Hub id of a policy's weights. Raises NotEstimable if it is unknown."""
    folder = Path(member.model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder)
    try:
        place = member_weights(member, who)
        place = named(place) or place
        check_model(place)
    except TrainError as error:
        raise CannotBeKnown(
            f"{error}; its probabilities cannot be computed (of the log's own policy they can be "
            "recorded: build with --logprobs, then --pi-0 recorded)"
        ) from None
    return place


class _Drawn:
    """Recorded log-probabilities of tokens as they were sampled, at their temperature."""

    def __init__(self, recorded: Recorded, heat: float) -> None:
        self.recorded, self.heat = recorded, heat

    def of(self, key: str, text: str) -> TokenProbs | None:
        """Return the log-probabilities of a reply; None if only those at temperature 1 were
        recorded and the temperature was another."""
        found = self.recorded.of(key, text)
        if found is None or found.drawn:
            return found and replace(found, log_probs=found.drawn)
        return found if self.heat == 1 else None


def _loaded(place: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from convbench.learn.fitting import quiet

    quiet()
    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    return model.to("cuda") if torch.cuda.is_available() else model


def _of(
    model: Any, run: Run, place: str, items: Sequence[Logged], heat: float, pi_0: Pi0
) -> tuple[list[list[float]], list[Row]]:
    """Return (log pi of every token of every row at a temperature, the rows)."""
    from convbench.learn.losses import reference

    recipe = Recipe(
        name="estimate", title="", trainer=None, model=place, run=str(run.path.resolve())
    )
    job = Job(recipe, run.path)
    weighted = Weighted(Selection(run, "", tuple(items)), tuple((item, 1.0) for item in items))
    told: Any = _Drawn(Recorded(*run.folders()), heat) if pi_0 == "recorded" else None
    try:
        rows = training_rows(weighted, job.chat, None, "conversation", told).rows
    except TrainError as error:
        raise CannotBeKnown(str(error).partition("; build with")[0]) from None
    long = sum(len(row.tokens.ids) > (job.longest or len(row.tokens.ids)) for row in rows)
    if long:
        raise CannotBeKnown(
            f"{long} of {len(rows)} rows are longer than the {job.longest} tokens that {place} "
            "reads; expected none"
        )
    return reference.log_probs(model, rows, heat=heat), list(rows)


def _alike(rows: Sequence[Row], others: Sequence[Row]) -> None:
    """Raise NotEstimable if both policies do not have the same tokens in every row: the ratio of a
    text's probabilities is then not a product over tokens."""
    if [row.tokens.ids for row in rows] != [row.tokens.ids for row in others] or [
        row.tokens.mask for row in rows
    ] != [row.tokens.mask for row in others]:
        raise CannotBeKnown(
            "the policy cuts the log into other tokens than the policy that wrote it (another "
            "tokenizer or chat template); expected the same"
        )


def _joined(
    items: Sequence[Logged],
    rows: Sequence[Row],
    now: Sequence[Sequence[float]],
    then: Sequence[Sequence[float]],
) -> Iterator[Ratio]:
    """Yield each conversation with its log ratio, summed over its rows."""
    sums: dict[str, float] = {}
    for row, mine, before in zip(rows, now, then, strict=True):
        change = sum(mine) - sum(before)
        sums[row.conversation_id] = sums.get(row.conversation_id, 0.0) + change
    for item in items:
        yield Ratio(item, sums[item.conversation_id])
