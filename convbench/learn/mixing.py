"""Apply `data.mix` and `data.unrewarded`: repeat items by run, add items without a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from convbench.errors import TrainError
from convbench.learn.logged import LoggedConversation
from convbench.learn.pairs import Pairs
from convbench.learn.select import Selection, name_hash
from convbench.learn.weights import Weighted
from convbench.schema.recipe import Data

T = TypeVar("T")


def apply_mix(trainer_data: object, data: Data, own_loss: bool) -> object:
    """Return a trainer's data with `data.mix` and `data.unrewarded` applied.

    `own_loss`: the trainer's loss is not that of weighted rows. Raises TrainError if the trainer
    cannot learn from such data.
    """
    if isinstance(trainer_data, Weighted):
        return _mix_conversations(_with_unrewarded(trainer_data, data, own_loss), data.mix)
    if data.unrewarded != "drop":
        raise TrainError(
            "data.unrewarded: found sft, and pairs need rewards; expected drop, or a learner of "
            "weighted rows, as swift"
        )
    if not data.mix:
        return trainer_data
    if not isinstance(trainer_data, Pairs):
        raise TrainError("data.mix: this learner takes no mix; expected none")
    places = run_positions(trainer_data.selection)
    items = repeat_by_share(
        trainer_data.items, data.mix, lambda pair: places[pair.run], lambda pair: pair.task
    )
    return replace(trainer_data, items=tuple(items))


def _with_unrewarded(weighted: Weighted, data: Data, own_loss: bool) -> Weighted:
    """Return the weighted conversations, followed by those without a reward."""
    unrewarded = weighted.selection.unrewarded
    if not unrewarded:
        return weighted
    if own_loss:
        raise TrainError(
            f"data.unrewarded: found sft for {len(unrewarded)} conversations, which this "
            "learner's own "
            "loss has no place for; expected drop, or a learner of weighted rows, as swift"
        )
    return replace(
        weighted,
        items=(*weighted.items, *((item, data.unrewarded_weight) for item in unrewarded)),
        unrewarded_ids=frozenset(item.conversation_id for item in unrewarded),
    )


def _mix_conversations(weighted: Weighted, mix: Sequence[float]) -> Weighted:
    if not mix:
        return weighted
    selection = weighted.selection
    places = run_positions(selection)
    items = repeat_by_share(
        weighted.items,
        mix,
        lambda item: places[selection.run_of(item[0]).manifest.id],
        lambda item: _task_of(item[0]),
    )
    return replace(weighted, items=tuple(items))


def _task_of(item: LoggedConversation) -> str:
    return item.task


def run_positions(selection: Selection) -> dict[str, int]:
    """Return each run's position in the log by its id."""
    runs = [part.run for part in selection.parts] or [selection.run]
    return {run.manifest.id: position for position, run in enumerate(runs)}


def repeat_by_share(
    items: Sequence[T],
    mix: Sequence[float],
    position: Callable[[T], int],
    task: Callable[[T], str],
) -> list[T]:
    """Return every item repeated by its run's share: with 2.5 the items of each question twice, and
    those of half of the questions once more, by a hash of their names. Raises TrainError if none is
    left."""
    copies = []
    for item in items:
        share = mix[position(item)]
        is_extra = int.from_bytes(name_hash(task(item))[:8]) / 2**64 < share % 1
        copies += [item] * (int(share) + is_extra)
    if not copies:
        raise TrainError("data.mix: nothing is left to train on; raise a share")
    return copies
