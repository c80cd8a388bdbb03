"""From a template's text to its tree: parsed by Jinja, every node on a list, size bounded.

Jinja's compiler is not used: it computes constants while it compiles, and what it makes is
Python code with the reach of Python.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from jinja2 import Environment, TemplateError, nodes
from jinja2.parser import Parser

from convbench.templates.budget import BITS, Refused
from convbench.templates.conditions import TESTS
from convbench.templates.filters import FILTERS
from convbench.templates.methods import METHOD_NAMES

LONGEST_SOURCE: Final = 100_000
"""Most characters of a template's own text."""
NODES: Final = 2_000
"""Most nodes of a template's tree; the shipped ones have at most about 40."""
NESTED: Final = 60
"""Deepest nesting of a template's tree."""

_JINJA: Final = Environment(  # noqa: S701 - parses only: it renders nothing
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
)
_ALLOWED: Final = frozenset(
    {
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign,
        nodes.AssignBlock, nodes.With, nodes.Name, nodes.Const, nodes.Tuple, nodes.List,
        nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr, nodes.Filter, nodes.Test,
        nodes.Call, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Concat, nodes.Compare,
        nodes.Operand, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod,
        nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos,
    }
)  # fmt: skip
"""Everything a template may be made of; macros, imports, blocks, namespaces and `**` are not."""
_ASKS_WHETHER: Final = frozenset({"defined", "undefined", "default", "d"})
"""Tests and filters that take a name which is not there."""


@dataclass(frozen=True, slots=True)
class Source:
    """A template or an expression that has passed the lists."""

    tree: nodes.Node
    names: frozenset[str]
    """Every name that it mentions: no other field is copied into its world."""
    text: str | None = None
    """What a template says that is nothing but text; None of another."""


@lru_cache(maxsize=256)
def template(text: str) -> Source:
    """Return a template's tree; Refused for what a template may not hold, or bad syntax."""
    return _parsed(text, whole=True)


@lru_cache(maxsize=256)
def expression(text: str) -> Source:
    """Return the tree of a bare expression, as tasks map rows with."""
    return _parsed(text, whole=False)


def free_names(text: str) -> frozenset[str]:
    """Return the fields that a template cannot do without: names that it reads, binds nowhere and
    asks nowhere whether they are there (`is defined`, `default`). Refused as `template` does."""
    read: set[str] = set()
    excused = {"range", "loop"}
    for node, _ in _walk(template(text).tree):
        if isinstance(node, nodes.Name):
            (read if node.ctx == "load" else excused).add(node.name)
        elif isinstance(node, nodes.Test | nodes.Filter) and node.name in _ASKS_WHETHER:
            excused |= {node.node.name} if isinstance(node.node, nodes.Name) else set()
    return frozenset(read - excused)


def tested_names(text: str) -> frozenset[str]:
    """Return the names that a template's conditions ask about: what stands on them may be empty.
    Refused as `template` does."""
    branches = (node for node, _ in _walk(template(text).tree))
    tests = (node.test for node in branches if isinstance(node, nodes.If | nodes.CondExpr))
    inside = (node for test in tests for node, _ in _walk(test))
    return frozenset(node.name for node in inside if isinstance(node, nodes.Name))


def _parsed(text: str, *, whole: bool) -> Source:
    if len(text) > LONGEST_SOURCE:
        raise Refused(f"found {len(text):,} characters; expected at most {LONGEST_SOURCE:,}")
    try:
        text.encode()  # half a surrogate pair can be neither stored nor sent
        tree = _JINJA.parse(text) if whole else _one(text)
        return Source(tree, _checked(tree), _constant(tree))
    except RecursionError:
        raise Refused(f"nested more than {NESTED} deep") from None
    except (TemplateError, ValueError, OverflowError, MemoryError) as error:
        raise Refused(str(error)) from None


def _constant(tree: nodes.Node) -> str | None:
    """Return the text of a template that is nothing else; None of another, or of an expression."""
    body = tree.body if isinstance(tree, nodes.Template) else [tree]
    if not all(isinstance(node, nodes.Output) for node in body):
        return None
    printed = [item for node in body for item in node.nodes]  # type: ignore[attr-defined]
    data = [item.data for item in printed if isinstance(item, nodes.TemplateData)]
    return "".join(data) if len(data) == len(printed) else None


def _one(text: str) -> nodes.Expr:
    """Return the tree of one expression, which is all of the text."""
    parser = Parser(_JINJA, text, state="variable")
    tree = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("expected one expression; found more after it", parser.stream.current.lineno)
    return tree


def _checked(tree: nodes.Node) -> frozenset[str]:
    """Return the names in a tree; Refused where a node is on no list, or there are too many."""
    names: set[str] = set()
    for count, (node, depth) in enumerate(_walk(tree), 1):
        if count > NODES or depth > NESTED:
            raise Refused(f"expected at most {NODES:,} nodes, nested at most {NESTED} deep")
        _check(node)
        if isinstance(node, nodes.Name):
            names.add(node.name)
    return frozenset(names)


def _walk(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Yield every node with its depth, outer ones first, without recursion."""
    todo = deque([(tree, 0)])
    while todo:
        node, depth = todo.popleft()
        yield node, depth
        todo.extend((child, depth + 1) for child in node.iter_child_nodes())


def _at(node: nodes.Node) -> str:
    return f"line {node.lineno}: " if node.lineno else ""


def _check(node: nodes.Node) -> None:
    """Refuse a node that is not on the lists."""
    kind = type(node)
    if kind not in _ALLOWED:
        raise Refused(f"{_at(node)}{kind.__name__.lower()} is not for templates")
    if isinstance(node, nodes.Call | nodes.Filter | nodes.Test):
        _check_call(node)
    elif isinstance(node, nodes.Const):
        _check_constant(node.value)
    elif isinstance(node, nodes.For) and node.recursive:
        raise Refused(f"{_at(node)}recursive loops are not for templates")
    elif isinstance(node, nodes.AssignBlock) and node.filter is not None:
        raise Refused(f"{_at(node)}set takes no filter")


def _check_call(node: nodes.Call | nodes.Filter | nodes.Test) -> None:
    """Only what is named in the lists is called, with arguments that stand in the template."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise Refused(f"{_at(node)}* and ** are not for templates")
    if isinstance(node, nodes.Call):
        named = node.node
        if isinstance(named, nodes.Name) and named.name == "range":
            return
        if not isinstance(named, nodes.Getattr) or named.attr not in METHOD_NAMES:
            found = getattr(named, "attr", getattr(named, "name", "a value"))
            raise Refused(
                f"{_at(node)}{found!r} is not to be called; there is: "
                f"range, {', '.join(sorted(METHOD_NAMES))}"
            )
    else:
        known = FILTERS if isinstance(node, nodes.Filter) else TESTS
        if node.name not in known:
            what = type(node).__name__.lower()
            raise Refused(
                f"{_at(node)}no {what} {node.name!r}; there is: {', '.join(sorted(known))}"
            )


def _check_constant(value: object) -> None:
    if isinstance(value, int) and value.bit_length() > BITS:
        raise Refused(f"found a number of {value.bit_length():,} bits; expected at most {BITS}")
    if isinstance(value, str):
        value.encode()  # written as an escape, it stands in no source
