"""The turn-wise advantage model of SWEET-RL: equations (2) and (3), its training, its scores.

Imports torch; only what is about to fit or to score imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.nn.functional import logsigmoid
from transformers import Trainer, TrainingArguments

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.select import Logged
from convbench.learn.sweet import Row, Sweet, Trajectories, critic_rows


def padded(rows: Sequence[Sequence[Row]], pad: int) -> dict[str, torch.Tensor]:
    """Return trajectories as one batch: `input_ids`, `attention_mask` and `turns`, each of shape
    (rows, longest); `turns` numbers the policy turns of all trajectories through (-1: none);
    `owner`, shape (turns,), says whose they are."""
    flat = [row for trajectory in rows for row in trajectory]
    shape = (len(flat), max(len(row.ids) for row in flat))
    ids = torch.full(shape, pad)
    mask, turns = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    owner: list[int] = []
    at = 0
    for number, trajectory in enumerate(rows):
        first = len(owner)
        for row in trajectory:
            ids[at, : len(row.ids)] = torch.tensor(row.ids)
            mask[at, : len(row.ids)] = 1
            marks = torch.tensor(row.turns)
            turns[at, : len(row.ids)] = torch.where(marks >= 0, marks + first, marks)
            at += 1
        owner += [number] * (1 + max(max(row.turns) for row in trajectory))
    return {"input_ids": ids, "attention_mask": mask, "turns": turns, "owner": torch.tensor(owner)}


def turn_log_probs(model: Any, batch: dict[str, torch.Tensor], *, mean: bool) -> torch.Tensor:
    """Return log pi of every policy turn, shape (turns,): the mean over its tokens, or the sum."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    logits = logits[:, :-1]
    if logits.dtype != torch.float64:
        logits = logits.float()
    tokens = batch["input_ids"][:, 1:, None]
    log_probs = logits.log_softmax(-1).gather(-1, tokens).squeeze(-1)
    marks = batch["turns"][:, 1:]
    on = marks >= 0
    count = len(batch["owner"])
    zero = log_probs.new_zeros(count)
    sums = zero.index_add(0, marks[on], log_probs[on])
    if not mean:
        return sums
    return sums / zero.index_add(0, marks[on], torch.ones_like(log_probs[on])).clamp(min=1)


def pair_loss(better: torch.Tensor, worse: torch.Tensor, beta: float) -> torch.Tensor:
    """Equation (2): -log sigma(beta sum_t A+ - beta sum_t A-), from sums of shape (pairs,)."""
    return -logsigmoid(beta * (better - worse))


