"""Cards of the engines that run at the same time on this machine: copies of each, and shares of a
card. What does not fit is refused here, before anything is started or paid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convbench.errors import FatalModelError
from convbench.models.devices import GB, Device, Placement, list_devices
from convbench.models.engine_memory import (
    LOCAL_ENGINE_BYTES,
    USABLE,
    EngineMemory,
    engine_memory,
    place_engine,
    shares_of_card,
)
from convbench.models.vllm import ARGUMENTS
from convbench.models.weights_path import adapter_base, has_dense_weights, shape_of

ENGINES = ("local", "vllm")
"""Schemes of models that this machine runs."""
CONTEXT = 8_192
"""Assumed tokens of an engine's longest conversation, where nothing says them."""
SMALLER = ("quantization", "offload")
"""In the names of arguments with which vLLM takes less of a card than its weights in bf16."""


@dataclass(frozen=True)
class Engine:
    """A model that this machine runs, and where the user puts it."""

    ref: str
    placement: Placement | None = None
    """What the user sets; None: nothing."""
    tokens: int = CONTEXT
    """Tokens of the longest conversation that it must hold."""

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM runs it; the local engine is one copy on one card."""
        return self.ref.startswith("vllm:")

    @property
    def set_names(self) -> tuple[str, ...] | None:
        """The cards that the user sets."""
        return self.placement.names if self.placement else None

    @property
    def context_tokens(self) -> int:
        """Tokens that it must hold at least: `max-model-len` if the user sets that."""
        return self.number_argument("max-model-len") or self.tokens

    def number_argument(self, name: str) -> int | None:
        """Return a positive number among the user's arguments of its vLLM server, else None."""
        arguments = (self.placement.vllm if self.placement else None) or {}
        values = [value for key, value in arguments.items() if key.replace("_", "-") == name]
        return int(str(values[-1])) if values and str(values[-1]).isdigit() else None

    def least_memory(self) -> EngineMemory | None:
        """Return its memory on one card in bf16; None if its size is unknown, as of experts and of
        quantised weights."""
        name = self.ref.partition(":")[2]
        base = adapter_base(str(Path(name).expanduser())) or name
        shape = shape_of(base)
        arguments = [
            os.environ.get(ARGUMENTS, ""),
            *((self.placement and self.placement.vllm) or ()),
        ]
        is_smaller = self.is_vllm and any(word in text for word in SMALLER for text in arguments)
        if shape is None or is_smaller or not has_dense_weights(base):
            return None
        memory = engine_memory(shape, self.context_tokens)
        return memory if self.is_vllm else replace(memory, overhead=LOCAL_ENGINE_BYTES)


def cards_of_copy(engine: Engine) -> int:
    """Return how many cards one copy of an engine takes: as many as the user says, else as few as
    hold it; if its size is unknown all that the user names, else 1.

    Raise FatalModelError if the cards that it may have do not hold one.
    """
    sizes = [
        device.memory
        for device in list_devices()
        if engine.set_names is None or device.name in engine.set_names
    ]
    if not engine.is_vllm or not sizes:
        return 1
    card_bytes, memory = min(sizes), engine.least_memory()
    split = engine.number_argument("tensor-parallel-size")
    if memory is None or not card_bytes:
        return split or len(engine.set_names or ()) or 1
    usable = (engine.placement.share if engine.placement else None) or USABLE
    placed = place_engine(memory, len(sizes), card_bytes, usable)
    if split is not None and memory.on_each(split).least_bytes <= usable * card_bytes:
        return split
    if split is None and placed is not None:
        return placed.cards_each
    count = split or len(sizes)
    where = "a card" if count == 1 else f"each of {count} cards"
    raise FatalModelError(
        f"{engine.ref} does not fit {len(sizes)} x {card_bytes / GB:g} GB: it takes "
        f"{_need_in_words(memory.on_each(count), engine.context_tokens)} of {where}, and "
        f"{usable * card_bytes / GB:.1f} GB are for it; take more or larger cards, a smaller "
        "context (--devices vllm.ROLE.max-model-len=N), or serve it elsewhere (--api-base URL)"
    )


def _need_in_words(memory: EngineMemory, tokens: int) -> str:
    """Return what an engine takes at least of a card, in words."""
    uses = (memory.weights, memory.least_cache, memory.overhead)
    weights, cache, own = (f"{size / GB:.1f}" for size in uses)
    return (
        f"{memory.least_bytes / GB:.1f} GB ({weights} weights, {cache} one conversation of "
        f"{tokens:,} tokens, {own} its own)"
    )


