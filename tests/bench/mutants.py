"""Small wrong changes of the code, and whether the tests find them.

python -m tests.bench.mutants [--seed 21] [--count 60] [--jobs 2] [--work .mutants] [--out docs/lab]

Draws from the lines that a room's own tests run, at least four a room: a comparison turned, a
number one off, a branch dropped, `return None`, two arguments swapped. Each stands alone in a copy
of the checkout. The tests that run its line come first, the quickest first; what they do not find
sees all tests of the room and of the other rooms. A failure counts where the same test passes
without the change.

It can be stopped at any time and goes on where it was, with the copy in the `--work` folder; take
that folder away to begin with the code as it is now.

`--again docs/lab/mutants.json` tries the mutants of a list instead of drawing, wherever their
functions or lines stand by now, and ends with 1 where more than two fewer of those that both have
tried are found. It measures no coverage: first comes the test that found a mutant, then all tests
of its room for `--limit` seconds. What was renamed inside a changed expression is first
renamed in the list. A `note` of the list, such as why a change changes nothing, stays with its
mutant.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, NoReturn

from tests.bench.mutant_changes import Mutant, candidates

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "engine": "engine",
    "formats": "formats",
    "judges": "judges",
    "learn": "learn",
    "models": "models",
    "hub": "hub",
    "reports": "reports",
    "rollout": "rollout",
    "sandbox": "sandbox",
    "schema": "catalog",
    "stats": "stats",
    "store": "store",
    "tasks": "tasks",
    "viewer": "viewer",
}
"""The folder of tests of each room."""
EACH = 4
"""Mutants of a room, at least."""
FIRST_S = 60.0
"""Seconds of the tests that run a mutant's line before all others are collected."""
PATIENCE = 10.0
"""How many times longer than before tests may take until they hang."""

FEWER = 2
"""How many fewer of a list may be found when it is tried again."""
ABOUT = """\
Small wrong changes of the code, and the test that finds each. They are drawn by a seed from the
lines that a room's own tests run, at least four a room, no two of one line: a comparison turned, a
number one off, a branch dropped, `return None`, two arguments swapped. Each stands alone in a copy
of the checkout, in which the tests of the room run, then all others, until one fails
that passes without it. Tests that only `make test-rest` runs are left out.
"""

RUNNING: set[int] = set()
"""Process groups of tests."""


@dataclass(frozen=True)
class Coverage:
    """Which tests of a folder run which lines, how long they take, and which fail as it is."""

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[str, list[int]]]

    @property
    def spent(self) -> float:
        """Seconds of all tests."""
        return sum(self.seconds.values())

    def lines_run(self) -> dict[str, set[int]]:
        """Return the lines of each file that a test runs."""
        files = sorted(self.lines.items())
        return {file: {int(one) for one, by in lines.items() if by} for file, lines in files}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's line, the quickest first."""
        names = list(self.seconds)
        tests = self.lines.get(mutant.file, {}).get(str(mutant.line), [])
        passed = {names[one] for one in tests} - set(self.failed)
        return sorted(passed, key=lambda name: (self.seconds[name], name))


