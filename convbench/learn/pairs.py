"""Rewards to pairs of a better and a worse reply to the same messages."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench import prompts, views
from convbench.errors import TrainError
from convbench.formats.values import parsed
from convbench.learn.select import Logged, Selection
from convbench.learn.weights import Ties, break_ties, equal_indices
from convbench.rollout.candidates import CUT_REASONS
from convbench.rollout.plan import seen_before
from convbench.schema import Message, ProtocolSpec, Reasoning, Sent, ToolCall, Turn, text_of
from convbench.schema.protocol import Step
from convbench.schema.recipe import Pairing


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the policy; `cut` is true if the policy did not end it itself."""

    text: str
    cut: bool
    reasoning: Reasoning | None = None
    """Reasoning before it, in a channel of its own."""
    calls: tuple[ToolCall, ...] = ()
    """Its calls of tools."""
    raw: str | None = None
    """Its exact text, if its calls were written in the text."""

    @property
    def content_key(self) -> tuple[str, list[Any]]:
        """The text, and name and arguments of each call: equal for replies of the same content."""
        return self.text, [(call.name, parsed(call.arguments)) for call in self.calls]


@dataclass(frozen=True, slots=True)
class Pair:
    """A better and a worse reply to the same messages."""

    item: Logged
    """The conversation of the chosen reply."""
    messages: tuple[Message, ...]
    chosen: Reply
    rejected: Reply


@dataclass(frozen=True)
class Pairs:
    """Pairs, and counts of what was left out, by reason."""

    selection: Selection
    items: Sequence[Pair]
    left_out: dict[str, int] = field(default_factory=dict)
    ties: Ties | None = None
    """Tasks with several best or worst conversations; None for pairs that are not chosen so."""


def replies_of(turn: Turn) -> list[Reply]:
    """Return the replies of a turn: those that called tools, then the last, unless the turn ended
    with calls alone."""
    calling = [Reply(r.content, False, r.reasoning, r.calls, r.raw) for r in turn.rounds]
    if turn.calls_alone:
        return calling
    cut = turn.finish_reason in CUT_REASONS
    return [*calling, Reply(text_of(turn.content), cut, turn.reasoning)]


def pair(
    selection: Selection, pairing: Pairing, direct: ProtocolSpec | None = None, seed: int = 0
) -> Pairs:
    """Return pairs of replies of each task's best and worst conversation.

    With `replies: final` it is their last ones, under the first prompt of protocol `direct`, or of
    the better conversation itself without one; if tools were called, the first replies of the final
    turns that differ. With `replies: turns` it is the t-th turn's n-th replies of both, under the
    better one's history. Pairs of the same text are left out. Raise TrainError if no pair is left,
    or if `direct` offers other tools than a run's protocol.
    """
    left_out: Counter[str] = Counter()
    couples, ties = _best_and_worst(selection, pairing, left_out, seed)
    items, final = [], pairing.replies == "final"
    for winner, loser in couples:
        talk = winner.conversation
        both = [views.own_turns(item.protocol, item.conversation) for item in (winner, loser)]
        for better, worse in [(both[0][-1], both[1][-1])] if final else zip(*both, strict=False):
            turn, other = talk.turns[better], loser.conversation.turns[worse]
            all_of = range(min(turn.reply_count, other.reply_count))
            for number in _first_different(turn, other, left_out) if final else all_of:
                chosen, rejected = replies_of(turn)[number], replies_of(other)[number]
                if chosen.content_key == rejected.content_key:
                    left_out["pairs of the same text"] += 1
                    continue
                if final:
                    replay = talk.sent.get(winner.protocol.policy, Sent()).replay
                    done = views.tool_messages(turn.rounds[:number], replay)
                    seen = _opening(winner, direct) + done
                else:
                    seen = seen_before(winner.protocol, talk, better, number)
                items.append(Pair(winner, tuple(seen), chosen, rejected))
    if not items:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise TrainError(f"no pair is left to train on ({why}); build more samples per task")
    return Pairs(selection, items, dict(left_out), ties)


