"""Rewards to pairs of a better and a worse reply: pure functions."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench import prompts, views
from convbench.errors import TrainError
from convbench.learn.log import LoggedConversation
from convbench.learn.select import Selection
from convbench.learn.weights import TieSummary, break_ties, equal_indices
from convbench.rollout.candidates import CUT_REASONS
from convbench.schema import (
    Conversation,
    Message,
    ProtocolSpec,
    Reasoning,
    RunManifest,
    Sent,
    ToolCall,
    ToolRound,
    Turn,
    text_of,
)
from convbench.schema.protocol import Step
from convbench.schema.recipe import Pairing
from convbench.store.lazy_sequence import LazySequence

DEFAULT = Pairing()
ReplyPosition = tuple[int, int, int]
"""(turn of the better conversation, turn of the worse one, number of a reply in both turns)."""
ConversationPair = tuple[LoggedConversation, LoggedConversation]
"""The better and the worse conversation of a question."""


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """A reply of the policy; `cut` is true if the policy did not end it itself."""

    text: str
    cut: bool
    reasoning: Reasoning | None = None
    """Reasoning before it, in a channel of its own."""
    calls: tuple[ToolCall, ...] = ()
    """Its calls of tools."""
    raw: str | None = None
    """Its exact text, if its calls were written in the text."""

    @classmethod
    def last_of(cls, turn: Turn) -> PolicyReply:
        """Return the last reply of a turn, its text and reasoning, without calls."""
        return cls(text_of(turn.content), turn.finish_reason in CUT_REASONS, turn.reasoning)

    @classmethod
    def all_of(cls, turn: Turn) -> list[PolicyReply]:
        """Return the replies of a turn: those that called tools, then the last, unless the turn
        ended with calls alone."""
        calling = [cls(r.content, False, r.reasoning, r.calls, r.raw) for r in turn.rounds]
        return calling if turn.calls_alone else [*calling, cls.last_of(turn)]

    @property
    def content_key(self) -> tuple[str, list[Any]]:
        """The text, and name and arguments of each call without its id: equal for replies of the
        same content.

        Arguments that are valid JSON are compared as values.
        """
        return self.text, [(call.name, _parse_arguments(call.arguments)) for call in self.calls]


def _parse_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


@dataclass(frozen=True, slots=True)
class Pair:
    """A better and a worse reply to the same messages."""

    task: str
    messages: tuple[Message, ...]
    chosen: PolicyReply
    rejected: PolicyReply
    date: str = ""
    """ISO date of the chosen conversation, for templates that show the date."""
    run: str = ""
    """Id of the run that holds the chosen conversation."""


class LazyPairs(LazySequence[Pair]):
    """Pairs that are built at each access, from (better conversation, worse conversation, turn of
    the better, turn of the worse, number of the reply)."""

    def __init__(
        self, make: Callable[[LoggedConversation, LoggedConversation, int, int, int], Pair]
    ) -> None:
        self._make = make
        self.positions: list[tuple[LoggedConversation, LoggedConversation, int, int, int]] = []

    def __len__(self) -> int:
        return len(self.positions)

    def _make_item(self, at: int) -> Pair:
        return self._make(*self.positions[at])


@dataclass(frozen=True)
class Pairs:
    """Pairs, and counts of what was left out, by reason."""

    selection: Selection
    items: Sequence[Pair]
    skipped: dict[str, int] = field(default_factory=dict)
    ties: TieSummary | None = None
    """Tasks with several best or worst conversations; None for pairs that are not chosen so."""


def best_and_worst(
    selection: Selection, pairing: Pairing, seed: int = 0
) -> tuple[list[ConversationPair], Counter[str], TieSummary]:
    """Return ((best, worst) of every task whose rewards differ by more than `pairing.min_gap`,
    counts of what was left out, summary of ties). With `ties: all` a task may give several."""
    couples: list[ConversationPair] = []
    skipped: Counter[str] = Counter()
    tied = looked = 0
    for task, logged in selection.by_task().items():
        rewards = [item.reward for item in logged]
        if len(logged) < 2:
            skipped["tasks with fewer than 2 verdicts"] += 1
        elif max(rewards) - min(rewards) <= pairing.min_gap:
            skipped["tasks without a difference in reward"] += 1
        else:
            looked += 1
            sides = {
                "best": equal_indices(rewards, max(rewards)),
                "worst": equal_indices(rewards, min(rewards)),
            }
            tied += any(len(places) > 1 for places in sides.values())
            winners, losers = (
                break_ties(places, pairing.ties, seed, task, side) for side, places in sides.items()
            )
            if not winners or not losers:
                skipped["tasks with several best or worst conversations"] += 1
            for winner, loser in itertools.product(winners, losers):
                couples.append((logged[winner], logged[loser]))
    return couples, skipped, TieSummary(pairing.ties, tied, looked)


def final_replies(
    selection: Selection, direct: ProtocolSpec | None, pairing: Pairing = DEFAULT, seed: int = 0
) -> Pairs:
    """Return DPO's pairs: final replies of the best and worst conversation of a task, under the
    prompt of protocol `direct`.

    Without a protocol (imported conversations have no task to render) the prompt is the winner's
    messages before its policy's first turn. If tools were called, the pair is made of the first
    replies of the final turns that differ. Pairs of the same text are left out. Raise TrainError if
    no pair is left, or if the protocol offers other tools than the run's.
    """
    for part in selection.parts or (selection,):
        if direct is not None and part.run.manifest.kind != "import":
            _check_tools(part.run.manifest, direct)
    couples, skipped, ties = best_and_worst(selection, pairing, seed)

    def prompt_messages(
        manifest: RunManifest, winner: LoggedConversation, turn: int
    ) -> Sequence[Message]:
        if direct is None or manifest.kind == "import":
            return opening_messages(manifest, winner)
        return first_messages(manifest, direct, winner)

    def reply_positions(
        protocol: ProtocolSpec, winner: LoggedConversation, loser: LoggedConversation
    ) -> Iterator[ReplyPosition]:
        better_turn, worse_turn = (
            _last_turn(protocol, item.conversation) for item in (winner, loser)
        )
        return _first_difference(winner, better_turn, loser, worse_turn, skipped)

    return _make_pairs(selection, couples, reply_positions, prompt_messages, skipped, ties)


def logged_turns(selection: Selection, pairing: Pairing = DEFAULT, seed: int = 0) -> Pairs:
    """Return StepDPO's pairs from the log: at each turn the winner's reply against the loser's,
    under the winner's history.

    Winner and loser are a task's best and worst conversation. The t-th policy turns are paired, and
    in them the n-th replies; what the other lacks, and pairs of the same text, are left out. Raise
    TrainError if no pair is left.
    """
    couples, skipped, ties = best_and_worst(selection, pairing, seed)

    def reply_positions(
        protocol: ProtocolSpec, winner: LoggedConversation, loser: LoggedConversation
    ) -> Iterator[ReplyPosition]:
        turns = zip(
            *(views.policy_turns(protocol, i.conversation) for i in (winner, loser)), strict=False
        )
        for better_turn, worse_turn in turns:
            turn_pair = winner.conversation.turns[better_turn], loser.conversation.turns[worse_turn]
            for reply in range(min(turn.reply_count for turn in turn_pair)):
                yield better_turn, worse_turn, reply

    return _make_pairs(selection, couples, reply_positions, _history_messages, skipped, ties)


def opening_messages(manifest: RunManifest, item: LoggedConversation) -> list[Message]:
    """Return the messages before the policy's first turn in the logged conversation."""
    protocol = manifest.protocol
    first = views.policy_turns(protocol, item.conversation)[0]
    return views.messages_before(protocol, item.conversation, protocol.policy, first)


