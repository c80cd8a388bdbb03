"""Small wrong changes of the code, and whether the tests find them.

python -m tests.bench.mutants [--seed 21] [--count 60] [--jobs 2] [--work .mutants] [--out docs/lab]

Draws from the lines that a room's own tests run, at least four a room: a comparison turned, a
number one off, a branch dropped, `return None`, two arguments swapped. Each stands alone in a copy
of the checkout. The tests that run its line come first, the quickest first; what they do not find
sees all tests of the room and of `tests/joins`. A failure counts where the same test passes without
the change.

It can be stopped at any time and goes on where it was, with the copy in the `--work` folder; take
that folder away to begin with the code as it is now. `--again docs/lab/mutants.json` tries the
mutants of a list instead of drawing, wherever their functions stand by now.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, NoReturn

from tests.bench.mutant_changes import Mutant, candidates

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "engine": "engine",
    "formats": "formats",
    "judge": "judge",
    "learn": "learn",
    "models": "models",
    "publish": "publish",
    "report": "report",
    "rollout": "rollout",
    "sandbox": "sandbox",
    "schema": "catalog",
    "stats": "stats",
    "store": "store",
    "tasks": "tasks",
    "view": "view",
}
"""The folder of tests of each room."""
EACH = 4
"""Mutants of a room, at least."""
FIRST_S = 60.0
"""Seconds of the tests that run a mutant's line before all others are collected."""
PATIENCE = 10.0
"""How many times longer than before tests may take until they hang."""

RUNNING: set[int] = set()
"""Process groups of tests."""


@dataclass(frozen=True)
class Coverage:
    """Which tests of a folder run which lines, how long they take, and which fail as it is."""

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[str, list[int]]]

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
        if code not in (0, 1):
            raise SystemExit(f"tests/{tests} ended with {code}:\n{printed}")
        part.rename(kept)
    return Coverage(**json.loads(kept.read_text()))


class Trial:
    """Whether the tests find one mutant."""

    def __init__(self, mutant: Mutant, copy: Copy, own: Coverage, joins: Coverage) -> None:
        self.mutant, self.copy = mutant, copy
        self.out = copy.folder / "out.json"
        self.seconds = own.seconds | joins.seconds
        self.without = [*own.failed, *joins.failed]
        self.first = own.tests_of(mutant)
        self.running = [*self.first, *joins.tests_of(mutant)]

    def found_by(self) -> str | None:
        """Return the test that fails with the mutant in place and not without, if there is one."""
        quick = self._quick()
        files = sorted({name.partition("::")[0] for name in quick})
        if quick and (test := self._search(files, quick, only=True)):
            return test
        rest = [name for name in self.running if name not in set(quick)]
        self.without += quick
        folders = [f"tests/{TESTS[self.mutant.room]}", "tests/joins"]
        return self._search(folders, rest, only=False)

    def _quick(self) -> list[str]:
        spent = 0.0
        chosen: list[str] = []
        for name in self.first:
            spent += self.seconds[name]
            if chosen and spent > FIRST_S:
                break
            chosen.append(name)
        return chosen

    def _search(self, where: list[str], first: list[str], only: bool) -> str | None:
        """Run tests until one fails that passes without the mutant."""
        asked = first if only else list(self.seconds)
        limit_s = 600 + PATIENCE * sum(self.seconds[name] for name in asked)
        while True:
            self.copy.change(self.mutant)
            try:
                code, printed = self._run(where, first, only, limit_s)
            finally:
                self.copy.restore()
            if code in (0, 5):
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


def matching(listed: list[dict[str, Any]], possible: list[Mutant]) -> list[Mutant]:
    """Return the mutants of a list that can be made now: same function, kind and text, in any
    file. A line says how many cannot."""
    by_text = {(_last(one.function), one.kind, one.before): one for one in possible}
    texts = [(_last(one["function"]), one["kind"], one["before"]) for one in listed]
    there = [by_text[text] for text in texts if text in by_text]
    print(f"{len(there)} of {len(listed)} listed mutants can be made now", flush=True)
    return there


