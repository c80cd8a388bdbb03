"""Word problems whose numbers are in a price list that only a tool can read, and the tools.

Questions, goods and prices are generated from a fixed seed.
"""

from __future__ import annotations

import ast
import operator
import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

GOODS = (
    "apricots",
    "barley",
    "candles",
    "dates",
    "eggs",
    "flour",
    "ginger",
    "honey",
    "ink",
    "jars",
    "kindling",
    "lentils",
    "mustard",
    "nails",
    "oats",
    "pears",
)
ROWS = 60
MOST_DIGITS = 30
"""Most digits of a number that the calculator takes or returns."""
MOST_POWER = 20


def rows(*, seed: int) -> list[dict[str, Any]]:
    """Return the 60 rows, each with id, question, choices (`label` and `text` lists), answer (a
    label) and prices (pence by good). They come from a fixed seed; `seed` has no effect."""
    rng = random.Random("market")
    return [_make_row(rng, number) for number in range(ROWS)]


def _make_row(rng: random.Random, number: int) -> dict[str, Any]:
    prices = {name: rng.randint(3, 97) for name in GOODS}
    first, second = rng.sample(GOODS, 2)
    many, more, paid = rng.randint(2, 19), rng.randint(2, 19), rng.randint(4, 60) * 100
    cost = many * prices[first] + more * prices[second]
    if number % 2:
        question = (
            f"What do {many} baskets of {first} and {more} baskets of {second} cost in pence?"
        )
        right = cost
    else:
        paid = max(paid, cost + 1)
        question = (
            f"Somebody buys {many} baskets of {first} and {more} baskets of {second} and pays with "
            f"{paid} pence. How many pence of change are due?"
        )
        right = paid - cost
    wrong = {right + step * prices[name] for step in (-1, 1) for name in (first, second)}
    wrong |= {right + 10, right - 10}
    drawn = rng.sample(sorted(wrong - {right}), 3)
    texts = [right, *_payable_amounts(drawn, sorted(wrong - {right, *drawn}), right)]
    rng.shuffle(texts)
    labels = list("ABCD")
    return {
        "id": f"market-{number:02d}",
        "question": f"{question} Prices stand in today's list, for one basket.",
        "choices": {"label": labels, "text": [str(text) for text in texts]},
        "answer": labels[texts.index(right)],
        "prices": prices,
    }


def _payable_amounts(drawn: list[int], spare: list[int], right: int) -> list[int]:
    """Return three wrong amounts that can be paid: amounts not above 0 are replaced by spare ones,
    or by `right` and some tens."""
    above = [amount for amount in (*drawn, *spare) if amount > 0]
    tens = (right + 10 * step for step in range(1, 9))
    return (above + [amount for amount in tens if amount not in above])[:3]


def lookup(arguments: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return the price of the good `arguments["item"]` in today's list, as `GOOD: N pence`.

    Raise KeyError for a good that is not in the list.
    """
    name = str(arguments["item"]).strip().lower()
    prices = fields["prices"]
    if name not in prices:
        raise KeyError(f"{name[:40]!r} is not in the list; it has {', '.join(sorted(prices))}")
    return f"{name}: {prices[name]} pence"


_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def calculate(arguments: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return the value of `arguments["expression"]`, as text: exact if it is a whole number, else
    with ten significant digits.

    It may have numbers, + - * / // % ** and brackets. Raise ValueError for any other expression,
    one of more than 200 characters, or a number of more than 30 digits, SyntaxError for bad syntax,
    ZeroDivisionError for a division by 0.
    """
    text = str(arguments["expression"])
    if len(text) > 200:
        raise ValueError(f"found {len(text)} characters; expected at most 200")
    number = _evaluate_node(ast.parse(text, mode="eval").body)
    if number.denominator == 1:
        return str(number.numerator)
    return f"{float(number):.10g}"


def _evaluate_node(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _check_size(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        inner = _evaluate_node(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_node(node.left), _evaluate_node(node.right)
        if isinstance(node.op, ast.Pow):
            if right.denominator != 1 or abs(right) > MOST_POWER:
                raise ValueError(f"expected a whole power of at most {MOST_POWER}")
            return _check_size(left ** int(right))
        if type(node.op) in _BINARY:
            return _check_size(Fraction(_BINARY[type(node.op)](left, right)))
    raise ValueError("expected numbers, + - * / // % ** and brackets")


def _check_size(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= 10**MOST_DIGITS:
        raise ValueError(f"found a number of more than {MOST_DIGITS} digits")
    return value
