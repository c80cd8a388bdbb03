"""Render untrusted templates with jinja2's sandbox over plain data, counting their work.

A template may contain the nodes in `_ALLOWED` and call `range` and what `template_calls` lists; all
else is refused when it is parsed. It sees copies of its fields (`plain_data`): nothing callable,
mutable or with attributes. A spec may come from a stranger, so the source, each text and number,
and the work of one rendering are bounded.

Jinja2 compiles the parsed tree rewritten: each operation whose cost depends on data (a method, a
comparison, `~`, a list, a slice, a loop, what is printed) has become a filter that counts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any, Final, cast

from jinja2 import StrictUndefined, Template, TemplateError, nodes, pass_context
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from convbench.util.plain_data import (
    BITS,
    EXACT,
    LONGEST,
    STEP,
    MissingField,
    PlainValue,
    TemplateRefusal,
    WorkBudget,
    as_number,
    check_bound,
    check_present,
    plain_fields,
)
from convbench.util.template_calls import (
    ASKS_WHETHER,
    FILTERS,
    METHOD_NAMES,
    METHODS,
    TESTS,
    method_filter,
    split_words,
    with_counting,
)

LINE: Final = 600
"""Most characters of an error about a template."""
LONGEST_SOURCE: Final = 100_000
"""Most characters of a template's own text."""
MOST_NODES: Final = 2_000
"""Most nodes of a template's tree; the shipped ones have at most about 40."""
NESTED: Final = 60
"""Deepest nesting of a template's tree."""
_ALLOWED: Final = split_words(
    "Add And Assign AssignBlock Call Compare Concat CondExpr Const Dict Div Filter FloorDiv For "
    "Getattr Getitem If Keyword List Mod Mul Name Neg Not Operand Or Output Pair Pos Slice Sub "
    "Template TemplateData Test Tuple With"
)
"""Nodes that a template may contain; macros, imports, blocks, namespaces and `**` are excluded."""
_LOOP: Final = split_words("index index0 revindex revindex0 first last length previtem nextitem")
_RESERVED: Final = (("self", "load"), ("self", "store"), ("loop", "store"))
Quote = Callable[[str, bool], str]
"""Quotes a printed value: takes its text and whether it begins a line, returns the quoted text. If
a text of several lines is changed, what follows it begins a new line."""


def one_line(text: str) -> str:
    """Return the text as one printable line of at most LINE characters.

    Runs of white space and unprintable characters become single spaces, or nothing at the ends. A
    longer line is cut and ends in `…`. Only the first 2 * LINE characters of the text are read; the
    rest is dropped, without `…` if the line is short enough.
    """
    signs = "".join(sign if sign.isprintable() else " " for sign in text[: 2 * LINE])
    line = " ".join(signs.split())
    return line if len(line) <= LINE else line[: LINE - 1] + "…"


# -- filters that compiled code calls and no template can name


