"""Apply `data.mix` and `data.unrewarded`: repeat items by run, add items without a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from convbench.errors import TrainError
from convbench.learn.logged import Logged
from convbench.learn.pairs import Pairs
from convbench.learn.select import Selection, hashed
from convbench.learn.weights import Weighted
from convbench.schema.recipe import Data

T = TypeVar("T")


def completed(learnt: object, data: Data, own_loss: bool) -> object:
    """Return a trainer's data with `data.mix` and `data.unrewarded` applied.

    `own_loss`: the trainer's loss is not that of weighted rows. Raises TrainError if the trainer
    cannot learn from such data.
    """
    if isinstance(learnt, Weighted):
        return _mixed(_with_unrewarded(learnt, data, own_loss), data.mix)
    if data.unrewarded != "drop":
        raise TrainError(
            "data.unrewarded: found sft, and pairs need rewards; expected drop, or a learner of "
            "weighted rows, as swift"
        )
    if not data.mix:
        return learnt
    if not isinstance(learnt, Pairs):
        raise TrainError("data.mix: this learner takes no mix; expected none")
    places = places_of(learnt.selection)
    items = repeated(learnt.items, data.mix, lambda pair: places[pair.run], lambda pair: pair.task)
    return replace(learnt, items=tuple(items))


def _with_unrewarded(weighted: Weighted, data: Data, own_loss: bool) -> Weighted:
    """Return the weighted conversations, followed by those without a reward."""
    bare = weighted.selection.unrewarded
    if not bare:
        return weighted
    if own_loss:
        raise TrainError(
            f"data.unrewarded: found sft for {len(bare)} conversations, which this learner's own "
            "loss has no place for; expected drop, or a learner of weighted rows, as swift"
        )
    return replace(
        weighted,
        items=(*weighted.items, *((item, data.unrewarded_weight) for item in bare)),
        plain=frozenset(item.conversation_id for item in bare),
    )


def _mixed(weighted: Weighted, mix: Sequence[float]) -> Weighted:
    if not mix:
        return weighted
    selection = weighted.selection
    places = places_of(selection)
    items = repeated(
        weighted.items,
        mix,
        lambda item: places[selection.run_of(item[0]).manifest.id],
        lambda item: _task(item[0]),
    )
    return replace(weighted, items=tuple(items))


def _task(item: Logged) -> str:
    return item.task


def places_of(selection: Selection) -> dict[str, int]:
    """Return each run's position in the log by its id."""
    runs = [part.run for part in selection.parts] or [selection.run]
    return {run.manifest.id: place for place, run in enumerate(runs)}


def repeated(
    items: Sequence[T],
    mix: Sequence[float],
    place: Callable[[T], int],
    task: Callable[[T], str],
) -> list[T]:
    """Return every item repeated by its run's share: with 2.5 the items of each question twice, and
    those of half of the questions once more, by a hash of their names. Raises TrainError if none is
    left."""
    found = []
    for item in items:
        share = mix[place(item)]
        more = int.from_bytes(hashed(task(item))[:8]) / 2**64 < share % 1
        found += [item] * (int(share) + more)
    if not found:
        raise TrainError("data.mix: nothing is left to train on; raise a share")
    return found
