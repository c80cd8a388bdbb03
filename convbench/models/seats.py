"""Which row has which slot of the cache: rows share what they begin alike, a slot waits for the
next turn of its conversation, and the cache grows as far as its memory goes.

Imported only by `batcher`, once torch is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

from convbench.models.generation import Generation
from convbench.models.slots import SlotCache, common, rounded

KEPT = 64
"""Steps for which an ended row's slot is left to its conversation's next turn, while the cache can
grow instead."""
SOON = 8
"""Steps for which it is left where the cache cannot grow, as long as other rows run: a next turn
that nobody else has to write comes back within few."""


class Seats:
    """The slots of a cache that may take `memory` bytes and at most `most` slots, and their rows:
    those that run, and those that ended and whose keys and values nobody has needed the room of."""

    def __init__(self, cache: SlotCache, memory: int, most: int) -> None:
        self.cache = cache
        self.active = 0
        self._memory, self._most = memory, most
        self._held: list[Generation | None] = []
        self._named: dict[object, list[Generation]] = {}
        self._wanted = 0
        self._clock = 0

    def rows(self) -> list[Generation]:
        """Return the rows that run, in the order of their slots."""
        return [row for row in self._held if row is not None and row.active]

    def low(self, idle: float) -> list[Generation | None]:
        """Return who is in each slot up to that of the last row that runs, rows that ended among
        them. Where more than `idle` times as many slots as rows that run would be read, these move
        down first."""
        if self._top() > idle * self.active + 1:
            self._pack()
        return self._held[: self._top()]

    def seat(self, waiting: Sequence[Generation]) -> tuple[list[Generation], list[Generation]]:
        """Return the rows that got slots now, and those that wait on: for room, or for a row of
        this very group that begins alike, from which they copy then."""
        group: list[Generation] = []
        fresh: set[object] = set()
        left: list[Generation] = []
        self._wanted = self.active + len(waiting)
        for row in sorted(waiting, key=self._comes_new):  # before their slots are taken
            later = fresh.intersection(row.alike) and self._donor(row) is None
            if later or not self._seated(row):
                left.append(row)
                continue
            group.append(row)
            fresh.update(row.names)
        return group, left

    def leave(self) -> list[Generation]:
        """End the rows that are over and return them; their slots keep what was read."""
        over = [row for row in self.rows() if row.over]
        self._clock += 1
        for row in over:
            row.active, row.parked = False, self._clock
        self.active -= len(over)
        return over

    def _comes_new(self, row: Generation) -> bool:
        """Return whether no slot waits for this row with the turn before it."""
        before = self._named.get(row.alike[0], ()) if row.alike else ()
        return all(one.active for one in before)

    def _seated(self, row: Generation) -> bool:
        """Give a row a slot with as much of its beginning as there is; False for no room."""
        if not self._roomy(row.prompt + row.limit):
            return False
        donor = self._donor(row)
        own = donor is not None and not donor.active and row.alike[:1] == donor.names[:1]
        slot = donor.slot if donor is not None and own else self._free(donor)
        if slot is None:
            return False
        if donor is not None:
            row.cached = self._shared(row, donor)
            if slot != donor.slot:
                self.cache.copy(donor.slot, slot, row.cached)
        self._evict(slot)
        row.slot, row.active = slot, True
        self._held[slot] = row
        self.active += 1
        for name in row.names:
            self._named.setdefault(name, []).append(row)
        return True

    def _roomy(self, columns: int) -> bool:
        """Return whether a row of so many columns fits; the cache grows where it must."""
        if columns <= self.cache.columns:
            return True
        slots = self._slots(columns)
        if self.active >= slots and self.active:
            return False
        if len(self._held) > slots:
            self._pack()
            for slot in range(slots, len(self._held)):
                self._evict(slot)
            del self._held[slots:]
        self.cache.resize(min(slots, self.cache.slots), columns, len(self._held))
        return True

    def _slots(self, columns: int) -> int:
        """Return how many slots of so many columns the memory holds; one, however long it is."""
        return max(1, min(self._most, self._memory // (self.cache.token_bytes * rounded(columns))))

    def _donor(self, row: Generation) -> Generation | None:
        """Return the row whose slot holds the longest beginning of this one's prompt."""
        for name in row.alike:
            rows = [one for one in self._named.get(name, ())[-8:] if one.cached]
            if rows:
                return max(rows, key=lambda one: (self._shared(row, one), not one.active))
        return None

    def _shared(self, row: Generation, donor: Generation) -> int:
        return min(common(row.tokens, donor.tokens), donor.cached, row.prompt - 1)

    def _free(self, donor: Generation | None) -> int | None:
        """Return an empty slot, one whose row ended long ago, a new one, or that of the row that
        ended longest ago; None where its next turn may still come soon."""
        for slot, held in enumerate(self._held):
            if held is None:
                return slot
        parked = [row for row in self._held if row and not row.active and row is not donor]
        oldest = min(parked, key=lambda row: row.parked, default=None)
        if oldest is not None and self._clock - oldest.parked > KEPT:
            return oldest.slot
        if len(self._held) < self.cache.slots or self._grow():
            self._held.append(None)
            return len(self._held) - 1
        if oldest is not None:
            coming = self.active and self._clock - oldest.parked <= SOON
            return None if coming else oldest.slot
        return donor.slot if donor is not None and not donor.active else None

    def _grow(self) -> bool:
        """Make slots for the rows that wait, some at a time since all that is held is copied; False
        where the memory holds no more."""
        more = self.cache.slots + max(1, self.cache.slots // 8)
        slots = min(max(self._wanted, more), self._slots(self.cache.columns))
        if slots <= self.cache.slots:
            return False
        self.cache.resize(slots, self.cache.columns, len(self._held))
        return True

    def _evict(self, slot: int) -> None:
        row = self._held[slot]
        if row is None:
            return
        self._held[slot] = None
        for name in row.names:
            rows = self._named[name]
            rows.remove(row)
            if not rows:
                del self._named[name]

    def _pack(self) -> None:
        """Bring active rows down to the first slots, so that steps read no others; ended rows go up
        and keep what their conversation's next turn begins with."""
        low = 0
        for slot in range(len(self._held) - 1, -1, -1):
            row = self._held[slot]
            if row is None or not row.active:
                continue
            while low < slot and (there := self._held[low]) is not None and there.active:
                low += 1
            if low >= slot:
                return
            there = self._held[low]
            if there is None:
                self.cache.copy(slot, low, row.cached)
            else:
                self.cache.swap(slot, low, max(row.cached, there.cached))
                there.slot = slot
            self._held[low], self._held[slot], row.slot = row, there, low

    def _top(self) -> int:
        """Return the number of slots up to the last active row's."""
        return 1 + self.rows()[-1].slot