class Copy:
    """A copy of the checkout in which one mutant at a time stands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "main"
        self.original = folder / "original.json"

    def make(self) -> None:
        """Copy what git knows, or take a change out of the copy that is there."""
        if (self.folder / "complete").exists():
            self.restore()
            return
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.tree / name)
        if (shared := ROOT.parent / "shared").exists():  # real rows, where they lie
            (self.folder / "shared").symlink_to(shared.resolve())
        (self.folder / "complete").touch()

    def change(self, mutant: Mutant) -> None:
        """Write a mutant into the copy; what was there is kept, should this process be ended."""
        source = (self.tree / mutant.file).read_text()
        self.original.write_text(json.dumps({"file": mutant.file, "source": source}))
        self._write(mutant.file, mutant.applied(source))

    def restore(self) -> None:
        """Take the mutant out again."""
        if self.original.exists():
            self._write(**json.loads(self.original.read_text()))
            self.original.unlink()

    def _write(self, file: str, source: str) -> None:
        """Write code and forget its bytecode, which is known by second and size alone."""
        path = self.tree / file
        path.write_text(source)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, where: Sequence[str], limit_s: float, **names: str) -> tuple[int | None, str]:
        """Run tests; return the exit code, None where they were ended at the limit, and the end of
        what they printed."""
        temporary, log = self.folder / "tmp", self.folder / "log.txt"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        environment = os.environ | {"PYTHONPATH": str(self.tree), "TMPDIR": str(temporary)} | names
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *where]
        words += ["-p", "tests.bench.mutant_plugin", "-m", "not exhaustive"]
        if "MUTANT_LINES" in names:  # slower, and a test that does not end ends them all
            words += ["--timeout", "1200"]
        with log.open("w") as printed:
            child = subprocess.Popen(
                words,
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                process_group=0,  # not a session: each would have its own share of the cores
            )
            RUNNING.add(child.pid)
            code = _ended(child, limit_s)
            RUNNING.discard(child.pid)
        shutil.rmtree(temporary, ignore_errors=True)
        return code, log.read_text(errors="replace")[-500:]


def stop(*_: object) -> NoReturn:
    """End this process and the tests it started; the next run goes on from here."""
    for group in RUNNING:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    os._exit(1)


def _ended(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Return the exit code of a process of tests; end it, and all it started, at the limit."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def coverage_of(tests: str, lines: str, work: Path, copy: Copy) -> Coverage:
    """Return what the tests of a folder run of a folder of the package, measured once."""
    kept = work / f"{tests}.json"
    if not kept.exists():
        part = kept.with_suffix(".part")
        code, printed = copy.run([f"tests/{tests}"], 7200, MUTANT_LINES=lines, MUTANT_OUT=str(part))
        if code not in (0, 1) or not part.exists():
            raise SystemExit(f"tests/{tests} ended with {code}:\n{printed}")
        part.rename(kept)
    return Coverage(**json.loads(kept.read_text()))


class Trial:
    """Whether the tests find one mutant: those of its room, then all others."""

    def __init__(self, mutant: Mutant, copy: Copy, own: Coverage) -> None:
        self.mutant, self.copy = mutant, copy
        self.out = copy.folder / "out.json"
        self.own = own
        self.without = list(own.failed)

    def found_by_own(self) -> str | None:
        """Return the room's test that fails with the mutant in place and not without, if any."""
        quick = self._quick()
        files = sorted({name.partition("::")[0] for name in quick})
        spent = sum(self.own.seconds[name] for name in quick)
        if quick and (test := self._search(files, quick, spent, only=True)):
            return test
        rest = [name for name in self.own.tests_of(self.mutant) if name not in set(quick)]
        self.without += quick
        return self._search([f"tests/{TESTS[self.mutant.room]}"], rest, self.own.spent)

    def found_by_joins(self, joins: Coverage) -> str | None:
        """Return the test of any room that fails with the mutant and not without, if any."""
        self.without += joins.failed
        return self._search(["tests"], joins.tests_of(self.mutant), joins.spent)

    def found_within(self, limit_s: float, test: str | None) -> str | None:
        """Return the test that fails with the mutant and not without, if any: the one given, else
        one of the room's that does within so many seconds."""
        if test:
            file = test.partition("::")[0]
            if by := self._search([file], [test], only=True):
                return by
            self.without.append(test)
        return self._search([f"tests/{TESTS[self.mutant.room]}"], [], limit_s=limit_s)

    def _quick(self) -> list[str]:
        spent = 0.0
        chosen: list[str] = []
        for name in self.own.tests_of(self.mutant):
            spent += self.own.seconds[name]
            if chosen and spent > FIRST_S:
                break
            chosen.append(name)
        return chosen

    def _search(
        self,
        where: list[str],
        first: list[str],
        spent: float = 0.0,
        only: bool = False,
        limit_s: float | None = None,
    ) -> str | None:
        """Run tests until one fails that passes without the mutant, or for `limit_s` seconds.

        Without a limit, tests that took `spent` seconds before hang if they take many times more.
        """
        hangs_s = 600 + PATIENCE * spent
        while True:
            self.copy.change(self.mutant)
            try:
                code, printed = self._run(where, first, only, limit_s or hangs_s)
            finally:
                self.copy.restore()
            if code in (0, 5) or (code is None and limit_s):
                return None
            if code is None:
                return f"hangs in {' '.join(where)}"
            test = self._first_failed()
            if test is None:
                return f"pytest ends with {code}: {printed.strip()[-80:]}"
            if not self._fails_anyway(test):
                return test
            self.without.append(test)

    def _run(
        self, where: list[str], first: list[str], only: bool, limit_s: float
    ) -> tuple[int | None, str]:
        order = self.copy.folder / "order.json"
        order.write_text(json.dumps({"first": first, "only": only, "without": self.without}))
        self.out.unlink(missing_ok=True)
        names = {"MUTANT_ORDER": str(order), "MUTANT_OUT": str(self.out)}
        return self.copy.run(["-x", *where], limit_s, **names)

    def _first_failed(self) -> str | None:
        seen = json.loads(self.out.read_text())["failed"] if self.out.exists() else []
        return next(iter(seen), None)

    def _fails_anyway(self, test: str) -> bool:
        """Whether a test fails without the mutant too."""
        code, _ = self._run([test.partition("::")[0]], [test], True, 600)
        return code not in (0, 5)


