"""Answers whose values break, lie or are endless: a wrong answer (0), never a judge's failure."""
# ruff: noqa: E501

from __future__ import annotations

import asyncio
import json

import pytest

from convbench.judges.dispatch import judge_conversation
from convbench.judges.resolve import resolve_judge
from convbench.judges.unit_tests import CONSTANTS
from convbench.schema import Verdict
from tests.helpers.sandbox import example, needs_wall, protocol, talk

REFERENCE = """
def f(x):
    if x > 8: raise ValueError(x)
    return {"a": [x, (1.5, {2, 3})], "b": "text"}
"""
CALLS = {"one": "f(1)", "two": "f(9)"}

VALUES = {
    "equal to all": "class A:\n def __eq__(self, o): return True\n __hash__ = None\ndef f(x): return A()",
    "__eq__ raises": "class A(dict):\n def __eq__(self, o): raise ValueError\ndef f(x): return A(a=1)",
    "__repr__ raises": "class A:\n def __repr__(self): raise ValueError\n __str__ = __repr__\ndef f(x): return A()",
    "__reduce__ raises": "class A:\n def __reduce__(self): raise ValueError\ndef f(x): return A()",
    "__class__ raises": "class A:\n __class__ = property(lambda s: 1 / 0)\ndef f(x): return A()",
    "__class__ lies": "class A:\n __class__ = dict\ndef f(x): return A()",
    "__getattribute__ raises": "class A:\n def __init__(self): self.a = 1\n def __getattribute__(self, n): raise ValueError\ndef f(x): return A()",
    "__dict__ lies": "class A:\n __dict__ = property(lambda s: [1])\ndef f(x): return A()",
    "metaclass raises": "class M(type):\n __name__ = property(lambda c: 1 / 0)\n __mro__ = property(lambda c: 1 / 0)\nclass A(metaclass=M): pass\ndef f(x): return A()",
    "module of a class": "class A:\n __module__ = property(lambda s: 1 / 0)\nA.__module__ = 7\ndef f(x): return A()",
    "forged pandas": "class DataFrame:\n columns = index = None\n shape = (0, 10**9)\n iloc = {}\nDataFrame.__module__ = 'pandas'\ndef f(x): return DataFrame()",
    "forged numpy": "class generic: dtype = 1\ngeneric.__module__ = 'numpy'\ndef f(x): return generic()",
    "forged date": "class date:\n def isoformat(self): return 5\ndate.__module__ = 'datetime'\ndef f(x): return date()",
    "forged exact": "class Decimal:\n def __str__(self): return '1e99999999'\nDecimal.__module__ = 'decimal'\ndef f(x): return Decimal()",
    "exact of any size": "from decimal import Decimal\ndef f(x): return Decimal('1e999999')",
    "fraction of any size": "from fractions import Fraction\ndef f(x): return Fraction(1, 10**5000 + 1)",
    "huge integer": "def f(x): return 10**200000",
    "huge float from an integer": "def f(x): return {'a': [10**400, (10**400, {2, 3})], 'b': 'text'}",
    "huge text": "def f(x): return 'x' * 3_000_000",
    "surrogates": "def f(x): return {'a': ['\\ud800', ('\\udfff', {2, 3})], 'b': '\\ud800'}",
    "cyclic list": "def f(x):\n a = []; a.append(a); return a",
    "cyclic dict": "def f(x):\n a = {}; a['a'] = a; return a",
    "cyclic object": "class A: pass\ndef f(x):\n a = A(); a.me = a; return a",
    "deep list": "def f(x):\n a = 1\n for _ in range(100000): a = [a]\n return a",
    "deep set": "def f(x):\n a = 1\n for _ in range(300): a = frozenset([a])\n return a",
    "wide list": "def f(x): return [0] * 300000",
    "nan": "def f(x): return {'a': [float('nan'), (float('nan'), {2, 3})], 'b': 'text'}",
    "endless generator": "def f(x):\n while True: yield x",
    "generator that raises": "def f(x):\n yield 1\n raise KeyError",
    "keys that raise": "class A:\n def __hash__(self): return 1\n def __eq__(self, o): raise ValueError\ndef f(x): return {A(): 1}",
    "raises while read": "class A(list):\n def __iter__(self): raise ValueError\ndef f(x): return A([1])",
    "number that is none": "class N(int):\n __add__ = __int__ = __index__ = lambda *a: 'x'\ndef f(x): return N(1)",
    "text that is none": "class S(str):\n __str__ = lambda s: 5\ndef f(x): return S('a')",
    "error without words": "class E(Exception):\n def __str__(self): raise E\ndef f(x): raise E",
    "error with a long name": "E = type('E' * 100000, (Exception,), {})\ndef f(x): raise E",
    "error of no name": "class M(type):\n __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): pass\ndef f(x): raise E",
    "recursion": "def f(x): return f(x)",
    "object of itself": "f = lambda x: f",
    "leaves": "import os\ndef f(x): os._exit(0)",
}  # fmt: skip

