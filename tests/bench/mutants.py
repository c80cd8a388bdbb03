"""Small wrong changes of the code, and whether the tests find them.

python -m tests.bench.mutants [--seed 21] [--count 60] [--out docs/lab/mutants.md]

Draws from the lines that a room's own tests run, at least four a room: a comparison turned, a
number one off, a branch dropped, `return None`, two arguments swapped. Each stands alone in a copy
of the checkout and is run against its room's tests and `tests/joins` until the first failure. A
mutant that no test finds is named by its function, so that two states of the code can be compared.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "engine", "formats", "judge", "learn", "models", "publish", "report", "rollout", "sandbox",
    "schema", "stats", "store", "tasks", "view",
)  # fmt: skip
EACH = 4
"""Mutants of a room, at least."""
LIMIT_S = 900.0
"""Seconds for a mutant's tests; one that takes longer hangs, and that is seen."""
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COPIED = ("convbench", "trainers", "specs", "tests", "docs", "pyproject.toml", "README.md",
          "Makefile", "constraints.txt", "CHANGELOG.md", "mkdocs.yml", "LICENSE")  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    room: str
    file: str
    function: str
    line: int
    kind: str
    before: str
    after: str

    def apply(self, tree: Path) -> None:
        """Write the change into a copy of the checkout."""
        path = tree / self.file
        lines = path.read_text().splitlines(keepends=True)
        text = lines[self.line - 1]
        assert self.before in text
        lines[self.line - 1] = text.replace(self.before, self.after, 1)
        path.write_text("".join(lines))


def candidates(room: str, ran: dict[str, set[int]]) -> list[Mutant]:
    """Return every change that can be made to the lines of a room that ran."""
    found = []
    for file, lines in ran.items():
        source = (ROOT / file).read_text()
        for function, node in functions(ast.parse(source)):
            for kind, part, after in changes(node):
                before = ast.get_source_segment(source, part) or ""
                ok = part.lineno in lines and "\n" not in before and before != after
                if ok and source.splitlines()[part.lineno - 1].count(before) == 1:
                    found.append(Mutant(room, file, function, part.lineno, kind, before, after))
    return found


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every function with its name, `Class.method` for methods."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{outer}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{node.name}.")


def changes(function: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield what may be changed in a function: kind, part, the new text."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
            yield "comparison turned", node, ast.unparse(_turned(node))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield "one more", node, str(node.value + 1)
            yield "one less", node, f"({node.value - 1})"
        elif isinstance(node, ast.If):
            yield "branch dropped", node.test, "False"
        elif isinstance(node, ast.Return) and node.value is not None:
            yield "return None", node, "return None"
        elif isinstance(node, ast.Call) and _swappable(node):
            yield "arguments swapped", node, ast.unparse(_swapped(node))


def _turned(node: ast.Compare) -> ast.Compare:
    return ast.Compare(node.left, [TURNED[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _swappable(node: ast.Call) -> bool:
    plain = [one for one in node.args if not isinstance(one, ast.Starred)]
    return len(plain) >= 2 and plain == node.args and ast.dump(plain[0]) != ast.dump(plain[1])


def _swapped(node: ast.Call) -> ast.Call:
    first, second, *rest = node.args
    return ast.Call(node.func, [second, first, *rest], node.keywords)


def lines_run(room: str) -> dict[str, set[int]]:
    """Return the lines of each file of a room that its own tests run, in this process or others."""
    with tempfile.TemporaryDirectory() as folder:
        data, told = Path(folder) / "data", Path(folder) / "lines.json"
        cover = [sys.executable, "-m", "coverage"]
        more = ["--data-file", str(data), "--source", f"convbench/{room}"]
        subprocess.run([*cover, "run", *more, "-m", *pytest(room)], cwd=ROOT, capture_output=True)
        subprocess.run([*cover, "json", "--data-file", str(data), "-o", str(told)], cwd=ROOT,
                       capture_output=True, check=True)  # fmt: skip
        files = json.loads(told.read_text())["files"]
    return {name: set(value["executed_lines"]) for name, value in sorted(files.items())}


def pytest(*rooms: str) -> list[str]:
    """Return the words that run the tests of rooms until the first failure."""
    folders = [f"tests/{room}" for room in rooms if (ROOT / "tests" / room).is_dir()]
    return ["pytest", "-q", "-x", "-p", "no:cacheprovider", *(folders or ["tests/catalog"])]


def is_found(mutant: Mutant) -> bool:
    """Whether a test fails, or hangs, with a mutant in place."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "main"
        tree.mkdir()
        if (shared := ROOT.parent / "shared").exists():  # real rows, where they lie
            (tree.parent / "shared").symlink_to(shared)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        mutant.apply(tree)
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        words = [sys.executable, "-m", *pytest(mutant.room, "joins")]
        try:
            done = subprocess.run(words, cwd=tree, env=environment, capture_output=True,
                                  timeout=LIMIT_S)  # fmt: skip
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return mutants of every room: four each, then from all until there are `count`."""
    draw = random.Random(seed)
    left: list[Mutant] = []
    chosen: list[Mutant] = []
    for room in ROOMS:
        some = candidates(room, lines_run(room))
        draw.shuffle(some)
        chosen += some[:EACH]
        left += some[EACH:]
    return [*chosen, *draw.sample(left, max(0, count - len(chosen)))]


def page(results: Sequence[tuple[Mutant, bool]], seed: int) -> str:
    """Return the results as a page."""
    found = sum(seen for _, seen in results)
    rows = [
        f"| {one.room} | `{Path(one.file).stem}.{one.function}` | {one.kind} | "
        f"`{one.before[:60]}` | {'yes' if seen else '**no**'} |".replace("\n", " ")
        for one, seen in results
    ]
    head = (
        "# Mutants\n\n"
        f"`python -m tests.bench.mutants --seed {seed}`: {found} of {len(results)} found."
    )
    table = ["| room | function | change | of | found |", "|---|---|---|---|---|"]
    return "\n".join([head, "", *table, *rows, ""])


def main() -> None:
    """Draw, run, write the page."""
    words = argparse.ArgumentParser()
    words.add_argument("--seed", type=int, default=21)
    words.add_argument("--count", type=int, default=60)
    words.add_argument("--out", type=Path)
    chosen = words.parse_args()
    mutants = drawn(chosen.count, chosen.seed)
    with ThreadPoolExecutor(2) as pool:
        results = list(zip(mutants, pool.map(is_found, mutants), strict=True))
    text = page(results, chosen.seed)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