def _last(function: str) -> str:
    return function.rpartition(".")[2]


class Round:
    """One run over all rooms, of which everything done is kept in a folder."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.work: Path = chosen.work.resolve()
        self.results = self.work / "results.jsonl"
        self.mutants: list[Mutant] = []
        self.writing = Lock()
        self.copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(chosen.jobs):
            copy = Copy(self.work / f"copy{number}")
            copy.make()
            self.copies.put(copy)

    def go(self) -> None:
        """Measure, draw, try, write."""
        with ThreadPoolExecutor(self.chosen.jobs) as pool:
            joins = pool.submit(self._coverage, "joins", "convbench")
            rooms = {
                room: pool.submit(self._coverage, TESTS[room], f"convbench/{room}")
                for room in self.chosen.room or TESTS
            }
            measured = {room: future.result() for room, future in rooms.items()}
            self.mutants = self._drawn(measured)
            todo = [one for one in self.mutants if _key(asdict(one)) not in self._done()]
            tries = [
                pool.submit(self._try, one, measured[one.room], joins.result()) for one in todo
            ]
            for future in tries:
                future.result()
        self._write_page()

    def _coverage(self, tests: str, lines: str) -> Coverage:
        copy = self.copies.get()
        try:
            return coverage_of(tests, lines, self.work, copy)
        finally:
            self.copies.put(copy)

    def _drawn(self, rooms: Mapping[str, Coverage]) -> list[Mutant]:
        tree = self.work / "copy0" / "main"
        possible = {room: candidates(room, tree, one.lines_run()) for room, one in rooms.items()}
        if self.chosen.again:
            listed = json.loads(self.chosen.again.read_text())["mutants"]
            return matching(listed, [one for some in possible.values() for one in some])
        seed = self.chosen.seed
        counts = shares(self.chosen.count, seed)
        chosen = [drawn(room, counts[room], seed, some) for room, some in possible.items()]
        return [one for some in chosen for one in some]

    def _try(self, mutant: Mutant, own: Coverage, joins: Coverage) -> None:
        copy = self.copies.get()
        try:
            by = Trial(mutant, copy, own, joins).found_by()
        finally:
            self.copies.put(copy)
        line = json.dumps({**asdict(mutant), "found_by": by})
        with self.writing:
            with self.results.open("a") as file:
                file.write(line + "\n")
            self._write_page()
        print(f"{mutant.name} ({mutant.kind}): {by or 'NOT FOUND'}", flush=True)

    def _done(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {_key(one): one for one in map(json.loads, lines)}

    def _write_page(self) -> None:
        done = self._done()
        results = [done[_key(asdict(one))] for one in self.mutants if _key(asdict(one)) in done]
        self.chosen.out.mkdir(parents=True, exist_ok=True)
        document = {"seed": self.chosen.seed, "mutants": results}
        (self.chosen.out / "mutants.json").write_text(json.dumps(document, indent=1) + "\n")
        (self.chosen.out / "mutants.md").write_text("\n".join(page(results, self.chosen.seed)))


def _key(mutant: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(mutant[name] for name in ("file", "line", "kind", "before", "after"))


def page(results: Sequence[Mapping[str, Any]], seed: int) -> Iterator[str]:
    """Yield the lines of a page: how many were found, and a table of all."""
    seen = sum(one["found_by"] is not None for one in results)
    yield from ("# Mutants", "")
    yield f"`python -m tests.bench.mutants --seed {seed}`: {seen} of {len(results)} are found."
    yield from ("", "| room | function | change | of | found by |", "|---|---|---|---|---|")
    for one in results:
        name = Mutant(**{key: value for key, value in one.items() if key != "found_by"}).name
        by = f"`{one['found_by'][:90]}`" if one["found_by"] else "**no test**"
        cells = (one["room"], f"`{name}`", one["kind"], f"`{one['before'][:60]}`", by)
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
    words.add_argument("--again", type=Path, help="a list of mutants, in place of a draw")
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    Round(words.parse_args()).go()


if __name__ == "__main__":
    main()
