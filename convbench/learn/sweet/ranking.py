"""Score the candidates of a turn by the critic against its reference (SWEET-RL, stage 2).

Get log-probabilities of candidates from vLLM servers on this machine.

One serves the critic (`vllm serve CHECKPOINT/critic`), one the reference (`vllm serve BASE`).
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from convbench.errors import ConvbenchError, TrainError
from convbench.judges.adaptation.cache import WorkCache
from convbench.judges.adaptation.server import AdapterServer
from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.launch import ERROR_PREFIX, GUARDED
from convbench.learn.log import LoggedConversation
from convbench.learn.pairs import PolicyReply
from convbench.learn.select import Selection, select
from convbench.learn.sweet import critic as advantage
from convbench.learn.sweet.candidates import read_candidates, reply_key, reply_of
from convbench.learn.sweet.pairs import (
    CANDIDATES,
    CRITIC,
    RANKED,
    CriticRow,
    SweetArgs,
    hidden_text,
    rows_by_turn,
    with_hidden_text,
)
from convbench.learn.tokens import ChatTokens, PromptedReply
from convbench.rollout.plan import seen_before
from convbench.schema import ProtocolSpec, fingerprint
from convbench.store.checkpoint import RECIPE, TRAINING
from convbench.store.jsonl import write_atomic
from convbench.util.guard import die_with_parent

PROMPTS_PER_REQUEST = 16
"""Prompts of one request."""
SCORES = "scores.jsonl"
"""Log-probabilities of candidates in a job's folder, until all are ranked."""
SIDES = ("critic", "reference")


ALL = 1 << 40
"""Positions that no batch has: rows that are a batch already are scored as one."""


@dataclass(frozen=True)
class BatchScores:
    """Log pi of a batch of candidates."""

    values: tuple[tuple[float, ...], ...]
    """By candidate, of each of its turns."""


Rows = Sequence[Sequence[CriticRow]]
ScoreBatch = Callable[[Rows], Iterable[Sequence[float]]]
"""Type of a function that returns log pi of the turns of each candidate of a batch."""


class _HereScorer:
    """Scores batches with weights that are loaded here for the first of them."""

    def __init__(self, job: Job, path: str | None, mean: Any) -> None:
        self.job, self.path, self.mean = job, path, mean
        self.model: Any = None

    def __call__(self, rows: Rows) -> list[list[float]]:
        if self.model is None:
            self.model = fitting.load_model(self.job, self.path, trained=False)
            self.model = self.model.to(advantage.torch_device())
        pad = self.job.chat.tokenizer.pad_token_id or 0
        scores = advantage.score_turns(self.model, rows, pad, mean=self.mean, tokens=ALL)
        return [values.tolist() for values in scores]


class _ServedScorer:
    """Scores batches by the weights that are served at an address.

    Raises TrainError if the server serves other weights, or does not answer."""

    def __init__(self, base: str, weights: str, mean: bool) -> None:
        self.base, self.weights, self.mean = base, weights, mean
        self.server = AdapterServer(base, weights, "args.servers")
        self.model: str | None = None

    def __call__(self, rows: Rows) -> Iterator[list[float]]:
        if self.model is None:
            try:
                self.model = self.server.served_model()
            except TrainError as error:
                raise TrainError(
                    f"{error}; serve them with `vllm serve {self.weights}` and run the command "
                    "again: it resumes where it stopped"
                ) from None
        flat = [_only_row(each) for each in rows]
        replies = self.server.prompt_log_probs(self.model, [row.ids for row in flat])
        for row, values in zip(flat, replies, strict=True):
            yield [_turn_log_prob(self.base, row, values, self.mean)]


def _stored_scores(
    side: str,
    names: Sequence[str],
    rows: Rows,
    batches: Iterable[list[int]],
    score: ScoreBatch,
    cache: WorkCache[BatchScores] | None,
) -> list[tuple[float, ...]]:
    """Return log pi of the turns of each candidate; every batch is stored in the cache as soon as
    it is scored, and one that is there is not scored again."""
    values: dict[int, tuple[float, ...]] = {}
    for batch in batches:
        key = fingerprint(side, [names[i] for i in batch])
        stored = cache.get(key) if cache is not None else None
        if stored is None:
            stored = BatchScores(tuple(map(tuple, score([rows[i] for i in batch]))))
            if cache is not None:
                cache.put(key, stored)
        values |= dict(zip(batch, stored.values, strict=True))
    return [values[i] for i in range(len(rows))]


def _only_row(rows: Sequence[CriticRow]) -> CriticRow:
    if len(rows) != 1 or max(rows[0].turns) > 0:
        raise TrainError(
            "args.servers: found a candidate of several rows or turns (a chat template that runs "
            "them together); expected one; leave args.servers out"
        )
    return rows[0]


def _turn_log_prob(
    base: str, row: CriticRow, prompt_log_probs: Sequence[Mapping[str, Any] | None], mean: bool
) -> float:
    """Return a row's log pi from the server's log-probabilities of all its tokens."""
    values = []
    for token, mark, by_token in zip(row.ids, row.turns, prompt_log_probs, strict=False):
        if mark < 0:
            continue
        entry = (by_token or {}).get(str(token))
        value = entry.get("logprob") if isinstance(entry, Mapping) else None
        if not isinstance(value, (int, float)):
            raise TrainError(f"{base}: found no log-probability of token {token} of a prompt")
        values.append(float(value))
    if len(prompt_log_probs) != len(row.ids) or not values:
        raise TrainError(
            f"{base}: found {len(prompt_log_probs)} log-probabilities of {len(row.ids)} tokens"
        )
    return sum(values) / (len(values) if mean else 1)


