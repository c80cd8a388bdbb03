"""An index that grows with its runs: what was appended is read and put into it, nothing else.

New runs, new judges and files that were written anew change what the index is made of: then it is
built anew beside the old one, which answers until then. That of large runs is made by a process of
its own and kept; at the very first start their first conversations answer until then.
"""
# ruff: noqa: S608 - the SQL is made of names of our own

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from convbench.cache import cache_folder
from convbench.errors import ConvbenchError, RunError
from convbench.store import Run
from convbench.store.places import Places
from convbench.store.tail import Piece, Signs, appended, marks, signs, tail
from convbench.view import first, kept
from convbench.view.index import Index, Say, build_index, distinct, rewarded

EASE = 4.0
"""After a refresh that took t seconds the next one begins EASE * t later, at the soonest."""
KEYS = {
    "conversations": ("run_no", "key"),
    "verdicts": ("run_no", "conversation_id", "judge"),
    "comparisons": ("run_no", "first", "second", "fingerprint"),
    "advantages": ("run_no", "conversation_id", "turn_index", "source"),
}
"""What names a record of each raw table: of those alike the appended one counts."""


class Growing:
    """The index of some runs, as new as `look` has made it."""

    def __init__(self, runs: Callable[[], Sequence[Run]], say: Say = lambda text: None) -> None:
        self._runs, self._say = runs, say
        self._lock = threading.Lock()
        self._rest_until = 0.0
        self._maker: kept.Maker | None = None
        self._failed: tuple[list[Signs], RunError] | None = None
        self.index = self._begun()
        self.version = 1
        """Counted up with every change."""
        self.partial: int | None = first.SHOWN if self._maker else None
        """So many conversations of each run the index holds alone; None where it holds all."""
        self.problem: str | None = None
        """Why the runs as they are now cannot be read; the index is as before."""

    def _begun(self) -> Index:
        """Return the index to start with, and begin to make what is missing."""
        runs = distinct(self._runs())
        if not kept.large(runs):
            return build_index(runs, self._say)
        if (found := kept.opened(runs)) is not None:
            absorb(found)
            self._say(f"{found.total:,} conversations, as they were indexed before")
            return found
        index = first.first(runs)
        few = f"the first {first.SHOWN} of each run"
        self._say(f"reading all conversations; until then {few} are shown")
        self._maker = kept.Maker(runs)
        return index

    @property
    def making_s(self) -> float | None:
        """For how many seconds another process has been making the index; None where none is."""
        maker = self._maker
        return None if maker is None else time.monotonic() - maker.since

    def look(self) -> int:
        """Take in what the runs got since; return the version. One caller does the work, others
        get the version as it is."""
        if time.monotonic() < self._rest_until or not self._lock.acquire(blocking=False):
            return self.version
        try:
            since = time.monotonic()
            self._refresh()
            now = time.monotonic()
            self._rest_until = now + EASE * (now - since)
            self.problem = None
        except (ConvbenchError, OSError) as error:
            self.problem = " ".join(str(error).split())
        finally:
            self._lock.release()
        return self.version

    def _refresh(self) -> None:
        runs = distinct(self._runs())
        if self._maker is not None:
            self._made(runs)
        elif self.partial is not None:
            self._again(runs)
        elif self.index.lost or [run.path.resolve() for run in runs] != [
            run.path.resolve() for run in self.index.runs
        ]:
            self._anew(runs)
        elif self.index.grown:
            before = self.index.marks
            if not absorb(self.index):
                self._anew(runs)
            elif self.index.marks != before:
                self.version += 1

    def _made(self, runs: Sequence[Run]) -> None:
        """Take the index that another process makes, once it has ended; make it here where it
        could not be kept."""
        assert self._maker is not None
        if self._maker.running:
            return
        maker, self._maker = self._maker, None
        try:
            maker.check()
        except RunError as error:
            self._failed = ([signs(run) for run in runs], error)
            raise
        finally:
            maker.stop()
        index = kept.opened(runs)
        if index is None:
            self._say(
                f"no index could be kept in {cache_folder('view')}: it is made in memory, and anew "
                "at the next start"
            )
            index = build_index(runs, self._say)
        self._take(index)

    def _again(self, runs: Sequence[Run]) -> None:
        """Read all of the runs once more where they have changed since that failed."""
        if self._failed is not None and self._failed[0] == [signs(run) for run in runs]:
            raise self._failed[1]
        self._maker = kept.Maker(runs)

    def _anew(self, runs: Sequence[Run]) -> None:
        if kept.large(runs):
            self._maker = kept.Maker(runs)
        else:
            self._take(build_index(runs, self._say))

    def _take(self, index: Index) -> None:
        # The old one is not closed: another thread may be asking it. It goes with its last use.
        self.index, self.partial = index, None
        self.version += 1

    def close(self) -> None:
        """End what is under way, and leave the index for the next start."""
        if self._maker is not None:
            self._maker.stop()
        self.index.close()


def absorb(index: Index) -> bool:
    """Read what was appended to the files of an index's runs; return False, nothing done, where
    that is not enough: files written anew, or judges that the index has no columns for."""
    seen = [signs(run) for run in index.runs]
    now = [marks(run) for run in index.runs]
    pairs = list(zip(index.marks, now, strict=True))
    if not all(appended(*pair) for pair in pairs):
        return False
    grown = [number for number, (old, new) in enumerate(pairs) if old != new]
    if not grown:  # compressed, or touched
        with index.changing():
            index.seen = seen
            index.keep()
        return True
    with tempfile.TemporaryDirectory() as folder:
        tails = [
            tail(index.runs[number], *pairs[number], Path(folder) / str(number)) for number in grown
        ]
        fresh = build_index([run for run, _ in tails])
        try:
            if not set(fresh.judges) <= set(index.judges):
                return False
            before = index.marks, index.seen
            index.marks, index.seen = now, seen
            try:
                _merge(index, fresh, grown, {run.path: pieces for run, pieces in tails})
            except BaseException:
                index.marks, index.seen = before
                raise
        finally:
            fresh.close()
    return True


