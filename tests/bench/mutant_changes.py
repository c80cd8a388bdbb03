"""Small wrong changes of a line: what may be changed in a function, and writing it into a copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a room."""

    room: str
    file: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    source: str
    """The whole line as it is, without its indentation."""

    @property
    def name(self) -> str:
        """What it is called in a list: file and function, without the line, which moves."""
        return f"{self.file.removeprefix('convbench/').removesuffix('.py')}:{self.function}"

    def applied(self, source: str) -> str:
        """Return the file's text with the change."""
        lines = source.splitlines(keepends=True)
        lines[self.line - 1] = lines[self.line - 1].replace(self.before, self.after, 1)
        return "".join(lines)


def candidates(room: str, tree: Path, lines_run: Mapping[str, set[int]]) -> list[Mutant]:
    """Return every change that can be made to the lines that ran, by file, of a room."""
    possible = []
    for file, lines in lines_run.items():
        source = (tree / file).read_text()
        texts = source.splitlines()
        for function, node in _functions(ast.parse(source)):
            for kind, part, after in _changes(node):
                at = part.lineno
                if at not in lines or part.end_lineno != at:
                    continue
                text = texts[at - 1]
                before = text.encode()[part.col_offset : part.end_col_offset].decode()
                if before != after and text.count(before) == 1:
                    change = Mutant(room, file, function, at, kind, before, after, text.strip())
                    possible.append(change)
    return possible


def _functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every function with its name, `Class.method` for methods."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{outer}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")


def _changes(function: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield what may be changed in a function: kind, part, the new text."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
            yield "comparison turned", node, f"({ast.unparse(_turned(node))})"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield "one more", node, str(node.value + 1)
            yield "one less", node, f"({node.value - 1})"
        elif isinstance(node, ast.If):
            yield "branch dropped", node.test, "False"
        elif isinstance(node, ast.Return) and not _is_none(node.value):
            yield "return None", node, "return None"
        elif isinstance(node, ast.Call) and _swappable(node):
            yield "arguments swapped", node, ast.unparse(_swapped(node))


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _turned(node: ast.Compare) -> ast.Compare:
    return ast.Compare(node.left, [TURNED[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _swappable(node: ast.Call) -> bool:
    stars = any(isinstance(one, ast.Starred) for one in node.args)
    return len(node.args) >= 2 and not stars and ast.dump(node.args[0]) != ast.dump(node.args[1])


def _swapped(node: ast.Call) -> ast.Call:
    first, second, *rest = node.args
    return ast.Call(node.func, [second, first, *rest], node.keywords)