def shares(count: int, seed: int) -> dict[str, int]:
    """Return how many mutants are drawn of each room."""
    more = random.Random(seed).choices(list(TESTS), k=max(0, count - EACH * len(TESTS)))
    return {room: EACH + more.count(room) for room in TESTS}


def drawn(room: str, count: int, seed: int, possible: list[Mutant]) -> list[Mutant]:
    """Return mutants of a room, no two of one line."""
    draw = random.Random(f"{seed}/{room}")
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for one in possible:
        by_line.setdefault((one.file, one.line), []).append(one)
    lines = draw.sample(sorted(by_line), min(count, len(by_line)))
    return [draw.choice(by_line[line]) for line in lines]


def matching(
    listed: Sequence[dict[str, Any]], possible: Sequence[Mutant]
) -> list[tuple[dict[str, Any], Mutant]]:
    """Return listed mutants with those that they are now.

    That is the same change of the same text: in a function of the same name in any file, else in
    the same line of the same file, else in the only such line. Where a function has several, the
    same line comes first, then the nearest.
    """
    by_change: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in possible:
        by_change.setdefault((mutant.kind, mutant.before), []).append(mutant)
    pairs = []
    for old in listed:
        same_change = by_change.get((old["kind"], old["before"]), [])
        name = _last_name(old["function"])
        same_name = [new for new in same_change if _last_name(new.function) == name]
        same_line = [new for new in same_change if new.source == old.get("source")]
        in_file = [new for new in same_line if new.file == old["file"]]
        matches = same_name or in_file or (same_line if len(same_line) == 1 else [])
        if matches:
            pairs.append((old, max(matches, key=lambda new: _likeness(old, new))))
    return pairs


def _last_name(function: str) -> str:
    """Return the name of a function without that of its class."""
    return function.rpartition(".")[2]


def _likeness(old: Mapping[str, Any], new: Mutant) -> tuple[bool, bool, bool, int]:
    """Return what is the same of two mutants, to be compared, and how near their lines are."""
    same_source = new.source == old.get("source")
    same_place = new.file == old["file"], new.function == old["function"]
    return (*same_place, same_source, -abs(new.line - old["line"]))


