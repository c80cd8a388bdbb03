"""The value of an expression: nothing in here is callable or has attributes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import nodes

from convbench.templates.budget import BITS, STEP, Budget, Missing, Refused
from convbench.templates.calls import ABSENT, Function, call, show
from convbench.templates.conditions import TESTS
from convbench.templates.filters import FILTERS
from convbench.templates.methods import METHODS

_PYTHON_S: Final = re.compile(r"^[\w.<>]+\(\)")
"""Name of one of our own functions at the head of an error."""


class Values:
    """Evaluates expressions: what is left to spend, and the names in scope."""

    __slots__ = ("budget", "scope")

    def __init__(self, budget: Budget, scope: dict[str, Any]) -> None:
        self.budget = budget
        self.scope = scope

    def value(self, node: nodes.Node) -> Any:
        """Return the value of an expression; what it names must be there."""
        self.budget.left -= STEP
        if self.budget.left < 0:
            self.budget.spend(0)
        return _VALUES[type(node)](self, node)

    def item(self, node: nodes.Getitem) -> Any:
        """Return what an entry, an item or a part of a list holds, else raise Missing."""
        found = self.maybe(node)
        if found is ABSENT:
            raise Missing(str(node.arg.value) if isinstance(node.arg, nodes.Const) else "an item")
        return found

    def entry(self, node: nodes.Getattr) -> Any:
        """Return what an entry holds, else raise Missing."""
        found = _entry(self.value(node.node), node.attr)
        if found is ABSENT:
            raise Missing(node.attr)
        return found

    def named(self, node: nodes.Name) -> Any:
        """Return what a name holds, which most expressions are."""
        found = self.scope.get(node.name, ABSENT)
        if found is ABSENT:
            raise Missing(node.name)
        return found

    def maybe(self, node: nodes.Node) -> Any:
        """Return what a name or an entry holds, or that it is absent."""
        if isinstance(node, nodes.Name):
            return self.scope.get(node.name, ABSENT)
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

    def alone(self, node: nodes.Slice) -> None:
        """`1:2` is no value."""
        raise Refused("a part such as [1:2] takes one start, one end and one step")

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
        """`a | b(c)`; `default` alone may follow what is absent."""
        assert node.node is not None
        find = self.maybe if node.name in ("default", "d") else self.value
        return self.apply(FILTERS[node.name], find(node.node), node)

    def tested(self, node: nodes.Test) -> bool:
        """`a is b(c)`."""
        if node.name in ("defined", "undefined"):
            return (self.maybe(node.node) is ABSENT) is (node.name == "undefined")
        return bool(self.apply(TESTS[node.name], self.value(node.node), node))

    def called(self, node: nodes.Call) -> Any:
        """`range(n)`, or a listed method of a text, a list or a mapping."""
        if isinstance(node.node, nodes.Name):
            return self.counted(node)
        assert isinstance(node.node, nodes.Getattr)
        base, name = self.value(node.node.node), node.node.attr
        table: Mapping[str, Function] = METHODS.get(type(base), {})
        if name not in table:
            raise Refused(f"a {type(base).__name__} has no {name}(); it has {sorted(table)}")
        return self.apply(table[name], base, node)

    def counted(self, node: nodes.Call) -> list[int]:
        """`range(start, stop, step)` as a list."""
        numbers = range(*(self.value(arg) for arg in node.args))
        self.budget.spend(STEP * len(numbers))
        return list(numbers)

    def apply(
        self,
        function: Function,
        value: Any,
        node: nodes.Call | nodes.Filter | nodes.Test,
    ) -> Any:
        """Call a listed function; operands and result count."""
        args = [self.value(arg) for arg in node.args]
        named = {str(pair.key): self.value(pair.value) for pair in node.kwargs}
        try:
            return _small(call(self.budget, function, value, args, named))
        except TypeError as error:
            name = node.node.attr if isinstance(node, nodes.Call) else node.name  # type: ignore[attr-defined]
            raise Refused(f"{name}: {_PYTHON_S.sub('it', str(error))}") from None

    def shown(self, value: Any) -> str:
        """Return a value as text, counted."""
        if type(value) is not str:
            self.budget.handle(value)
        return show(value)


def _entry(base: Any, key: Any) -> Any:
    """Return an entry of a mapping, an item of a list or text; never a Python attribute."""
    if isinstance(base, dict):
        return base.get(key, ABSENT)
    if isinstance(base, list | str) and isinstance(key, int):
        return base[key] if -len(base) <= key < len(base) else ABSENT
    return ABSENT


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
_VALUES: Final[dict[type, Callable[[Values, Any], Any]]] = {
    nodes.Name: Values.named,
    nodes.Getattr: Values.entry,
    nodes.Getitem: Values.item,
    nodes.Const: lambda _walk, node: node.value,
    nodes.TemplateData: lambda _walk, node: node.data,
    **dict.fromkeys((nodes.List, nodes.Tuple), Values.listed),
    nodes.Slice: Values.alone,
    nodes.Dict: Values.mapped,
    nodes.CondExpr: Values.either,
    nodes.Concat: Values.joined,
    nodes.Compare: Values.compared,
    **dict.fromkeys(
        (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod), Values.calculated
    ),
    **dict.fromkeys((nodes.Neg, nodes.Pos), Values.signed),
    nodes.And: lambda walk, node: walk.value(node.left) and walk.value(node.right),
    nodes.Or: lambda walk, node: walk.value(node.left) or walk.value(node.right),
    nodes.Not: lambda walk, node: not walk.value(node.node),
    nodes.Filter: Values.filtered,
    nodes.Test: Values.tested,
    nodes.Call: Values.called,
}