def _best_and_worst(
    selection: Selection, pairing: Pairing, left_out: Counter[str], seed: int
) -> tuple[list[tuple[Logged, Logged]], Ties]:
    """Return (best, worst) of every task whose rewards differ by more than `pairing.min_gap`."""
    couples: list[tuple[Logged, Logged]] = []
    tied = looked = 0
    for task, logged in selection.by_task().items():
        rewards = [item.reward for item in logged]
        if len(logged) < 2:
            left_out["tasks with fewer than 2 verdicts"] += 1
            continue
        if max(rewards) - min(rewards) <= pairing.min_gap:
            left_out["tasks without a difference in reward"] += 1
            continue
        looked += 1
        best, worst = (equal_indices(rewards, end(rewards)) for end in (max, min))
        tied += len(best) > 1 or len(worst) > 1
        best = break_ties(best, pairing.ties, seed, task, "best")
        worst = break_ties(worst, pairing.ties, seed, task, "worst")
        left_out["tasks with several best or worst conversations"] += not (best and worst)
        couples += [(logged[a], logged[b]) for a, b in itertools.product(best, worst)]
    left_out += Counter()
    return couples, Ties(pairing.ties, tied, looked)


def _first_different(turn: Turn, other: Turn, left_out: Counter[str]) -> Iterator[int]:
    """Yield the number of the first reply that differs between two turns. Yield nothing if a tool
    returned different results for the same calls: later replies are not comparable."""
    both = zip(replies_of(turn), replies_of(other), strict=False)
    for number, (chosen, rejected) in enumerate(both):
        is_last = number in (len(turn.rounds), len(other.rounds))
        if is_last or chosen.content_key != rejected.content_key:
            yield number
            return
        results = ([r.content for r in t.rounds[number].results] for t in (turn, other))
        if len(set(map(tuple, results))) > 1:
            left_out["pairs whose tools returned different results for the same calls"] += 1
            return


def _opening(winner: Logged, direct: ProtocolSpec | None) -> list[Message]:
    """Return the messages before the policy's first turn, under protocol `direct` if it is given
    and the run has a task to render."""
    protocol, talk = winner.protocol, winner.conversation
    if direct is None or winner.run.manifest.kind == "import":
        return seen_before(protocol, talk, views.policy_turns(protocol, talk)[0])
    tools, offered = (spec.speakers[spec.policy].tools for spec in (protocol, direct))
    if tools != offered:
        raise TrainError(
            f"protocol {direct.name!r}: offers the policy other tools than the run's protocol "
            f"{protocol.name!r}, on which its replies rest; expected the same; take "
            f"--set pairing.protocol={protocol.name} --set eval_protocol={protocol.name}, or the "
            "recipe step-dpo"
        )
    return first_messages(winner, direct)


def first_messages(item: Logged, protocol: ProtocolSpec) -> list[Message]:
    """Return the messages before the policy's first turn in another protocol, e.g. `direct`.

    Raises TrainError if another model speaks before the policy there."""
    manifest, example = item.run.manifest, item.example
    task, mode, policy = manifest.task, manifest.mode, protocol.policy
    prompts.refuse_absent_choices(
        task, protocol, mode, [example], "--set pairing.protocol=chat --set eval_protocol=chat"
    )
    values = prompts.template_fields(example, task, mode, 1)
    system = prompts.system_prompt(task, protocol, policy, mode, values)
    turns: list[Turn] = []
    for step in protocol.steps:
        if not isinstance(step, Step):
            break
        text = prompts.step_text(task, protocol, step, mode, values)
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
    opening = item.conversation.model_copy(
        update={"systems": {policy: system} if system else {}, "turns": tuple(turns)}
    )
    return views.messages_before(protocol, opening, policy, len(turns) - 1)