class Round:
    """One run over all rooms, of which everything done is kept in a folder."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.work: Path = chosen.work.resolve()
        self.results = self.work / "results.jsonl"
        self.listed: list[dict[str, Any]] = []
        if chosen.again:  # now: the page may be written over it
            self.listed = json.loads(chosen.again.read_text())["mutants"]
        self.mutants: list[Mutant] = []
        self.writing = Lock()
        self.copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(chosen.jobs):
            copy = Copy(self.work / f"copy{number}")
            copy.make()
            self.copies.put(copy)

    def go(self) -> None:
        """Try the mutants of a list, or draw some and try them; write the page."""
        if self.chosen.again:
            self._try_listed()
        else:
            self._draw_and_try()
        self._write_page()

    def _try_listed(self) -> None:
        """Try what can be made of a list: the test that found it, then its room's."""
        tree = self.work / "copy0" / "main"
        listed = [one for one in self.listed if one["room"] in (self.chosen.room or TESTS)]
        possible = [one for room in TESTS for one in candidates(room, tree, _all_lines(tree, room))]
        pairs = matching(listed, possible)
        print(f"{len(pairs)} of {len(listed)} listed mutants can be made now", flush=True)
        self.mutants = [new for _, new in pairs]
        self._write_page()
        done = self._done()
        todo = [(old, new) for old, new in pairs if _key(asdict(new)) not in done]
        with ThreadPoolExecutor(self.chosen.jobs) as pool:
            tries = [pool.submit(self._try_again, new, old["found_by"]) for old, new in todo]
            for future in tries:
                future.result()

    def _draw_and_try(self) -> None:
        """Measure, draw, try with the tests of the rooms, then the rest with joins."""
        with ThreadPoolExecutor(self.chosen.jobs) as pool:
            rooms = {
                room: pool.submit(self._coverage, TESTS[room], f"convbench/{room}")
                for room in self.chosen.room or TESTS
            }
            measured = {room: future.result() for room, future in rooms.items()}
            self.mutants = self._drawn(measured)
            self._write_page()
            done = self._done()
            todo = [one for one in self.mutants if _key(asdict(one)) not in done]
            tries = [pool.submit(self._try, one, measured[one.room]) for one in todo]
            for future in tries:
                future.result()
            done = self._done()
            left = [one for one in self.mutants if done[_key(asdict(one))].get("joins") == "left"]
            if left and not self.chosen.own:
                joins = pool.submit(self._coverage, "joins", "convbench").result()
                tries = [pool.submit(self._try, one, measured[one.room], joins) for one in left]
                for future in tries:
                    future.result()

    def _coverage(self, tests: str, lines: str) -> Coverage:
        copy = self.copies.get()
        try:
            return coverage_of(tests, lines, self.work, copy)
        finally:
            self.copies.put(copy)

    def _drawn(self, rooms: Mapping[str, Coverage]) -> list[Mutant]:
        tree = self.work / "copy0" / "main"
        possible = {room: candidates(room, tree, one.lines_run()) for room, one in rooms.items()}
        seed = self.chosen.seed
        counts = shares(self.chosen.count, seed)
        chosen = [drawn(room, counts[room], seed, some) for room, some in possible.items()]
        return [one for some in chosen for one in some]

    def _try(self, mutant: Mutant, own: Coverage, joins: Coverage | None = None) -> None:
        """Try a mutant with the tests of its room, or, where they are done, with joins."""
        copy = self.copies.get()
        try:
            trial = Trial(mutant, copy, own)
            by = trial.found_by_joins(joins) if joins else trial.found_by_own()
        finally:
            self.copies.put(copy)
        self._record(mutant, by, {} if by or joins else {"joins": "left"})

    def _try_again(self, mutant: Mutant, test: str | None) -> None:
        """Try a mutant with the test that found it, if any, then with those of its room."""
        limit_s = self.chosen.limit
        copy = self.copies.get()
        try:
            by = Trial(mutant, copy, Coverage({}, [], {})).found_within(limit_s, test)
        finally:
            self.copies.put(copy)
        self._record(mutant, by, {} if by else {"limit_s": limit_s})

    def _record(self, mutant: Mutant, by: str | None, more: Mapping[str, Any]) -> None:
        line = json.dumps({**asdict(mutant), "found_by": by, **more})
        with self.writing:
            with self.results.open("a") as file:
                file.write(line + "\n")
            self._write_page()
        print(f"{mutant.name} ({mutant.kind}): {by or 'NOT FOUND'}", flush=True)

    def _done(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {_key(one): one for one in map(json.loads, lines)}

    def _results(self) -> list[dict[str, Any]]:
        """Return the mutants that were tried, in the order in which they were drawn."""
        done = self._done()
        return [done[_key(asdict(one))] for one in self.mutants if _key(asdict(one)) in done]

    def _write_page(self) -> None:
        results = self._results()
        self.chosen.out.mkdir(parents=True, exist_ok=True)
        file = self.chosen.out / "mutants.json"
        before = json.loads(file.read_text())["mutants"] if file.exists() else []
        pairs = matching(self.listed or before, self.mutants)
        notes = {_key(asdict(new)): old["note"] for old, new in pairs if "note" in old}
        for one in results:
            if note := notes.get(_key(one)):
                one["note"] = note
        count = len(self.listed) or self.chosen.count
        today = date.today().isoformat()
        document: dict[str, Any] = {"date": today, "seed": self.chosen.seed, "drawn": count}
        if self.listed:
            document["found_before"] = sum(one["found_by"] is not None for one in self.listed)
        document["mutants"] = results
        file.write_text(json.dumps(document, indent=1) + "\n")
        (self.chosen.out / "mutants.md").write_text("\n".join(page(document)))

    def lost(self) -> int:
        """Return how many fewer are found of the listed mutants that were tried again."""
        found_by = {_key(one): one["found_by"] for one in self._results()}
        pairs = matching(self.listed, self.mutants)
        again = [(old["found_by"], found_by[_key(asdict(new))]) for old, new in pairs]
        return sum((before is not None) - (now is not None) for before, now in again)


def _all_lines(tree: Path, room: str) -> dict[str, set[int]]:
    """Return the numbers of all lines of a room's files."""
    files = sorted((tree / "convbench" / room).rglob("*.py"))
    lasts = {file: len(file.read_text().splitlines()) for file in files}
    return {str(file.relative_to(tree)): set(range(1, last + 1)) for file, last in lasts.items()}


def _key(mutant: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(mutant[name] for name in ("file", "line", "kind", "before", "after"))


def page(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a page: how many were found, and a table of all."""
    results, seed = document["mutants"], document["seed"]
    seen = sum(one["found_by"] is not None for one in results)
    yield from ("# Mutants", "", ABOUT)
    yield f"`python -m tests.bench.mutants --seed {seed}` drew {document['drawn']}."
    if "found_before" not in document:
        yield f"Of the {len(results)} that were tried by {document['date']}, {seen} are found."
    else:
        yield (
            f"On {document['date']} they were tried again (`--again docs/lab/mutants.json`): "
            f"{len(results)} of them can be made in the code as it is now, and {seen} are found; "
            f"{document['found_before']} were found before. The test that had found one comes "
            "first, then those of its room for a limited time."
        )
    yield from ("", "| room | function | change | of | found by |", "|---|---|---|---|---|")
    for one in results:
        mutant = Mutant(**{field.name: one[field.name] for field in fields(Mutant)})
        by = f"`{one['found_by'][:90]}`" if one["found_by"] else "**no test**"
        if "joins" in one:
            by = "**no test of the room**; all others are not tried"
        if "limit_s" in one:
            by = f"**no test** of the room in {one['limit_s']:g} s"
        if "note" in one:
            by += f": {one['note']}"
        change = f"{one['kind']}, line {one['line']}"
        cells = (one["room"], f"`{mutant.name}`", change, f"`{one['before'][:60]}`", by)
        yield f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |"
    yield ""


def main() -> None:
    """Draw, run, write the page."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--seed", type=int, default=21)
    words.add_argument("--count", type=int, default=60)
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--work", type=Path, default=ROOT / ".mutants")
    words.add_argument("--out", type=Path, default=ROOT / "docs" / "lab")
    words.add_argument("--room", action="append", choices=list(TESTS), help="without it, all")
    words.add_argument("--own", action="store_true", help="the tests of the rooms, not joins")
    words.add_argument("--again", type=Path, help="a list of mutants, in place of a draw")
    words.add_argument("--limit", type=float, default=120, help="seconds of tests, with --again")
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    this = Round(words.parse_args())
    this.go()
    if this.chosen.again and this.lost() > FEWER:
        raise SystemExit(f"{this.lost()} fewer are found; at most {FEWER} may be")


if __name__ == "__main__":
    main()