LINES = {
    "deep list": '[0, {"value": ' + '["l", [' * 300 + '1' + ']]' * 300 + '}]',
    "deepest that is read": '[0, {"value": ' + '["l", [' * 480 + '1' + ']]' * 480 + '}]',
    "too deep to read": '[0, {"value": ' + '[' * 50000,
    "deep object": '[0, {"value": ' + '["o", "A", ' * 400 + '1' + ']' * 400 + '}]',
    "deep in a mapping": '[0, {"value": ["d", [["t", ["a", ' + '["s", [' * 300 + '1' + ']]' * 300 + ']]]]}]',
    "deep in a set": '[0, {"value": ["d", [["t", ["a", ["l", [1, ["t", [["f", "1.5"], ["s", [' + '["s", [' * 150 + ']]' * 150 + ', 3]]]]]]]], ["t", ["b", "text"]]]]}]',
    "wide": '[0, {"value": ["l", [' + '1,' * 250000 + '1]]}]',
    "not a list": '[0, {"value": {"a": 1}}]',
    "unknown tag": '[0, {"value": ["z", []]}]',
    "tag that is a list": '[0, {"value": [[], []]}]',
    "not finite": '[0, {"value": NaN}]',
    "plain float": '[0, {"value": 1.5}]',
    "integer of many digits": '[0, {"value": ' + '9' * 5000 + '}]',
    "integer that is none": '[0, {"value": ["i", "zz"]}]',
    "integer of many hex digits": '[0, {"value": ["i", "0x' + 'f' * 100000 + '"]}]',
    "float that is none": '[0, {"value": ["f", "x"]}]',
    "number of two points": '[0, {"value": ["n", "1.2.3"]}]',
    "number of many digits": '[0, {"value": ["n", "1e999999999"]}]',
    "division by zero": '[0, {"value": ["n", "1/0"]}]',
    "complex that is none": '[0, {"value": ["c", "1", null]}]',
    "object without fields": '[0, {"value": ["o", "A"]}]',
    "object of no name": '[0, {"value": ["o", [], 1]}]',
    "bytes that are none": '[0, {"value": ["b", 1]}]',
    "two keys": '[0, {"value": 1, "raised": ["ValueError", "", ""]}]',
    "raised one word": '[0, {"raised": ["ValueError"]}]',
    "raised nothing": '[0, {"raised": null}]',
    "raised a deep list": '[0, {"raised": ["ValueError", ' + '[' * 900 + ']' * 900 + ', []]}]',
    "foreign of no name": '[0, {"foreign": [[]]}]',
    "limit unknown": '[0, {"limit": ["time"]}]',
    "another test's": '[1, {"value": 1}]',
    "not JSON": 'x',
    "not text": '\\\\xff\\\\xfe',
}  # fmt: skip
for _levels in range(482, 498, 2):  # what a thread still reads, and its caller no longer compares
    LINES[f"{_levels} sets in a mapping"] = (
        '[0, {"value": ["d", [["t", ["a", ' + '["s", [' * _levels + "1" + "]]" * _levels
        + ']], ["t", ["b", "c"]]]]}]'
    )  # fmt: skip
FORGED = """
def f(x):
    import os
    for number in range(3, 64):
        try: os.write(number, {line!r}.encode() + b'\\n')
        except OSError: pass
    os._exit(0)
"""


def judged(answer: str, reference: str = REFERENCE, calls: dict[str, str] = CALLS) -> Verdict:
    sets = {"args.seconds": 0.3, "args.memory_mb": 256, "args.modules": []}
    judge = resolve_judge("unit-tests", sets=sets)
    asked = example(reference=reference, tests=json.dumps(calls))
    said = talk(("assistant", f"I WANT TO ANSWER:\n```python\n{answer}\n```"))
    return asyncio.run(judge_conversation(None, None, judge, said, asked, protocol()))


@needs_wall
def test_the_right_answer_passes() -> None:
    assert judged(REFERENCE).scores["overall"] == 1


@needs_wall
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_breaks_is_a_wrong_answer(name: str) -> None:
    verdict = judged(VALUES[name])
    assert verdict.failure is None
    assert verdict.scores["overall"] == 0


@needs_wall
@pytest.mark.parametrize("name", LINES)
def test_a_forged_line_is_a_wrong_answer(name: str) -> None:
    verdict = judged(FORGED.format(line=LINES[name]))
    assert verdict.failure is None
    assert verdict.scores["overall"] == 0


@needs_wall
@pytest.mark.parametrize(
    ("body", "best", "single"),
    [
        ("x > 3", 0.75, "False"),
        ("'even' if x % 2 else 'odd'", 0.5, None),
        ("[]", 1.0, "[]"),
        ("1 / (x - x)", 1.0, None),
        ("int('x')", 1.0, "raise ValueError"),
        ("x", 0.25, "1"),
    ],
)
def test_what_constant_answers_score(body: str, best: float, single: str | None) -> None:
    calls = {str(i): f"f({i + 1})  # a test" for i in range(4)}
    verdict = judged("pass", f"def f(x): return {body}", calls)
    assert verdict.scores["constant"] == best
    shares = verdict.details["constants"]
    assert set(shares) <= set(CONSTANTS)
    if single is None:  # what the reference returns most is none of the usual constants
        assert shares == {}
    else:
        assert shares[single] == max(shares.values()) == best