def _merge(
    index: Index, fresh: Index, numbers: Sequence[int], pieces: Mapping[Path, list[Piece]]
) -> None:
    """Put all rows of `fresh` into `index`; `numbers`: the run of each of its runs there, `pieces`:
    where the conversations of each lie in the run itself, by its folder."""
    import pyarrow

    moved = (
        "CASE run_no " + " ".join(f"WHEN {at} THEN {n}" for at, n in enumerate(numbers)) + " END"
    )
    tables = {
        name: _arrow(fresh, f"SELECT * REPLACE ({moved}::INTEGER AS run_no) FROM raw.{name}")
        for name in KEYS
    }
    files = [file.path for file in index.files]
    rows = []
    for at, file in enumerate(fresh.files):
        for piece in pieces[file.path.parent]:
            if piece.path not in files:
                files.append(piece.path)
            rows.append((at, piece.at, piece.at + piece.length, files.index(piece.path),
                         piece.start - piece.at))  # fmt: skip
    names = ("tail", "since", "until", "home", "shift")
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    mapped = dict(zip(names, (pyarrow.array(column, pyarrow.int64()) for column in columns),
                      strict=True))  # fmt: skip
    fresh.connection.register("pieces", pyarrow.table(mapped))
    tables["places"] = _arrow(
        fresh,
        f"SELECT {moved}::INTEGER AS run_no, conversation_id, home::INTEGER AS file, "
        "start + shift AS start, length FROM raw.places JOIN pieces ON file = tail "
        "AND start >= since AND start < until",
    )
    named = [
        f"reward_{k} AS reward_{index.judges.index(judge)}, "
        f"failed_{k} AS failed_{index.judges.index(judge)}"
        for k, judge in enumerate(fresh.judges)
    ]
    own = ", ".join(f"reward_{k}, failed_{k}" for k in range(len(fresh.judges)))
    rest = f"* EXCLUDE ({own})" if own else "*"
    listed = ", ".join([f"{rest} REPLACE ({moved}::INTEGER AS run_no)", *named])
    tables["rows"] = _arrow(fresh, f"SELECT {listed} FROM conversations ORDER BY n")
    index.widen()
    with index.changing() as connection:
        for name, table in tables.items():
            connection.register(f"new_{name}", table)
        connection.execute(
            "DELETE FROM conversations WHERE (run_no, conversation_id) IN (SELECT run_no, "
            "r.conversation_id FROM raw.conversations r JOIN new_conversations USING (run_no, key))"
        )
        connection.execute(
            "DELETE FROM raw.places WHERE (run_no, conversation_id) IN (SELECT run_no, "
            "r.conversation_id FROM raw.conversations r JOIN new_conversations USING (run_no, key))"
        )
        for name, key in KEYS.items():
            listed = ", ".join(f'"{column}"' for column in key)
            connection.execute(
                f"DELETE FROM raw.{name} WHERE ({listed}) IN (SELECT {listed} FROM new_{name})"
            )
            connection.execute(f"INSERT INTO raw.{name} BY NAME SELECT * FROM new_{name}")
        connection.execute("INSERT INTO raw.places BY NAME SELECT * FROM new_places")
        connection.execute(ROWS)
        if index.judges:
            connection.execute(_rewards(index.judges))
        for name in tables:
            connection.unregister(f"new_{name}")
        index.files += [Places(path) for path in files[len(index.files) :]]
        index.keep()


ROWS = """
INSERT INTO conversations BY NAME
SELECT r.* REPLACE (
    (SELECT coalesce(max(n), -1) + 1 FROM conversations) + r.n AS n,
    coalesce(k.q, (SELECT coalesce(max(q), 0) FROM conversations) + r.q) AS q)
FROM new_rows r LEFT JOIN (
    SELECT task, example_id, question, min(q) AS q FROM conversations GROUP BY ALL
) k ON k.task = r.task AND k.example_id = r.example_id
    AND k.question IS NOT DISTINCT FROM r.question
"""
"""New rows come after all others; a question that is known keeps its number."""


def _rewards(judges: Sequence[str]) -> str:
    """Set the rewards of every conversation with a new record or verdict."""
    columns = [f"{kind}_{k}" for k in range(len(judges)) for kind in ("reward", "failed")]
    touched = (
        "(SELECT run_no, conversation_id FROM new_verdicts "
        "UNION SELECT run_no, conversation_id FROM new_rows)"
    )
    given = rewarded(judges).replace(
        "FROM raw.verdicts",
        f"FROM raw.verdicts SEMI JOIN {touched} USING (run_no, conversation_id)",
    )
    return (
        f"UPDATE conversations c SET {', '.join(f'{name} = v.{name}' for name in columns)} "
        f"FROM ({given}) v WHERE v.run_no = c.run_no AND v.conversation_id = c.conversation_id"
    )


def _arrow(index: Index, sql: str) -> Any:
    """Return what a query finds as an Arrow table."""
    return index.connection.sql(sql).to_arrow_table()