class _Rendering(Context):
    """The state of one rendering: its work budget, and how its output ends so far."""

    budget: WorkBudget
    quote: Quote | None = None
    length = 0
    last = "\n"
    """The last piece that was printed."""
    after_quote = False
    """Whether the last piece is quoted lines, so that the next piece must begin a new line."""

    def put(self, text: str) -> str:
        """Return a piece of the output after counting it.

        Raise TemplateRefusal if the output becomes too long.
        """
        if not text:
            return text
        if self.after_quote:
            text = text if text[0] == "\n" else "\n" + text
            self.after_quote = False
        self.last = text
        self.length += len(text)
        if self.length > LONGEST:
            raise TemplateRefusal(f"prints more than {LONGEST:,} characters")
        self.budget.spend_units(len(text))
        return text

    def put_value(self, value: object) -> str:
        """Return the text that a value prints, quoted if this rendering quotes values."""
        text = self.show(value)
        if self.quote is None:
            return self.put(text)
        quoted = self.quote(text, self.after_quote or self.last.endswith("\n"))
        piece = self.put(quoted)
        self.after_quote |= quoted != text and "\n" in quoted
        return piece

    def show(self, value: object) -> str:
        """Return a value as text after counting it."""
        self.budget.count_value(value)
        return str(value)

    def literal(self, value: object) -> object:
        """Return a list or mapping literal of the template after counting it."""
        self.budget.count_value(value)
        return value

    def concatenate(self, parts: list[Any]) -> str:
        """Return the text of `a ~ b`."""
        text = "".join([self.show(part) for part in parts])
        check_bound("characters in a text", len(text), LONGEST)
        return text

    def compare(self, operands: list[Any], operators: Sequence[str]) -> bool:
        """Return the value of `a < b <= c` or `a in b`; all operands are evaluated."""
        for name, left, right in zip(operators, operands, operands[1:], strict=False):
            test = _TESTS[{"gteq": "ge", "lteq": "le", "notin": "in"}.get(name, name)]
            if test(self, left, right) is (name == "notin"):
                return False
        return True

    def slice_of(self, value: Any, *ends: Any) -> Any:
        """Return the value of `a[1:3]`.

        Raise TemplateRefusal if it is neither a text nor a list.
        """
        check_present(value)
        if not isinstance(value, str | list):
            raise TemplateRefusal(f"a {type(value).__name__} cannot be sliced")
        part = value[slice(*ends)]
        self.budget.spend_units(len(part))
        return part

    def range_of(self, *ends: Any) -> list[int]:
        """Return `range(start, stop, step)` as a list."""
        self.budget.spend_units(STEP * len(range(*ends)))
        return list(range(*ends))

    def each(self, value: Any, cost: int) -> list[Any]:
        """Return the items of a loop after counting all its rounds, at `cost` units each."""
        check_present(value)
        if not isinstance(value, list | dict | str):
            raise TemplateRefusal(f"found a {type(value).__name__}; expected a list to loop over")
        self.budget.spend_units(cost * len(value))
        return value if isinstance(value, list) else list(value)


