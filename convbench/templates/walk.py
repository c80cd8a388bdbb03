"""Walk a template's tree over plain data: no value in here is callable or has attributes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from jinja2 import TemplateError, nodes

from convbench.templates.budget import BITS, LONGEST, STEP, Budget, Missing, Refused
from convbench.templates.functions import FILTERS, LIST, MAPPING, TESTS, TEXT, Function, call, show
from convbench.templates.plain import Plain, world
from convbench.templates.source import Source

_ABSENT: Final = object()
_FAULTS: Final = (
    TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError, TemplateError,
)  # fmt: skip
"""What a call or an operator with the wrong operands raises."""


def fill(source: Source, fields: Mapping[str, object]) -> str:
    """Return the text of a template; Missing for a field that is not there, Refused otherwise."""
    walk = _started(source, fields)
    with _one_kind():
        walk.run(source.tree.body)  # type: ignore[attr-defined]
    return "".join(walk.out)


def evaluate(source: Source, fields: Mapping[str, object]) -> Plain:
    """Return the value of an expression."""
    walk = _started(source, fields)
    with _one_kind():
        return walk.value(source.tree)  # type: ignore[no-any-return]


@contextmanager
def _one_kind() -> Iterator[None]:
    """Turn whatever Python raises on a template's behalf into Refused."""
    try:
        yield
    except Refused:
        raise
    except RecursionError:
        raise Refused("nested too deeply") from None
    except _FAULTS as error:
        raise Refused(str(error) or type(error).__name__) from None


def _started(source: Source, fields: Mapping[str, object]) -> _Walk:
    budget = Budget()
    return _Walk(budget, world(source.names, fields, budget))


class _Walk:
    """One rendering: what is left to spend, the names in scope, the output so far."""

    __slots__ = ("budget", "length", "out", "scope")

    def __init__(self, budget: Budget, scope: dict[str, Any]) -> None:
        self.budget = budget
        self.scope = scope
        self.out: list[str] = []
        self.length = 0

    # Statements

    def run(self, body: list[nodes.Node]) -> None:
        """Run statements in order."""
        for node in body:
            self.budget.spend(STEP)
            _STATEMENTS[type(node)](self, node)

    def output(self, node: nodes.Output) -> None:
        """Print values."""
        for item in node.nodes:
            if isinstance(item, nodes.TemplateData):
                self.put(item.data)
            else:
                self.put(self.shown(self.value(item)))

    def put(self, text: str) -> None:
        """Add to the output, which has a longest length."""
        self.length += len(text)
        if self.length > LONGEST:
            raise Refused(f"makes a text of more than {LONGEST:,} characters")
        self.budget.spend(len(text))
        self.out.append(text)

    def shown(self, value: Any) -> str:
        """Return a value as text, counted."""
        if type(value) is not str:
            self.budget.handle(value)
        return show(value)

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

    # Expressions

    def value(self, node: nodes.Node) -> Any:
        """Return the value of an expression; what it names must be there."""
        self.budget.spend(STEP)
        return _VALUES[type(node)](self, node)

    def present(self, node: nodes.Node) -> Any:
        """Return what a name or an entry holds, else raise Missing."""
        found = self.maybe(node)
        if found is _ABSENT:
            raise Missing(_told(node))
        return found

    def maybe(self, node: nodes.Node) -> Any:
        """Return what a name or an entry holds, or that it is absent."""
        if isinstance(node, nodes.Name):
            return self.scope.get(node.name, _ABSENT)
        if isinstance(node, nodes.Getattr):
            return _entry(self.value(node.node), node.attr)
        if isinstance(node, nodes.Getitem):
            base = self.value(node.node)
            if isinstance(node.arg, nodes.Slice):
                return self.sliced(base, node.arg)
            return _entry(base, self.value(node.arg))
        return self.value(node)

    def sliced(self, base: Any, node: nodes.Slice) -> Any:
        """Return a part of a text or a list."""
        if not isinstance(base, str | list):
            raise Refused(f"a {type(base).__name__} has no parts")
        ends = (node.start, node.stop, node.step)
        part = base[slice(*(None if end is None else self.value(end) for end in ends))]
        self.budget.spend(len(part))
        return part

    def listed(self, node: nodes.List | nodes.Tuple) -> list[Any]:
        """A list; its size counts whole, so that lists of lists of lists do not explode."""
        made = [self.value(item) for item in node.items]
        self.budget.handle(made)
        return made

    def mapped(self, node: nodes.Dict) -> dict[Any, Any]:
        """A mapping."""
        made = {self.value(pair.key): self.value(pair.value) for pair in node.items}
        self.budget.handle(made)
        return made

    def either(self, node: nodes.CondExpr) -> Any:
        """`a if b else c`; without else it is an empty text."""
        if self.value(node.test):
            return self.value(node.expr1)
        return "" if node.expr2 is None else self.value(node.expr2)

    def joined(self, node: nodes.Concat) -> str:
        """`a ~ b`."""
        parts = [self.shown(self.value(part)) for part in node.nodes]
        self.budget.text(sum(map(len, parts)))
        return "".join(parts)

    def compared(self, node: nodes.Compare) -> bool:
        """`a < b <= c`, `a in b`."""
        left = self.value(node.expr)
        for operand in node.ops:
            right = self.value(operand.expr)
            self.budget.handle(left)
            self.budget.handle(right)
            if not _COMPARISONS[operand.op](left, right):
                return False
            left = right
        return True

    def calculated(self, node: nodes.BinExpr) -> Any:
        """Arithmetic of numbers; `+` also joins two texts."""
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, str) and isinstance(right, str) and node.operator == "+":
            self.budget.text(len(left) + len(right))
            return left + right
        return _small(_ARITHMETIC[node.operator](_number(left, node), _number(right, node)))

    def signed(self, node: nodes.Neg | nodes.Pos) -> Any:
        """`-a`, `+a`."""
        number = _number(self.value(node.node), node)
        return -number if isinstance(node, nodes.Neg) else +number

    def filtered(self, node: nodes.Filter) -> Any:
        """`a | b(c)`."""
        if node.name in ("default", "d"):
            found = self.maybe(node.node)  # type: ignore[arg-type]
            if found is _ABSENT:
                return self.value(node.args[0]) if node.args else ""
            return self.apply(FILTERS["default"], found, node)
        return self.apply(FILTERS[node.name], self.value(node.node), node)  # type: ignore[arg-type]

    def tested(self, node: nodes.Test) -> bool:
        """`a is b(c)`."""
        if node.name in ("defined", "undefined"):
            return (self.maybe(node.node) is _ABSENT) is (node.name == "undefined")
        return bool(self.apply(TESTS[node.name], self.value(node.node), node))

    def called(self, node: nodes.Call) -> Any:
        """`range(n)`, or a listed method of a text, a list or a mapping."""
        if isinstance(node.node, nodes.Name):
            return self.counted(node)
        assert isinstance(node.node, nodes.Getattr)
        base, name = self.value(node.node.node), node.node.attr
        table: Mapping[str, Function] = _METHODS.get(type(base), {})
        if name not in table:
            raise Refused(f"a {type(base).__name__} has no {name}(); it has {sorted(table)}")
        return self.apply(table[name], base, node)

    def counted(self, node: nodes.Call) -> list[int]:
        """`range(start, stop, step)` as a list."""
        numbers = range(*(self.value(arg) for arg in node.args))
        self.budget.spend(STEP * len(numbers))
        return list(numbers)

    def apply(
        self, function: Function, value: Any, node: nodes.Call | nodes.Filter | nodes.Test
    ) -> Any:
        """Call a listed function; operands and result count."""
        args = [self.value(arg) for arg in node.args]
        named = {str(pair.key): self.value(pair.value) for pair in node.kwargs}
        return _small(call(self.budget, function, value, args, named))