def first_messages(
    manifest: RunManifest, protocol: ProtocolSpec, item: LoggedConversation
) -> list[Message]:
    """Return the messages before the policy's first turn in another protocol, e.g. `direct`.

    Raises TrainError if another model speaks before the policy there."""
    prompts.refuse_absent_choices(
        manifest.task,
        protocol,
        manifest.mode,
        [item.example],
        "--set pairing.protocol=chat --set eval_protocol=chat",
    )
    values = prompts.template_fields(item.example, manifest.task, manifest.mode, 1)
    policy = protocol.policy
    system = prompts.system_prompt(manifest.task, protocol, policy, manifest.mode, values)
    turns: list[Turn] = []
    for step in protocol.steps:
        if not isinstance(step, Step):
            break
        text = prompts.step_text(manifest.task, protocol, step, manifest.mode, values)
        if step.speaker == policy:
            turns.append(Turn(speaker=policy, step=step.id, content="", instruction=text))
            break
        if text is None:
            break
        turns.append(Turn(speaker=step.speaker, step=step.id, content=text))
    if not turns or turns[-1].speaker != policy:
        raise TrainError(
            f"protocol {protocol.name!r}: another model speaks before the policy; expected "
            "scripted turns only, as in `direct`"
        )
    opening_conversation = item.conversation.model_copy(
        update={"systems": {policy: system} if system else {}, "turns": tuple(turns)}
    )
    return views.messages_before(protocol, opening_conversation, policy, len(turns) - 1)