class Critic(Trainer):
    """Trains on pairs of trajectories; a dataset row is (chosen, rejected), places in `rows`."""

    def __init__(
        self, settings: Sweet, rows: Sequence[Sequence[Row]], reference: Any, pad: int, **more: Any
    ) -> None:
        """`reference[i]`: log pi_ref of the turns of trajectory i under the starting model."""
        super().__init__(data_collator=self._collate, **more)
        self.settings, self.rows, self.reference, self.pad = settings, rows, reference, pad
        self.model_accepts_loss_kwargs = False

    def _collate(self, pairs: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
        order = [better for better, _ in pairs] + [worse for _, worse in pairs]
        batch = padded([self.rows[i] for i in order], self.pad)
        return {**batch, "reference": torch.cat([self.reference[i] for i in order])}

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Mean loss of the pairs, plus `nll` times the chosen turns' mean token NLL."""
        reference = inputs.pop("reference")
        log_probs = turn_log_probs(model, inputs, mean=self.settings.normalize)
        sums = advantages(log_probs, reference, inputs["owner"])
        better, worse = sums.chunk(2)
        loss = pair_loss(better, worse, self.settings.beta).mean()
        if self.settings.nll:
            loss = loss + self.settings.nll * self._nll(log_probs, inputs)
        return (loss, {"advantages": sums}) if return_outputs else loss

    def _nll(self, log_probs: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        chosen = inputs["owner"] < (inputs["owner"].max() + 1) // 2
        if self.settings.normalize:
            return -log_probs[chosen].mean()
        marks = inputs["turns"][:, 1:]
        tokens = chosen[marks.clamp(min=0)] & (marks >= 0)
        return -log_probs[chosen].sum() / tokens.sum()


def advantages(
    log_probs: torch.Tensor, reference: torch.Tensor, owner: torch.Tensor
) -> torch.Tensor:
    """Return sum_t A of every trajectory, from its turns' log probabilities."""
    zero = log_probs.new_zeros(int(owner.max()) + 1)
    return zero.index_add(0, owner, log_probs - reference.to(log_probs))


def scores(
    model: Any, rows: Sequence[Sequence[Row]], pad: int, *, mean: bool, size: int = 16
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, without gradients."""
    found: list[torch.Tensor] = []
    order = sorted(range(len(rows)), key=lambda i: sum(len(row.ids) for row in rows[i]))
    by_place: dict[int, torch.Tensor] = {}
    training = model.training
    model.eval()
    for start in range(0, len(order), size):
        places = order[start : start + size]
        batch = padded([rows[i] for i in places], pad)
        owner = batch["owner"]
        with torch.no_grad():
            moved = {name: value.to(model.device) for name, value in batch.items()}
            values = turn_log_probs(model, moved, mean=mean).cpu()
        for number, place in enumerate(places):
            by_place[place] = values[owner == number]
    model.train(training)
    found += [by_place[i] for i in range(len(rows))]
    return found


def fit(job: Job, found: Trajectories) -> None:
    """Train the recipe's model as the critic (or, with nothing hidden, as the policy) and save."""
    fitting.quiet()
    settings = Sweet.of(job.recipe.args, job.recipe.name)
    pairs, rows, dropped = _rows(job, found.items, settings)
    if not pairs:
        raise TrainError(f"data.max_length {job.longest} leaves no pair; raise it")
    model = fitting.load_model(job)
    pad = job.chat.tokenizer.pad_token_id or 0
    reference = scores(model, rows, pad, mean=settings.normalize)
    values = fitting.arguments(job)
    values.pop("max_length")
    trainer = Critic(
        settings, rows, reference, pad,
        model=model, args=TrainingArguments(**values), train_dataset=pairs,
    )  # fmt: skip
    fitting.train(trainer, job)
    held = _accuracy(job, trainer, found, settings, pad)
    fitting.finish(
        trainer,
        job,
        cast(Any, found),
        counts={"pairs": len(pairs), "pairs dropped": dropped},
        held_out=held,
    )


def _rows(
    job: Job, items: Sequence[tuple[Logged, Logged]], settings: Sweet
) -> tuple[list[tuple[int, int]], list[list[Row]], int]:
    """Return pairs of places, the trajectories' rows, and how many pairs are too long."""
    protocol = job.run.manifest.protocol
    places: dict[str, int] = {}
    rows: list[list[Row]] = []
    pairs, dropped = [], 0
    for pair in items:
        for item in pair:
            name = item.conversation.conversation_id
            if name not in places:
                places[name] = len(rows)
                rows.append(critic_rows(protocol, item, job.chat, settings))
        better, worse = (places[item.conversation.conversation_id] for item in pair)
        longest = max(len(row.ids) for i in (better, worse) for row in rows[i])
        if job.longest is not None and longest > job.longest:
            dropped += 1
        else:
            pairs.append((better, worse))
    return pairs, rows, dropped


def _accuracy(
    job: Job, trainer: Any, found: Trajectories, settings: Sweet, pad: int
) -> dict[str, Any]:
    """Return pair accuracy on held-out tasks and the advantages of three of their trajectories."""
    pairs, rows, _ = _rows(job, found.held, settings)
    if not pairs:
        return {"pairs": 0}
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = fitting.load_model(job, trained=False).to(model.device)
    now = scores(model, rows, pad, mean=settings.normalize)
    then = scores(base, rows, pad, mean=settings.normalize)
    gains = [a.double() - b.double() for a, b in zip(now, then, strict=True)]
    right = sum(float(gains[a].sum() > gains[b].sum()) for a, b in pairs)
    names = list(dict.fromkeys(i.conversation.conversation_id for p in found.held for i in p))
    shown = {names[i]: [round(float(v), 4) for v in gains[i]] for i in range(min(3, len(gains)))}
    return {"pairs": len(pairs), "accuracy": right / len(pairs), "advantages": shown}
