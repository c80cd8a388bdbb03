"""Rewards to pairs of a better and a worse reply: pure functions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench import prompts, views
from convbench.errors import TrainError
from convbench.learn.logged import Logged
from convbench.learn.select import Selection
from convbench.learn.ties import Ties, equals, settle
from convbench.rollout.candidates import CUT
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

DEFAULT = Pairing()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy said; `cut` where it did not end it by itself."""

    text: str
    cut: bool
    reasoning: Reasoning | None = None
    """What it thought before it, in a channel of its own."""
    calls: tuple[ToolCall, ...] = ()
    """What it called of tools."""
    raw: str | None = None
    """What it wrote word for word, where its calls stood in its text."""

    @classmethod
    def of(cls, turn: Turn) -> Reply:
        """The last reply of a turn."""
        return cls(text_of(turn.content), turn.finish_reason in CUT, turn.reasoning)

    @classmethod
    def all_of(cls, turn: Turn) -> list[Reply]:
        """The replies of a turn: those that called tools, then the last."""
        calling = [cls(r.content, False, r.reasoning, r.calls, r.raw) for r in turn.rounds]
        return [*calling, cls.of(turn)]

    @property
    def said(self) -> tuple[str, list[Any]]:
        """What tells it from others: its text and its calls, whatever their ids."""
        return self.text, [(call.name, _read(call.arguments)) for call in self.calls]


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


@dataclass(frozen=True, slots=True)
class Pair:
    """Two replies to the same messages."""

    task: str
    messages: tuple[Message, ...]
    chosen: Reply
    rejected: Reply
    date: str = ""
    """Date of the chosen conversation, ISO, for templates that tell it."""
    run: str = ""
    """Id of the run that holds the chosen conversation."""