def _entry(base: Any, key: Any) -> Any:
    """Return an entry of a mapping, an item of a list or text; never a Python attribute."""
    if isinstance(base, dict):
        return base.get(key, _ABSENT)
    if isinstance(base, list | str) and isinstance(key, int):
        return base[key] if -len(base) <= key < len(base) else _ABSENT
    return _ABSENT


def _told(node: nodes.Node) -> str:
    """Return the name of what is absent."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return node.attr
    found = node.arg if isinstance(node, nodes.Getitem) else node
    return str(found.value) if isinstance(found, nodes.Const) else "an item"


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


def _number(value: Any, node: nodes.Node) -> int | float:
    if not isinstance(value, int | float):
        sign = getattr(node, "operator", "?")
        raise Refused(f"{sign} is for numbers in templates; found a {type(value).__name__}")
    _small(value)
    return value


def _small(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > BITS:
        raise Refused(f"found a number of {value.bit_length():,} bits; expected at most {BITS}")
    return value


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "gteq": operator.ge,
    "lt": operator.lt, "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}  # fmt: skip
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_METHODS: Final[dict[type, dict[str, Function]]] = {str: TEXT, dict: MAPPING, list: LIST}
_STATEMENTS: Final[dict[type, Callable[[_Walk, Any], None]]] = {
    nodes.Output: _Walk.output,
    nodes.If: _Walk.branch,
    nodes.For: _Walk.loop,
    nodes.Assign: _Walk.assign,
    nodes.AssignBlock: _Walk.assign_block,
    nodes.With: _Walk.scoped,
}
_VALUES: Final[dict[type, Callable[[_Walk, Any], Any]]] = {
    **dict.fromkeys((nodes.Name, nodes.Getattr, nodes.Getitem), _Walk.present),
    nodes.Const: lambda _walk, node: node.value,
    nodes.TemplateData: lambda _walk, node: node.data,
    **dict.fromkeys((nodes.List, nodes.Tuple), _Walk.listed),
    nodes.Dict: _Walk.mapped,
    nodes.CondExpr: _Walk.either,
    nodes.Concat: _Walk.joined,
    nodes.Compare: _Walk.compared,
    **dict.fromkeys(
        (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod), _Walk.calculated
    ),
    **dict.fromkeys((nodes.Neg, nodes.Pos), _Walk.signed),
    nodes.And: lambda walk, node: walk.value(node.left) and walk.value(node.right),
    nodes.Or: lambda walk, node: walk.value(node.left) or walk.value(node.right),
    nodes.Not: lambda walk, node: not walk.value(node.node),
    nodes.Filter: _Walk.filtered,
    nodes.Test: _Walk.tested,
    nodes.Call: _Walk.called,
}
