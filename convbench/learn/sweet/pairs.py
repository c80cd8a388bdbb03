"""SWEET-RL's data (Zhou et al. 2025): its settings, pairs of trajectories, the critic's rows, and
pairs of ranked candidates.

The critic sees the hidden reference, the policy never does. One row holds a full trajectory if its
tokens are prefix-stable; the hidden text stands once, before the first user message.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from convbench.errors import TrainError
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.pairs import Pair, Pairs, PolicyReply
from convbench.learn.rows import prompted_replies
from convbench.learn.select import Selection
from convbench.learn.tokens import ChatTokens, PromptedReply
from convbench.learn.weights import TieSummary, break_ties, equal_indices
from convbench.models.weights_path import content_hash
from convbench.rollout.plan import seen_before
from convbench.schema import Message, ProtocolSpec
from convbench.schema.base import FrozenModel
from convbench.schema.recipe import TieRule
from convbench.store.checkpoint import Checkpoint
from convbench.views import SEPARATOR

CRITIC, CANDIDATES, RANKED = "critic", "candidates.jsonl", "ranked.jsonl"
"""Folder and files of the checkpoint with the results of the stages."""
Settings = TypeVar("Settings", bound=FrozenModel)


class SweetArgs(FrozenModel):
    """`args` of recipes `sweet` and `mt-dpo`."""

    hidden: tuple[str, ...] = ("reference",)
    """Hidden fields of the example that the critic sees; none makes it a plain trajectory DPO."""
    wording: str = "In light of the final answer, which the agent does not see:\n{hidden}"
    """How the critic is shown them; `{hidden}` stands for the fields."""
    select: Literal["best", "gap"] = "best"
    """Pairs: of tasks whose best reward is at least `top` the best against each lower one
    (backend), or all that differ by at least `gap` (frontend)."""
    top: float = 1.0
    """Least best reward of a task (`best`)."""
    gap: float = Field(default=0.1, gt=0)
    """Least difference in reward (`gap`)."""
    beta: float = Field(default=0.1, gt=0)
    """beta of equation (2)."""
    nll: float = Field(default=0.01, ge=0)
    """Weight of the chosen side's negative log-likelihood in stage 2."""
    critic_nll: float = Field(default=0.0, ge=0)
    """The same in stage 1."""
    normalize: bool | Literal["turn", "trajectory"] = "turn"
    """`turn`: the sum over turns of the mean over each one's tokens, equation (3); `trajectory`:
    the mean over all tokens of all turns, as the released trainer has it; false sums (the
    ablation). True is `turn`."""
    informed_reference: bool = True
    """Whether the reference that candidates are scored against sees the hidden fields too, as in
    equation (3); the released code's does not."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the conversations whose turns get candidates, at least one."""
    held_out: float = Field(default=0.1, ge=0, lt=1)
    """Share of the train tasks on which the critic is only measured."""
    candidates: int = Field(default=16, ge=2)
    """Replies sampled at each policy turn."""
    pairs: int = Field(default=4, ge=1)
    """Pairs a turn: one from the top half, one from the bottom half, at random."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the candidates."""
    conversations: int | None = Field(default=None, ge=1)
    """Conversations a task whose turns get candidates; null: all. Equal histories count once."""
    servers: tuple[str, str] | None = None
    """Addresses of two vLLM servers on this machine, of the critic and of the base, which then rank
    the candidates; null ranks them in this process."""
    critic: dict[str, Any] = Field(default_factory=dict)
    """What the critic's `fit` has otherwise than the recipe's."""

    @classmethod
    def from_args(cls, args: Mapping[str, Any], recipe: str) -> SweetArgs:
        """Return a recipe's args as settings. Raises TrainError if they are invalid."""
        return parse_settings(cls, args, f"recipe {recipe!r}: args")


