"""Draw public functions, and show of each what a caller sees: name, signature, docstring.

`python -m tests.bench.docstrings --seed 7` prints fifty. Somebody who has not seen the code writes
down what each returns; `--bodies` prints the code to hold that against. Methods of public classes
are drawn too; what a folder's files have by one name (docs/map.md), and what has no docstring, is
not.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
INTERFACE = re.compile(r"Interfaces of a folder's files: (.+?)\.$", re.M | re.S)


def sources() -> list[Path]:
    """Return every file of the package and of the trainers."""
    return sorted(path for top in ("convbench", "trainers") for path in (ROOT / top).rglob("*.py"))


def interface_names() -> set[str]:
    """Return the names that docs/map.md lists as the interface of a folder's files."""
    line = INTERFACE.search((ROOT / "docs" / "map.md").read_text())
    return set(re.findall(r"`(\w+)`", line.group(1))) if line else set()


def public_functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the place and the syntax of every public function that has a docstring."""
    interface = interface_names()
    for path in sources():
        module = str(path.relative_to(ROOT))
        for node in ast.parse(path.read_text()).body:
            is_class = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            for function in node.body if is_class else [node]:
                if (
                    isinstance(function, FUNCTIONS)
                    and not function.name.startswith("_")
                    and function.name not in interface
                    and ast.get_docstring(function)
                ):
                    owner = f"{node.name}." if is_class else ""
                    yield f"{module}: {owner}{function.name}", function


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the line of a function's signature."""
    kind = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{kind} {function.name}({ast.unparse(function.args)}){returns}"


def main() -> None:
    """Print the draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--bodies", action="store_true")
    options = parser.parse_args()
    everything = list(public_functions())
    drawn = random.Random(options.seed).sample(everything, options.count)
    for number, (place, function) in enumerate(drawn, 1):
        print(f"\n## {number}. {place}" if options.bodies else f"\n## {number}.")
        if options.bodies:
            print(ast.unparse(function))
        else:
            print(signature(function))
            print(f'"""{ast.get_docstring(function)}"""')


if __name__ == "__main__":
    main()
