"""Cards and shares of engines that run at the same time on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convbench.errors import FatalModelError
from convbench.models.devices import Device, Placement, list_devices
from convbench.models.engine_memory import HALF, USABLE
from convbench.models.weights_path import shape_of

ENGINES = ("local", "vllm")
"""Schemes of models that this machine runs."""


@dataclass(frozen=True)
class Engine:
    """A model that this machine runs, and where the user puts it."""

    ref: str
    placement: Placement | None = None
    """What the user sets; None: nothing."""


def place_side_by_side(engines: Sequence[Engine]) -> list[Placement | None]:
    """Return the placements of engines that run at once, in order: each a card of its own, or where
    cards are too few its share of one.

    Devices and shares that the user sets stay. A single engine, and a machine without accelerators,
    need none: theirs are returned as they are. Raises FatalModelError if the weights on one card
    are larger than it.
    """
    devices = list_devices()
    placements = [engine.placement for engine in engines]
    if len(engines) < 2 or not devices:
        return placements
    by_name = {device.name: device for device in devices}
    used = {name for each in placements if each and each.names for name in each.names}
    free = [name for name in by_name if name not in used]
    for number, each in enumerate(placements):
        if each is None or each.names is None:
            name = free.pop(0) if free else devices[number % len(devices)].name
            placements[number] = replace(each or Placement(), names=(name,))
    return [
        _with_share(number, engines, placements, by_name) if each and each.names else each
        for number, each in enumerate(placements)
    ]


def _with_share(
    number: int,
    engines: Sequence[Engine],
    placements: Sequence[Placement | None],
    by_name: dict[str, Device],
) -> Placement:
    """Return the placement with its least share of a card; unchanged if it has one, or is alone on
    its cards."""
    own = placements[number]
    assert own is not None
    shares = []
    for name in own.names or () if own.share is None else ():
        beside = [n for n, each in enumerate(placements) if each and name in (each.names or ())]
        if len(beside) > 1 and name in by_name:
            shares.append(_share_of_card(number, beside, engines, placements, by_name[name]))
    return replace(own, share=int(min(shares) * 100) / 100) if shares else own


def _share_of_card(
    number: int,
    beside: Sequence[int],
    engines: Sequence[Engine],
    placements: Sequence[Placement | None],
    card: Device,
) -> float:
    """Return an engine's share of a card that it has with others: its weights, and an equal part of
    what the weights of all leave."""
    set_shares = {n: each.share for n in beside if (each := placements[n]) and each.share}
    rest = [n for n in beside if n not in set_shares]
    weights = {n: _weight_bytes(engines[n].ref, placements[n]) / (card.memory or 1) for n in rest}
    if not card.memory or not all(weights.values()):  # sizes unknown: equal shares
        weights = dict.fromkeys(rest, 0.0)
    left = USABLE - sum(set_shares.values()) - sum(weights.values())
    if left <= 0:
        names = " and ".join(engines[n].ref for n in beside)
        raise FatalModelError(
            f"{names} run at once on card {card.name}, which has no room for them "
            f"({card.memory / 1e9:g} GB); give them cards of their own: --devices 'policy=[0]' "
            "--devices 'teacher=[1]', or serve one of them elsewhere"
        )
    return weights[number] + left / len(rest)


def _weight_bytes(ref: str, placement: Placement | None) -> float:
    """Return the bytes of a model's weights on each of its cards; 0 if its size is unknown."""
    shape = shape_of(ref.partition(":")[2])
    cards = len((placement.names if placement else None) or ()) or 1
    split = cards if ref.startswith("vllm:") else 1
    return HALF * shape.weight_count / split if shape else 0.0


def describe_side_by_side(engines: Sequence[Engine], placements: Sequence[Placement | None]) -> str:
    """Return one line on where engines run at once: `MODEL on card 0 (45 % of it), ...`."""
    parts = []
    for engine, each in zip(engines, placements, strict=True):
        names = ", ".join((each.names if each else None) or ()) or "the CPU"
        share = f" ({each.share:.0%} of it)" if each and each.share else ""
        where = names if names == "the CPU" else f"card {names}"
        parts.append(f"{engine.ref} on {where}{share}")
    return f"at once on this machine: {'; '.join(parts)} (--devices sets other places)"