def parse_settings(model: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """Return values as a model. Raises TrainError naming the first invalid one after `where`."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in (where, *first["loc"]))
        raise TrainError(f"{path}: {first['msg']}") from None


@dataclass(frozen=True)
class TrajectoryPairs:
    """Pairs (better, worse) of trajectories of one task: to train on, and held out."""

    selection: Selection
    items: tuple[tuple[LoggedConversation, LoggedConversation], ...]
    held: tuple[tuple[LoggedConversation, LoggedConversation], ...]
    skipped: dict[str, int] = field(default_factory=dict)
    ties: TieSummary | None = None
    """Tasks with several best conversations, with `select: best`."""

    def describe(self) -> Iterator[str]:
        """Yield lines that say how many pairs and ties there are."""
        yield f"{len(self.items)} pairs of trajectories, {len(self.held)} held out"
        if self.ties is not None:
            yield from self.ties.describe()


@dataclass(frozen=True, slots=True)
class CriticRow:
    """Token ids of a row, and for each the number of its policy turn (-1: not the policy's)."""

    ids: tuple[int, ...]
    turns: tuple[int, ...]


def trajectory_pairs(
    selection: Selection, settings: SweetArgs, rule: TieRule = "random", seed: int = 0
) -> TrajectoryPairs:
    """Return the pairs of equation (2); `rule` chooses among several best conversations. Raises
    TrainError if there are none to train on, or if a hidden field is missing."""
    tied = looked = 0
    items: list[tuple[LoggedConversation, LoggedConversation]] = []
    held: list[tuple[LoggedConversation, LoggedConversation]] = []
    skipped: Counter[str] = Counter()
    by_id = {item.conversation_id: item for item in selection.logged}
    for name, logged in selection.by_task().items():
        best = _best_conversations(logged, settings)
        looked += bool(best)
        tied += len(best) > 1
        pairs = _task_pairs(logged, settings, break_ties(best, rule, seed, name, "best"))
        if not pairs:
            skipped["tasks without a pair"] += 1
        (held if is_held(name, settings.held_out) else items).extend(pairs)
    if not items:
        raise TrainError(
            f"no pair of trajectories is left to train on ({skipped['tasks without a pair']} tasks "
            f"without one under select: {settings.select}); build more samples per task, or change "
            "args.top or args.gap"
        )
    for item in dict.fromkeys(side.conversation_id for pair in items for side in pair):
        hidden_text(by_id[item], settings)
    ties = TieSummary(rule, tied, looked) if settings.select == "best" else None
    return TrajectoryPairs(selection, tuple(items), tuple(held), dict(skipped), ties)


def _best_conversations(
    logged: Sequence[LoggedConversation], settings: SweetArgs
) -> list[LoggedConversation]:
    """Return a task's best conversations with `select: best`; none if they are all equal or below
    `top`."""
    rewards = [item.reward for item in logged]
    if settings.select != "best" or max(rewards) < settings.top - 1e-9:
        return []
    if min(rewards) == max(rewards):
        return []
    return [logged[i] for i in equal_indices(rewards, max(rewards))]


def _task_pairs(
    logged: Sequence[LoggedConversation], settings: SweetArgs, winners: Sequence[LoggedConversation]
) -> list[tuple[LoggedConversation, LoggedConversation]]:
    if settings.select == "gap":
        return [
            (a, b) for a in logged for b in logged if a.reward - b.reward >= settings.gap - 1e-12
        ]
    return [(best, item) for best in winners for item in logged if item.reward < best.reward]


def check_base(job: Job) -> None:
    """Raise TrainError without a finished critic in the job's folder, or if the base's weights are
    not those that it was trained from.

    The reference of stage 2 is the same model (equation (4)).
    """
    critic = job.folder / CRITIC
    trained = Checkpoint(critic)
    if not trained.is_finished:
        raise TrainError(f"{critic}: found no finished critic; `convbench train sweet` trains it")
    trained_from, current = trained.training.get("base_fingerprint"), content_hash(job.model)
    if trained_from != current:
        raise TrainError(
            f"{critic}: trained from weights {trained_from}, but {job.model} now holds {current}; "
            "expected the same base in both stages; restore the weights, or start again with "
            "--out DIR"
        )


def check_unquantized(job: Job) -> None:
    """Raise TrainError for a quantized base: the critic's adapter needs full weights."""
    lora = job.recipe.lora
    if lora is not None and lora.quantize != "none":
        raise TrainError(
            f"recipe {job.recipe.name!r}: found lora.quantize {lora.quantize!r}; the critic takes "
            "an adapter on unquantized weights; set lora.quantize=none"
        )


def is_held(task: str, share: float) -> bool:
    """Return True if a task is in the held-out share; it is the same on every machine."""
    number = int.from_bytes(hashlib.sha256(f"held/{task}".encode()).digest()[:6], "big")
    return number / 2**48 < share


def hidden_text(item: LoggedConversation, settings: SweetArgs) -> str:
    """Return the hidden text that the critic sees, "" if no field is hidden. Raises TrainError if a
    hidden field is missing."""
    missing = [name for name in settings.hidden if name not in item.example.hidden]
    if missing:
        raise TrainError(
            f"example {item.example.example_id}: found no hidden field {missing[0]!r}; it has "
            f"{sorted(item.example.hidden)}; name them with --set args.hidden='[...]'"
        )
    if not settings.hidden:
        return ""
    text = "\n".join(str(item.example.hidden[name]) for name in settings.hidden)
    return settings.wording.replace("{hidden}", text)


def with_hidden_text(seen: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the messages with the text put before the content of the first user message; unchanged
    without text or such a message."""
    out = list(seen)
    for index, message in enumerate(out):
        if text and message["role"] == "user":
            out[index] = {**message, "content": f"{text}{SEPARATOR}{message['content']}"}
            break
    return tuple(out)


def critic_rows(
    protocol: ProtocolSpec, item: LoggedConversation, chat: ChatTokens, settings: SweetArgs
) -> list[CriticRow]:
    """Return the rows of one trajectory as the critic (and its reference) reads them."""
    text = hidden_text(item, settings)
    turns = [
        PromptedReply(with_hidden_text(turn.messages, text), turn.reply)
        for turn in prompted_replies(protocol, item.conversation)
    ]
    return rows_by_turn(turns, chat, item.conversation.ended[:10])


def rows_by_turn(
    turns: Sequence[PromptedReply], chat: ChatTokens, day: str = ""
) -> list[CriticRow]:
    """Return the rows of replies, with the stretches of policy tokens numbered from 0 through all
    rows.

    A stretch is one turn, unless the template runs turns together. Other tokens have -1.
    """
    numbered = []
    number = -1
    for tokens in chat.token_rows(turns, day):
        marks = []
        was_policy = 0
        for is_policy in tokens.mask:
            number += is_policy and not was_policy
            marks.append(number if is_policy else -1)
            was_policy = is_policy
        numbered.append(CriticRow(tokens.ids, tuple(marks)))
    return numbered


ReplyKey = tuple[str, int, int]
"""(conversation_id, turn, rounds of tools before it) of a reply of the policy."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sampled reply with the critic's advantage."""

    reply: PolicyReply
    advantage: float


def ranked_pairs(
    candidates: Sequence[Candidate], count: int, rng: random.Random
) -> list[tuple[Candidate, Candidate]]:
    """Return `count` pairs (better, worse): one drawn from the upper half by advantage, one from
    the lower.

    A pair may come twice, and the middle one of an odd number is in neither half. Raise IndexError
    for fewer than two candidates.
    """
    order = sorted(candidates, key=lambda c: -c.advantage)
    half = len(order) // 2
    upper, lower = order[:half], order[len(order) - half :]
    return [(rng.choice(upper), rng.choice(lower)) for _ in range(count)]


def policy_pairs(
    selection: Selection,
    turns: Mapping[ReplyKey, Sequence[Candidate]],
    settings: SweetArgs,
    seed: int,
) -> Pairs:
    """Return stage 2's pairs: candidates of a turn under the messages that the policy saw, without
    hidden text. Raises TrainError if there are none."""
    protocol = selection.run.manifest.protocol
    by_id = {item.conversation_id: item for item in selection.logged}
    skipped: Counter[str] = Counter()
    items = []
    for (name, turn, rounds), candidates in turns.items():
        item = by_id.get(name)
        if item is None:
            skipped["turns of no train conversation"] += 1
            continue
        rng = random.Random(f"{seed}/{name}/{turn}" + (f".{rounds}" if rounds else ""))
        seen = tuple(seen_before(protocol, item.conversation, turn, rounds))
        for better, worse in ranked_pairs(candidates, settings.pairs, rng):
            if (
                better.reply.content_key == worse.reply.content_key
                or better.advantage == worse.advantage
            ):
                skipped["pairs of the same text or advantage"] += 1
                continue
            day = item.conversation.ended[:10]
            items.append(Pair(item.task, seen, better.reply, worse.reply, day))
    if not items:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise TrainError(
            f"no pair of candidates is left to train on ({why or 'no candidate'}); sample more per "
            "turn (args.candidates), or train the critic for longer (args.critic)"
        )
    return Pairs(selection, tuple(items), dict(skipped))