class _AbsentValue(StrictUndefined):
    """Value of a name that is not defined: every use of it raises MissingField."""

    __slots__ = ()

    def __init__(self, hint: str | None = None, obj: Any = None, name: str | None = None) -> None:
        super().__init__(hint, obj, name, MissingField)  # type: ignore[arg-type]

    @property
    def _undefined_message(self) -> str:
        return self._undefined_name or "an item"


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox where `a.b` is an entry, never an attribute, and nothing is callable."""

    context_class = _Rendering
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%"})
    intercepted_unops = frozenset({"+", "-"})

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an entry of a mapping, an item of a list or text, or a field of `loop`; an
        undefined value if it is missing.

        Raise MissingField if the name is missing and begins with _.
        """
        if isinstance(obj, dict) and type(argument) in EXACT and argument in obj:
            return obj[argument]
        if isinstance(obj, list | str) and isinstance(argument, int):
            if -len(obj) <= argument < len(obj):
                return obj[argument]
        elif isinstance(obj, LoopContext) and argument in _LOOP:
            value = getattr(obj, argument)
            return self.undefined(name=argument) if isinstance(value, Undefined) else value
        check_present(obj)
        check_present(argument)
        name = str(argument) if type(argument) in EXACT else "an item"
        if name.startswith("_"):  # not even `is defined` may ask about it
            raise MissingField(name)
        return self.undefined(name=name)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the entry `a["b"]` for `a.b`."""
        return self.getitem(obj, attribute)

    def is_safe_callable(self, obj: Any) -> bool:
        """Return False: methods and `range` have become filters."""
        return False

    def call_filter(self, name: str, *args: Any, **named: Any) -> Any:
        """Return the result of a filter called by name, as `map` does.

        Raise TemplateRefusal if there is no such filter.
        """
        if name not in FILTERS:
            raise TemplateRefusal(f"found {name!r}; expected one of: {', '.join(FILTERS)}")
        return super().call_filter(name, *args, **named)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an arithmetic operation; `+` also joins two texts."""
        if isinstance(left, str) and isinstance(right, str) and operator == "+":
            return cast(_Rendering, context).concatenate([left, right])
        numbers = as_number(left, operator), as_number(right, operator)
        return as_number(super().call_binop(context, operator, *numbers))

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Return the value of `-a` or `+a`."""
        return super().call_unop(context, operator, as_number(arg, operator))


_OPERATIONS: Final = split_words(
    "put put_value show literal concatenate compare slice_of range_of each"
)
_SANDBOX: Final = _Sandbox(
    trim_blocks=True, lstrip_blocks=True, optimized=False, autoescape=False, undefined=_AbsentValue
)
_SANDBOX.globals = {}
_TESTS: Final = {name: with_counting(name, cast(Any, _SANDBOX.tests[name])) for name in TESTS}
_SANDBOX.tests = cast(Any, _TESTS)
_SANDBOX.filters["items"] = METHODS[dict]["items"]
_SANDBOX.filters = {
    **{name: with_counting(name, _SANDBOX.filters[name]) for name in FILTERS},
    **{f"{name}()": method_filter(name) for name in METHOD_NAMES},
    **{f"<{name}>": pass_context(getattr(_Rendering, name)) for name in _OPERATIONS},
}


# -- from a template's text to what jinja2 compiles


@dataclass(frozen=True)
class TemplateSource:
    """A parsed template or expression that contains allowed nodes only."""

    tree: nodes.Template
    names: frozenset[str]
    """Every name in it: only these fields are copied for a rendering."""
    text: str | None = None
    """The text of a template without any expression; None for any other template."""
    several_lines: bool = False

    @cached_property
    def compiled_template(self) -> Template:
        """The compiled template; compiled at first use, since most templates are only checked."""
        return Template.from_code(_SANDBOX, _SANDBOX.compile(self.tree), {})

    def line_of(self, error: BaseException) -> str:
        """Return `line 3: ` for an error in a template of several lines, else an empty text."""
        step, line = error.__traceback__, None
        while step and self.several_lines:
            if step.tb_frame.f_code.co_filename == "<template>":
                line = self.compiled_template.get_corresponding_lineno(step.tb_lineno)
            step = step.tb_next
        return f"line {line}: " if line else ""


@lru_cache(maxsize=256)
def parse_template(text: str) -> TemplateSource:
    """Return the parsed template.

    Raise TemplateRefusal for bad syntax, a node that is not allowed, or a template that is too
    large.
    """
    tree = _parse_source(text, _SANDBOX.parse)
    names = _checked_names(tree)
    printed = [item for node in tree.body for item in getattr(node, "nodes", [node])]
    data = [item.data for item in printed if isinstance(item, nodes.TemplateData)]
    constant = "".join(data) if len(data) == len(printed) else None
    return TemplateSource(_rewrite_tree(tree), names, constant, "\n" in text)


@lru_cache(maxsize=256)
def parse_expression(text: str) -> TemplateSource:
    """Return a parsed bare expression, as tasks use to map rows, for `evaluate_expression`.

    Raise TemplateRefusal as `parse_template` does, and for anything after the expression.
    """
    tree = _parse_source(text, _parse_expression)
    names = _checked_names(tree)
    result = nodes.Assign(nodes.Name("result", "store"), tree, lineno=1)
    return TemplateSource(_rewrite_tree(nodes.Template([result], lineno=1)), names)


def free_names(text: str) -> frozenset[str]:
    """Return the fields that a template requires: names that it reads, never binds and never tests
    for presence (`is defined`, `default`). Raise TemplateRefusal as parsing does."""
    read: set[str] = set()
    excused = {"range", "loop"}
    for node, _ in _walk_nodes(parse_template(text).tree):
        if isinstance(node, nodes.Name):
            (read if node.ctx == "load" else excused).add(node.name)
        elif isinstance(node, nodes.Test | nodes.Filter) and node.name in ASKS_WHETHER:
            excused |= {node.node.name} if isinstance(node.node, nodes.Name) else set()
    return frozenset(read - excused)


def tested_names(text: str) -> frozenset[str]:
    """Return the names used in a template's conditions (`if`): text that depends on them may be
    empty. Raise TemplateRefusal as parsing does."""
    branches = (node for node, _ in _walk_nodes(parse_template(text).tree))
    tests = (node.test for node in branches if isinstance(node, nodes.If | nodes.CondExpr))
    inside = (node for test in tests for node, _ in _walk_nodes(test))
    return frozenset(node.name for node in inside if isinstance(node, nodes.Name))


def _parse_source(text: str, parse: Callable[[str], Any]) -> Any:
    check_bound("characters of source", len(text), LONGEST_SOURCE)
    try:
        text.encode()  # half a surrogate pair can be neither stored nor sent
        return parse(text)
    except RecursionError:
        raise TemplateRefusal(f"nested more than {NESTED} deep") from None
    except TemplateError as error:
        raise _line_error(getattr(error, "lineno", 0), error.message or "bad syntax") from None
    except (ValueError, OverflowError, MemoryError) as error:
        raise TemplateRefusal(str(error)) from None


def _parse_expression(text: str) -> nodes.Expr:
    """Return the tree of a text that is exactly one expression."""
    parser = Parser(_SANDBOX, text, state="variable")
    tree = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail("expected one expression; found more after it", parser.stream.current.lineno)
    return tree


def _line_error(line: int, text: str) -> TemplateRefusal:
    return TemplateRefusal(f"line {line}: {text}" if line else text)


def _walk_nodes(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Yield every node with its depth, outer ones first, without recursion."""
    todo = deque([(tree, 0)])
    while todo:
        node, depth = todo.popleft()
        yield node, depth
        todo.extend((child, depth + 1) for child in node.iter_child_nodes())