def place_side_by_side(engines: Sequence[Engine]) -> list[Placement | None]:
    """Return the placements of engines that run at once, in order. Each has cards of its own, vLLM
    a copy on each of those that are left; where cards are too few, its share of one.

    Devices, shares and numbers of copies that the user sets stay. A local engine alone, and a
    machine without accelerators, need none: theirs are returned as they are. Raises
    FatalModelError if one does not fit.
    """
    devices = list_devices()
    placements = [engine.placement for engine in engines]
    if not devices or (len(engines) == 1 and not engines[0].is_vllm):
        return placements
    splits = [cards_of_copy(engine) for engine in engines]
    cards = _choose_cards(engines, splits)
    for number, names in enumerate(cards):
        if names and names != engines[number].set_names:
            placements[number] = replace(placements[number] or Placement(), names=names)
        own = placements[number]
        if own is not None and len(names) > 1 and engines[number].is_vllm:
            placements[number] = replace(own, cards_each=splits[number])
    shares: list[list[float]] = [[] for _ in engines]
    for device in devices:
        beside = [number for number, names in enumerate(cards) if device.name in names]
        if len(beside) > 1:
            sharing = [engines[number] for number in beside]
            split = [splits[number] for number in beside]
            for number, share in zip(beside, _share_card(sharing, split, device), strict=True):
                shares[number].append(share)
    return [
        replace(own, share=int(min(each) * 100) / 100) if own and not own.share and each else own
        for own, each in zip(placements, shares, strict=True)
    ]


def _choose_cards(engines: Sequence[Engine], splits: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the cards of each engine: first those of one copy of each, the largest first, then
    copies of those that vLLM runs while cards are free."""
    names = [device.name for device in list_devices()]
    free = [n for n in names if all(n not in (engine.set_names or ()) for engine in engines)]
    cards = [list(engine.set_names or ()) for engine in engines]
    unset = [number for number, engine in enumerate(engines) if engine.set_names is None]
    for number in sorted(unset, key=lambda number: -splits[number]):
        start = number % len(names)
        others = [name for name in names[start:] + names[:start] if name not in free]
        cards[number] = (free + others)[: splits[number]]
        free = [name for name in free if name not in cards[number]]
    limits = [
        splits[number] * (engine.number_argument("data-parallel-size") or len(names))
        for number, engine in enumerate(engines)
    ]
    growing = [number for number in unset if engines[number].is_vllm]
    while growing:
        number = growing.pop(0)
        if len(cards[number]) < limits[number] and len(free) >= splits[number]:
            cards[number] += free[: splits[number]]
            del free[: splits[number]]
            growing.append(number)
    for number, engine in enumerate(engines):
        if engine.is_vllm and len(cards[number]) > splits[number]:
            copies = min(limits[number], len(cards[number])) // splits[number]
            del cards[number][copies * splits[number] :]
    return [tuple(each) for each in cards]


def _share_card(
    engines: Sequence[Engine], splits: Sequence[int], card: Device
) -> tuple[float, ...]:
    """Return the share of a card for each engine that stands on it, equal ones if the size of one
    is unknown."""
    memories = [engine.least_memory() for engine in engines]
    each = [memory.on_each(split) for memory, split in zip(memories, splits, strict=True) if memory]
    if not card.memory or len(each) < len(engines):
        each = [EngineMemory(0.0, 0.0, 0.0, 0.0)] * len(engines)
    set_shares = [engine.placement.share if engine.placement else None for engine in engines]
    shares = shares_of_card(each, card.memory or 1.0, set_shares)
    if shares is not None:
        return shares
    needs = " and ".join(
        _need_in_words(memory, engine.context_tokens)
        for memory, engine in zip(each, engines, strict=True)
    )
    raise FatalModelError(
        f"{' and '.join(engine.ref for engine in engines)} run at once on card {card.name}, which "
        f"has no room for them ({card.memory / GB:g} GB, of which they take {needs}); give them "
        "cards of their own: --devices 'policy=[0]' --devices 'teacher=[1]', or serve one of them "
        "elsewhere (--api-base URL)"
    )


def describe_side_by_side(
    engines: Sequence[Engine], placements: Sequence[Placement | None]
) -> str | None:
    """Return one line on where engines run at once: `MODEL on card 0 (45 % of it), ...`; None of a
    single one on one card."""
    if len(engines) == 1 and not (placements[0] and len(placements[0].names or ()) > 1):
        return None
    parts = []
    for engine, each in zip(engines, placements, strict=True):
        names = (each.names if each else None) or ()
        where = f"card{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "the CPU"
        remarks = [f"{each.share:.0%} of it"] if each and each.share else []
        if each and len(names) > 1 and engine.is_vllm:
            remarks += [f"{each.copies} copies"] if each.copies > 1 else []
            remarks += [f"split over {each.split}"] if each.split > 1 else []
        parts.append(f"{engine.ref} on {where}" + (f" ({', '.join(remarks)})" if remarks else ""))
    return f"at once on this machine: {'; '.join(parts)} (--devices sets other places)"