def _check_tools(manifest: RunManifest, direct: ProtocolSpec) -> None:
    """Raise TrainError if the protocol offers other tools than those the replies rest on."""
    protocol = manifest.protocol
    tools, offered = (spec.speakers[spec.policy].tools for spec in (protocol, direct))
    if tools != offered:
        raise TrainError(
            f"protocol {direct.name!r}: offers the policy other tools than the run's protocol "
            f"{protocol.name!r}, on which its replies rest; expected the same; take "
            f"--set pairing.protocol={protocol.name} --set eval_protocol={protocol.name}, or the "
            "recipe step-dpo"
        )


def _last_turn(protocol: ProtocolSpec, conversation: Conversation) -> int:
    return views.policy_turns(protocol, conversation)[-1]


def _history_messages(
    manifest: RunManifest, winner: LoggedConversation, turn: int
) -> list[Message]:
    """Return the messages before a policy turn of the winner."""
    protocol = manifest.protocol
    return views.messages_before(protocol, winner.conversation, protocol.policy, turn)


def _first_difference(
    winner: LoggedConversation,
    better_turn: int,
    loser: LoggedConversation,
    worse_turn: int,
    skipped: Counter[str],
) -> Iterator[ReplyPosition]:
    """Yield the position of the first reply that differs between two turns. Yield nothing if a tool
    returned different results for the same calls: later replies are not comparable."""
    turn, other = winner.conversation.turns[better_turn], loser.conversation.turns[worse_turn]
    replies = zip(PolicyReply.all_of(turn), PolicyReply.all_of(other), strict=False)
    for number, (chosen, rejected) in enumerate(replies):
        ends = number in (len(turn.rounds), len(other.rounds))
        if ends or chosen.content_key != rejected.content_key:
            yield better_turn, worse_turn, number
            return
        results = ([r.content for r in t.rounds[number].results] for t in (turn, other))
        if len(set(map(tuple, results))) > 1:
            skipped["pairs whose tools returned different results for the same calls"] += 1
            return


def _make_pairs(
    selection: Selection,
    couples: Sequence[ConversationPair],
    reply_positions: Callable[
        [ProtocolSpec, LoggedConversation, LoggedConversation], Iterator[ReplyPosition]
    ],
    prompt_messages: Callable[[RunManifest, LoggedConversation, int], Sequence[Message]],
    skipped: Counter[str],
    ties: TieSummary | None = None,
) -> Pairs:
    """Return the pairs of replies at the positions of two conversations, under the prompt, each
    built when it is accessed. Pairs of the same text are left out. Raises TrainError if no pair is
    left, or if a run gives no prompt."""

    def make_pair(
        winner: LoggedConversation,
        loser: LoggedConversation,
        better_turn: int,
        worse_turn: int,
        reply: int,
    ) -> Pair:
        manifest = selection.run_of(winner).manifest
        turn, other = winner.conversation.turns[better_turn], loser.conversation.turns[worse_turn]
        chosen, rejected = PolicyReply.all_of(turn)[reply], PolicyReply.all_of(other)[reply]
        prompt = prompt_messages(manifest, winner, better_turn)
        return _build_pair(manifest, prompt, winner, turn.rounds[:reply], chosen, rejected)

    items = LazyPairs(make_pair)
    tried: set[str] = set()
    for winner, loser in couples:
        run = selection.run_of(winner).manifest
        for better_turn, worse_turn, reply in reply_positions(run.protocol, winner, loser):
            turns = winner.conversation.turns[better_turn], loser.conversation.turns[worse_turn]
            chosen, rejected = (PolicyReply.all_of(turn)[reply].content_key for turn in turns)
            if chosen == rejected:
                skipped["pairs of the same text"] += 1
                continue
            items.positions.append((winner, loser, better_turn, worse_turn, reply))
            if run.id not in tried:  # a run without a prompt is refused before training
                tried.add(run.id)
                make_pair(winner, loser, better_turn, worse_turn, reply)
    if not items:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise TrainError(f"no pair is left to train on ({why}); build more samples per task")
    return Pairs(selection, items, dict(skipped), ties)


def _build_pair(
    manifest: RunManifest,
    prompt: Sequence[Message],
    winner: LoggedConversation,
    rounds: Sequence[ToolRound],
    chosen: PolicyReply,
    rejected: PolicyReply,
) -> Pair:
    """Return the pair of two replies to the prompt and the rounds of tools after it."""
    replay = winner.conversation.sent.get(manifest.protocol.policy, Sent()).replay
    seen = (*prompt, *views.tool_messages(rounds, replay))
    date = winner.conversation.ended[:10]
    return Pair(winner.task, seen, chosen, rejected, date, manifest.id)