def _checked_names(tree: nodes.Node) -> frozenset[str]:
    """Return the names in a tree.

    Raise TemplateRefusal for a node that is not allowed, or too many nodes or levels.
    """
    names: set[str] = set()
    for count, (node, depth) in enumerate(_walk_nodes(tree), 1):
        check_bound("nodes", count, MOST_NODES)
        check_bound("levels of nesting", depth, NESTED)
        if fault := _node_fault(node):
            raise _line_error(node.lineno, fault)
        if isinstance(node, nodes.Name):
            names.add(node.name)
    return frozenset(names)


def _node_fault(node: nodes.Node) -> str | None:
    """Return why a node is not allowed in templates; None if it is allowed."""
    kind = type(node).__name__
    if kind not in _ALLOWED:
        return f"{kind.lower()} is not allowed in templates"
    if isinstance(node, nodes.Name) and (node.name, node.ctx) in _RESERVED:
        return f"templates cannot {'set' if node.ctx == 'store' else node.ctx} {node.name}"
    if isinstance(node, nodes.Call | nodes.Filter | nodes.Test):
        return _fault_of_call(node)
    if isinstance(node, nodes.Const):
        return _fault_of_constant(node.value)
    if isinstance(node, nodes.For) and node.recursive:
        return "recursive loops are not allowed in templates"
    if isinstance(node, nodes.AssignBlock) and node.filter is not None:
        return "set takes no filter"
    return None


def _fault_of_call(node: nodes.Call | nodes.Filter | nodes.Test) -> str | None:
    """Return why a call is not allowed; None for a listed name with literal argument lists."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        return "* and ** are not allowed in templates"
    if len({pair.key for pair in node.kwargs}) < len(node.kwargs):
        return "an argument is named twice"
    if isinstance(node, nodes.Call):
        name = getattr(node.node, "attr", getattr(node.node, "name", "a value"))
        if name in (METHOD_NAMES if isinstance(node.node, nodes.Getattr) else ["range"]):
            return None
        return (
            f"{name!r} cannot be called; expected one of range, {', '.join(sorted(METHOD_NAMES))}"
        )
    known = FILTERS if isinstance(node, nodes.Filter) else TESTS
    if node.name in known:
        return None
    return (
        f"unknown {type(node).__name__.lower()} {node.name!r}; expected one of {', '.join(known)}"
    )


def _fault_of_constant(value: object) -> str | None:
    if isinstance(value, int) and value.bit_length() > BITS:
        return f"found a number of {value.bit_length():,} bits; expected at most {BITS}"
    if isinstance(value, float) and not isfinite(value):
        return "found a number that is too large"
    if isinstance(value, str) and not value.isascii() and re.search("[\ud800-\udfff]", value):
        return "found half a surrogate pair; expected text"  # as an escape, it stands in no source
    return None


def _rewrite_tree(tree: nodes.Template) -> nodes.Template:
    _Rewriter().visit(tree)
    return cast(nodes.Template, tree.set_environment(_SANDBOX))


class _Rewriter(NodeTransformer):
    """Replaces each operation of a checked tree by a filter that counts its work."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Return the replacement of a node, after its children were replaced."""
        self.generic_visit(node)
        rewrite = _REWRITES.get(type(node))
        return rewrite(node) if rewrite else node


def _make_operation(
    name: str, node: nodes.Node, value: nodes.Node, *args: nodes.Node
) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=node.lineno)


def _rewrite_output(node: nodes.Output) -> nodes.Node:
    node.nodes = [
        _make_operation("<put>", item, nodes.Const(item.data))
        if isinstance(item, nodes.TemplateData)
        else _make_operation("<put_value>", item, item)
        for item in node.nodes
    ]
    return node