def candidate_row(
    protocol: ProtocolSpec,
    item: LoggedConversation,
    turn: int,
    rounds: int,
    reply: PolicyReply,
    chat: ChatTokens,
    settings: SweetArgs,
    *,
    shows_hidden: bool = True,
) -> list[CriticRow]:
    """Return one candidate's rows: the history, with the hidden text before it if the flag is set,
    then the reply."""
    seen = seen_before(protocol, item.conversation, turn, rounds)
    prompted = PromptedReply(
        with_hidden_text(seen, hidden_text(item, settings) if shows_hidden else ""), reply
    )
    return rows_by_turn([prompted], chat, item.conversation.ended[:10])


def candidate_advantages(
    job: Job,
    critic: Path,
    by_id: Mapping[str, LoggedConversation],
    candidates: Sequence[Mapping[str, Any]],
    settings: SweetArgs,
    cache: WorkCache[BatchScores] | None = None,
) -> list[float]:
    """Return the advantage of every candidate, in order: equation (3) with the trained critic.

    Equal contents of one turn are scored once. With `servers` they are scored there, else by models
    loaded here. What is scored is stored in the cache as it goes. Raise TrainError if the servers
    cannot be used.
    """
    protocol = job.run.manifest.protocol
    places: dict[str, int] = {}
    hidden_flags = (True, settings.informed_reference)
    rows: tuple[list[list[CriticRow]], ...] = ([], [])
    for row in candidates:
        if (key := _candidate_key(row)) not in places:
            places[key] = len(rows[0])
            name, turn, rounds = reply_key(row)
            reply = reply_of(row)
            for each, shows_hidden in zip(rows, hidden_flags, strict=True):
                each.append(
                    candidate_row(
                        protocol,
                        by_id[name],
                        turn,
                        rounds,
                        reply,
                        job.chat,
                        settings,
                        shows_hidden=shows_hidden,
                    )
                )
    if settings.servers is not None and settings.normalize == "trajectory":
        raise TrainError("args.servers: found normalize trajectory; expected turn or false")
    trained = critic / TRAINING
    training = fingerprint(trained.read_text()) if trained.exists() else ""
    sides = []
    for number, each in enumerate(rows):
        score: ScoreBatch
        if settings.servers is not None:
            count, step = len(each), PROMPTS_PER_REQUEST
            batches = [list(range(i, min(i + step, count))) for i in range(0, count, step)]
            weights = (str(critic), job.model)[number]
            score = _ServedScorer(settings.servers[number], weights, bool(settings.normalize))
        else:
            batches = list(advantage.budget_batches(each, advantage.BUDGET))
            score = _HereScorer(job, (str(critic), None)[number], settings.normalize)
        side = f"{SIDES[number]} {training}"
        scores = _stored_scores(side, list(places), each, batches, score, cache)
        sides.append([torch.tensor(values, dtype=torch.float64) for values in scores])
        del score  # and its model, before the other one is loaded
        free_memory()
    gains = [float((a - b).sum()) for a, b in zip(*sides, strict=True)]
    return [gains[places[_candidate_key(row)]] for row in candidates]


def free_memory() -> None:
    """Return memory of models that are used no more to the accelerator."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _candidate_key(row: Mapping[str, Any]) -> str:
    """Return a key that is equal for candidates of one turn with the same content."""
    content = reply_of(row).content_key
    return json.dumps([reply_key(row), content, row["cut"]])


def rank_candidates(job: Job, selection: Selection, settings: SweetArgs) -> None:
    """Write `ranked.jsonl`, every candidate of the selection with the critic's `advantage`, unless
    it exists. Stopped, it goes on from the batches in `scores.jsonl`."""
    file, scores = job.folder / RANKED, job.folder / SCORES
    if file.exists():
        return
    rows = list(read_candidates(job.folder / CANDIDATES))
    by_id = {item.conversation_id: item for item in selection.logged}
    known = [row for row in rows if row["conversation_id"] in by_id]
    with WorkCache(scores, BatchScores) as cache:
        advantages = candidate_advantages(job, job.folder / CRITIC, by_id, known, settings, cache)
    lines = [
        json.dumps({**row, "advantage": value})
        for row, value in zip(known, advantages, strict=True)
    ]
    write_atomic(file, ("\n".join(lines) + "\n").encode())
    scores.unlink(missing_ok=True)


def main() -> None:
    """Rank the candidates of the checkpoint's folder in `sys.argv`, in a process whose end returns
    the accelerator's memory. Raise SystemExit for a ConvbenchError, with its text."""
    if os.environ.get(GUARDED):
        die_with_parent()
    try:
        job = Job.from_file(Path(sys.argv[1]) / RECIPE)
        settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
        rank_candidates(job, select(job.run, job.recipe.data), settings)
    except ConvbenchError as error:
        raise SystemExit(f"{ERROR_PREFIX}{error}") from None


if __name__ == "__main__":
    main()
