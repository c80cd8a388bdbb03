"""Walk a template's tree over plain data, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import TemplateError, nodes

from convbench.templates.budget import LONGEST, STEP, Budget, Refused
from convbench.templates.plain import Plain, world
from convbench.templates.source import Source
from convbench.templates.values import Values

_DATA: Final = nodes.TemplateData
"""The text between expressions: half of what is printed."""
_FAULTS: Final = (
    TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError, TemplateError,
)  # fmt: skip
"""What a call or an operator with the wrong operands raises."""


Quote = Callable[[str, bool], str]
"""From a text that a value prints, and whether it begins a line, to how it stands there; one of
several lines that it changed has its last line to itself."""


def fill(source: Source, fields: Mapping[str, object], quote: Quote | None = None) -> str:
    """Return the text of a template; Missing for a field that is not there, Refused otherwise.

    `quote` is asked how each text that is no part of the template stands in it.
    """
    if source.text is not None:
        return source.text
    body: list[nodes.Node] = source.tree.body  # type: ignore[attr-defined]
    walk = _started(source, fields)
    walk.quote = quote
    with _ONE_KIND:
        walk.run(body)
    return "".join(walk.out)


def evaluate(source: Source, fields: Mapping[str, object]) -> Plain:
    """Return the value of an expression."""
    walk = _started(source, fields)
    with _ONE_KIND:
        return walk.value(source.tree)  # type: ignore[no-any-return]


class _OneKind:
    """Turn whatever Python raises on a template's behalf into Refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RecursionError):
            raise Refused("nested too deeply") from None
        if isinstance(error, _FAULTS) and not isinstance(error, Refused):
            raise Refused(str(error) or type(error).__name__) from None


_ONE_KIND: Final = _OneKind()


def _started(source: Source, fields: Mapping[str, object]) -> _Walk:
    budget = Budget()
    return _Walk(budget, world(source.names, fields, budget), "loop" in source.names)


class _Walk(Values):
    """One rendering: the output so far, beside what its expressions need."""

    __slots__ = ("apart", "counts", "length", "out", "quote")

    def __init__(self, budget: Budget, scope: dict[str, Any], counts: bool) -> None:
        super().__init__(budget, scope)
        self.counts = counts
        """Whether anything asks for its place in a loop."""
        self.out: list[str] = []
        self.length = 0
        self.quote: Quote | None = None
        self.apart = False
        """Whether what comes next begins a line: quoted lines stand before it."""

    def run(self, body: list[nodes.Node]) -> None:
        """Run statements in order."""
        for node in body:
            self.budget.spend(STEP)
            _STATEMENTS[type(node)](self, node)

    def output(self, node: nodes.Output) -> None:
        """Print values."""
        for item in node.nodes:
            value = item.data if type(item) is _DATA else self.value(item)
            if self.quote is None:
                self.put(value if type(value) is str else self.shown(value))
            elif type(item) is _DATA:
                self.put_after(item.data)
            else:
                self.put_quoted(value if type(value) is str else self.shown(value), self.quote)

    def put_after(self, text: str) -> None:
        """Add to the output, on a line of its own after quoted lines."""
        self.put("\n" + text if self.apart and text and text[0] != "\n" else text)
        self.apart = self.apart and not text

    def put_quoted(self, text: str, quote: Quote) -> None:
        """Add what a value prints as it is to be quoted."""
        last = next((one for one in reversed(self.out) if one), "\n")
        found = quote(text, self.apart or last.endswith("\n"))
        self.put_after(found)
        self.apart = self.apart or (found != text and "\n" in found)

    def put(self, text: str) -> None:
        """Add to the output, which has a longest length."""
        length = len(text)
        self.length += length
        if self.length > LONGEST:
            raise Refused(f"makes a text of more than {LONGEST:,} characters")
        self.budget.left -= length
        if self.budget.left < 0:
            self.budget.spend(0)
        self.out.append(text)

    def branch(self, node: nodes.If) -> None:
        """If, elif, else."""
        for case in (node, *node.elif_):
            if self.value(case.test):
                self.run(case.body)
                return
        self.run(node.else_)

    def loop(self, node: nodes.For) -> None:
        """For: names that are set inside end with each round."""
        outer = self.scope
        items = self.items(self.value(node.iter))
        if node.test is not None:
            items = [item for item in items if self.passes(node, outer, item)]
        for index, item in enumerate(items):
            self.scope = self.inner(outer)
            if self.counts:
                self.scope["loop"] = _position(items, index)
            self.bind(node.target, item)
            self.run(node.body)
        self.scope = outer
        if not items:
            self.run(node.else_)

    def passes(self, node: nodes.For, outer: dict[str, Any], item: Any) -> bool:
        """Whether `for … if` keeps an item."""
        self.scope = self.inner(outer)
        self.bind(node.target, item)
        kept = bool(self.value(node.test))  # type: ignore[arg-type]
        self.scope = outer
        return kept

    def inner(self, outer: dict[str, Any]) -> dict[str, Any]:
        """Return a scope within another."""
        self.budget.spend(STEP + len(outer))
        return dict(outer)

    def items(self, value: Any) -> list[Any]:
        """Return what is looped over: a list, a mapping's keys, a text's characters."""
        if not isinstance(value, list | dict | str):
            raise Refused(f"found a {type(value).__name__}; expected a list to loop over")
        self.budget.spend(len(value))
        return value if isinstance(value, list) else list(value)

    def bind(self, target: nodes.Node, value: Any) -> None:
        """Give a name, or as many names as a list has items, a value."""
        if isinstance(target, nodes.Name):
            self.scope[target.name] = value
            return
        if not isinstance(target, nodes.Tuple):
            raise Refused(f"{type(target).__name__.lower()} cannot be set")
        found = self.items(value)
        if len(found) != len(target.items):
            raise Refused(f"found {len(found)} values for {len(target.items)} names")
        for name, item in zip(target.items, found, strict=True):
            self.bind(name, item)

    def assign(self, node: nodes.Assign) -> None:
        """Set a name."""
        self.bind(node.target, self.value(node.node))

    def assign_block(self, node: nodes.AssignBlock) -> None:
        """Set a name to what a block prints."""
        out, self.out, length = self.out, [], self.length
        self.run(node.body)
        text = "".join(self.out)
        self.out, self.length = out, length
        self.bind(node.target, text)

    def scoped(self, node: nodes.With) -> None:
        """Set names for a block alone."""
        outer = self.scope
        values = [self.value(value) for value in node.values]
        self.scope = self.inner(outer)
        for target, value in zip(node.targets, values, strict=True):
            self.bind(target, value)
        self.run(node.body)
        self.scope = outer


def _position(items: list[Any], index: int) -> dict[str, Any]:
    """Return what a template may ask of its loop."""
    count = len(items)
    found = {
        "index": index + 1, "index0": index, "revindex": count - index,
        "revindex0": count - index - 1, "first": index == 0, "last": index == count - 1,
        "length": count,
    }  # fmt: skip
    if index:
        found["previtem"] = items[index - 1]
    if index < count - 1:
        found["nextitem"] = items[index + 1]
    return found


_STATEMENTS: Final[dict[type, Callable[[_Walk, Any], None]]] = {
    nodes.Output: _Walk.output,
    nodes.If: _Walk.branch,
    nodes.For: _Walk.loop,
    nodes.Assign: _Walk.assign,
    nodes.AssignBlock: _Walk.assign_block,
    nodes.With: _Walk.scoped,
}