@dataclass(frozen=True)
class Pairs:
    """Pairs, and what was left out."""

    selection: Selection
    items: tuple[Pair, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    ties: Ties | None = None
    """Tasks with several best or worst conversations, where one of each is wanted."""


def extremes(
    selection: Selection, pairing: Pairing, seed: int = 0
) -> tuple[list[tuple[Logged, Logged]], Counter[str], Ties]:
    """Return (best, worst) of every task whose rewards differ by more than `pairing.min_gap`,
    several of a task with `ties: all`; what was left out; and how many tasks were tied."""
    found: list[tuple[Logged, Logged]] = []
    skipped: Counter[str] = Counter()
    tied = looked = 0
    for task, logged in selection.tasks().items():
        rewards = [item.reward for item in logged]
        if len(logged) < 2:
            skipped["tasks with fewer than 2 verdicts"] += 1
        elif max(rewards) - min(rewards) <= pairing.min_gap:
            skipped["tasks without a difference in reward"] += 1
        else:
            looked += 1
            sides = {"best": equals(rewards, max(rewards)), "worst": equals(rewards, min(rewards))}
            tied += any(len(places) > 1 for places in sides.values())
            winners, losers = (
                settle(places, pairing.ties, seed, task, side) for side, places in sides.items()
            )
            if not winners or not losers:
                skipped["tasks with several best or worst conversations"] += 1
            found += [(logged[one], logged[other]) for one in winners for other in losers]
    return found, skipped, Ties(pairing.ties, tied, looked)


def final_replies(
    selection: Selection, direct: ProtocolSpec | None, pairing: Pairing = DEFAULT, seed: int = 0
) -> Pairs:
    """DPO: final replies of the best and worst conversation, under `direct`'s own prompt.

    Without a protocol (imported conversations have no task to render) the prompt is what the
    winner's policy was first asked. Where tools were called, the pair is of the first replies in
    which the final turns part, for later ones rest on results that are not the other's.
    """
    for part in selection.parts or (selection,):
        if direct is not None and part.run.manifest.kind != "import":
            _check_tools(part.run.manifest, direct)
    found, skipped, ties = extremes(selection, pairing, seed)
    items: list[Pair] = []
    for winner, loser in found:
        manifest = selection.run_of(winner).manifest
        if direct is None or manifest.kind == "import":
            asked = opening(manifest, winner)
        else:
            asked = first_messages(manifest, direct, winner)
        mine, theirs = (_last(manifest.protocol, item.conversation) for item in (winner, loser))
        items += _parting(manifest, asked, winner, mine, loser, theirs, skipped)
    return _told_apart(selection, items, skipped, ties)


def logged_turns(selection: Selection, pairing: Pairing = DEFAULT, seed: int = 0) -> Pairs:
    """StepDPO from the log: at each turn the winner's reply against the loser's, under the
    winner's history; winner and loser by trajectory reward. Of turns that called tools, each reply
    counts: the winner's n-th against the loser's n-th."""
    found, skipped, ties = extremes(selection, pairing, seed)
    items: list[Pair] = []
    for winner, loser in found:
        manifest = selection.run_of(winner).manifest
        protocol = manifest.protocol
        turns = zip(*(views.policy_turns(protocol, i.conversation) for i in (winner, loser)),
                    strict=False)  # fmt: skip
        for mine, theirs in turns:
            items += _replies(manifest, winner, mine, loser, theirs)
    return _told_apart(selection, items, skipped, ties)


def branched_turns(selection: Selection, branches: Selection, min_gap: float = 0.0) -> Pairs:
    """StepDPO as Chen et al. (2025): a branch left its parent at one turn and was judged.

    The two share the history before that turn; the higher trajectory reward wins. Where the turn
    called tools, the pair is of the first replies in which they part.
    """
    manifest = selection.run.manifest
    protocol = manifest.protocol
    parents = {item.conversation_id: item for item in selection.logged}
    skipped = Counter(branches.skipped)
    items: list[Pair] = []
    for branch in branches.logged:
        left = branch.conversation.branch
        parent = parents.get(left.parent) if left else None
        if left is None or parent is None:
            skipped["branches of no train conversation"] += 1
        elif abs(branch.reward - parent.reward) <= min_gap:
            skipped["branches without a difference in reward"] += 1
        else:
            winner, loser = sorted((branch, parent), key=lambda item: -item.reward)
            asked = views.messages(protocol, winner.conversation, protocol.policy, left.turn)
            items += _parting(manifest, asked, winner, left.turn, loser, left.turn, skipped)
    return _told_apart(selection, items, skipped)


def opening(manifest: RunManifest, item: Logged) -> list[Message]:
    """Return the messages before the policy's first turn of the conversation itself."""
    protocol = manifest.protocol
    first = views.policy_turns(protocol, item.conversation)[0]
    return views.messages(protocol, item.conversation, protocol.policy, first)


def first_messages(manifest: RunManifest, protocol: ProtocolSpec, item: Logged) -> list[Message]:
    """Return the messages before the policy's first turn of another protocol, e.g. `direct`."""
    values = prompts.fields(item.example, manifest.task, manifest.mode, 1)
    policy = protocol.policy
    system = prompts.system(manifest.task, protocol, policy, manifest.mode, values)
    turns: list[Turn] = []
    for step in protocol.steps:
        if not isinstance(step, Step):
            break
        text = prompts.step(manifest.task, protocol, step, manifest.mode, values)
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
    bare = item.conversation.model_copy(
        update={"systems": {policy: system} if system else {}, "turns": tuple(turns)}
    )
    return views.messages(protocol, bare, policy, len(turns) - 1)


def _check_tools(manifest: RunManifest, direct: ProtocolSpec) -> None:
    """Refuse a prompt without the tools that the replies rest on; TrainError."""
    protocol = manifest.protocol
    tools, there = (one.speakers[one.policy].tools for one in (protocol, direct))
    if tools != there:
        raise TrainError(
            f"protocol {direct.name!r}: offers the policy other tools than the run's protocol "
            f"{protocol.name!r}, on which its replies rest; expected the same; take "
            f"--set pairing.protocol={protocol.name} --set eval_protocol={protocol.name}, or the "
            "recipe step-dpo"
        )


def _last(protocol: ProtocolSpec, conversation: Conversation) -> int:
    return views.policy_turns(protocol, conversation)[-1]


def _replies(
    manifest: RunManifest, winner: Logged, mine: int, loser: Logged, theirs: int
) -> Iterator[Pair]:
    """Yield the replies of the winner's turn `mine` against those of the loser's turn `theirs`,
    under the winner's history."""
    protocol = manifest.protocol
    asked = views.messages(protocol, winner.conversation, protocol.policy, mine)
    turn, other = winner.conversation.turns[mine], loser.conversation.turns[theirs]
    for number, (chosen, rejected) in enumerate(
        zip(Reply.all_of(turn), Reply.all_of(other), strict=False)
    ):
        yield _pair(manifest, asked, winner, turn.rounds[:number], chosen, rejected)


def _parting(
    manifest: RunManifest,
    asked: Sequence[Message],
    winner: Logged,
    mine: int,
    loser: Logged,
    theirs: int,
    skipped: Counter[str],
) -> Iterator[Pair]:
    """Yield the first replies in which two turns part, under what both saw before them; none where
    a tool told them different things of the same call."""
    turn, other = winner.conversation.turns[mine], loser.conversation.turns[theirs]
    replies = zip(Reply.all_of(turn), Reply.all_of(other), strict=False)
    for number, (chosen, rejected) in enumerate(replies):
        ends = number in (len(turn.rounds), len(other.rounds))
        if ends or chosen.said != rejected.said:
            yield _pair(manifest, asked, winner, turn.rounds[:number], chosen, rejected)
            return
        told = ([r.content for r in t.rounds[number].results] for t in (turn, other))
        if len(set(map(tuple, told))) > 1:
            skipped["pairs whose tools told different things of the same calls"] += 1
            return


def _pair(
    manifest: RunManifest,
    asked: Sequence[Message],
    winner: Logged,
    rounds: Sequence[ToolRound],
    chosen: Reply,
    rejected: Reply,
) -> Pair:
    """Two replies to what was asked and the rounds of tools after it."""
    replay = winner.conversation.sent.get(manifest.protocol.policy, Sent()).replay
    seen = (*asked, *views.called(rounds, replay))
    date = winner.conversation.ended[:10]
    return Pair(winner.task, seen, chosen, rejected, date, manifest.id)


def _told_apart(
    selection: Selection, pairs: Sequence[Pair], skipped: Counter[str], ties: Ties | None = None
) -> Pairs:
    """Leave out pairs of the same text; TrainError where no other is left."""
    items = tuple(pair for pair in pairs if pair.chosen.said != pair.rejected.said)
    if len(items) < len(pairs):
        skipped["pairs of the same text"] += len(pairs) - len(items)
    if not items:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise TrainError(f"no pair is left to train on ({why}); build more samples a task")
    return Pairs(selection, items, dict(skipped), ties)