def _rewrite_block(node: nodes.AssignBlock) -> nodes.Node:
    for operation in node.find_all(nodes.Filter):
        if operation.name in ("<put>", "<put_value>"):  # nothing is printed here yet
            operation.name = "<show>"
    return node


def _rewrite_loop(node: nodes.For) -> nodes.Node:
    cost = STEP * sum(1 for _ in _walk_nodes(node))
    node.iter = _make_operation("<each>", node, node.iter, nodes.Const(cost))
    return node


def _rewrite_comparison(node: nodes.Compare) -> nodes.Node:
    operands = nodes.List([node.expr, *(operand.expr for operand in node.ops)])
    operators = nodes.Const(tuple(operand.op for operand in node.ops))
    return _make_operation("<compare>", node, operands, operators)


def _rewrite_list(node: nodes.Tuple) -> nodes.Node:
    if any(isinstance(item, nodes.Slice) for item in node.items):
        raise _line_error(
            node.lineno, "a slice such as [1:2] takes one start, one end and one step"
        )
    return (
        _make_operation("<literal>", node, nodes.List(node.items)) if node.ctx == "load" else node
    )


def _rewrite_choice(node: nodes.CondExpr) -> nodes.Node:
    return nodes.CondExpr(node.test, node.expr1, node.expr2 or nodes.Const(""))


def _rewrite_item(node: nodes.Getitem) -> nodes.Node:
    if not isinstance(node.arg, nodes.Slice):
        return node
    ends = (node.arg.start, node.arg.stop, node.arg.step)
    return _make_operation(
        "<slice_of>", node, node.node, *(end or nodes.Const(None) for end in ends)
    )


def _rewrite_call(node: nodes.Call) -> nodes.Node:
    if isinstance(node.node, nodes.Getattr):
        call = _make_operation(f"{node.node.attr}()", node, node.node.node, *node.args)
    elif node.args and not node.kwargs:
        return _make_operation("<range_of>", node, *node.args)
    else:
        raise _line_error(node.lineno, "range takes one to three numbers")
    call.kwargs = list[Any](node.kwargs)
    return call


_REWRITES: Final[dict[type, Callable[[Any], nodes.Node]]] = {
    nodes.Output: _rewrite_output,
    nodes.AssignBlock: _rewrite_block,
    nodes.For: _rewrite_loop,
    nodes.Compare: _rewrite_comparison,
    nodes.Concat: lambda node: _make_operation("<concatenate>", node, nodes.List(node.nodes)),
    nodes.List: lambda node: _make_operation("<literal>", node, node),
    nodes.Dict: lambda node: _make_operation("<literal>", node, node),
    nodes.Tuple: _rewrite_list,
    nodes.CondExpr: _rewrite_choice,
    nodes.Getitem: _rewrite_item,
    nodes.Call: _rewrite_call,
}


# -- rendering


def fill_template(
    source: TemplateSource, fields: Mapping[str, object], quote: Quote | None = None
) -> str:
    """Return the text of a template filled with fields; `quote` quotes each printed value.

    Raise MissingField for an absent field, TemplateRefusal for anything else that fails, with the
    line in a template of several.
    """
    return _render_source(source, fields, quote)[0] if source.text is None else source.text


def evaluate_expression(source: TemplateSource, fields: Mapping[str, object]) -> PlainValue:
    """Return the value of a parsed expression as plain data.

    Raise MissingField for an absent field, TemplateRefusal for anything else that fails.
    """
    _, rendering = _render_source(source, fields)
    return cast("PlainValue", rendering.literal(rendering.vars["result"]))


def _render_source(
    source: TemplateSource, fields: Mapping[str, object], quote: Quote | None = None
) -> tuple[str, _Rendering]:
    """Return the text that a template prints and its state at the end.

    Any exception during the rendering becomes TemplateRefusal, with the template's line; a
    TemplateRefusal keeps its class.
    """
    budget = WorkBudget()
    values = plain_fields(source.names, fields, budget)
    try:
        rendering = cast(_Rendering, source.compiled_template.new_context(values))
        rendering.budget, rendering.quote = budget, quote
        return "".join(source.compiled_template.root_render_func(rendering)), rendering
    except RecursionError:
        raise TemplateRefusal("nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - operands of any type, in any operation of Python's
        text = str(getattr(error, "msg", error)) or type(error).__name__
        refused = error if isinstance(error, TemplateRefusal) else TemplateRefusal(text)
        refused.args = (f"{source.line_of(error)}{refused}",)
        raise refused from None
