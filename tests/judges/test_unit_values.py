"""What an answer can pretend to return: each case is compared whole, or is compared not at all."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from convbench.errors import DataError
from convbench.sandbox import CallOutcome, Limits, agree, check_reference, run_calls
from tests.helpers.walls import limits_of

NAMES = """
import abc, array, ast, asyncio, collections, contextvars, csv, ctypes, dataclasses, datetime
import decimal, email.message, enum, fractions, functools, hashlib, inspect, io, itertools, json
import logging, math, operator, pathlib, random, re, string, struct, threading, types, uuid, weakref
import numpy, pandas, scipy.sparse, sympy
import xml.etree.ElementTree
async def waits(x): return x
async def streams(x): yield x
def counts(*items): yield from items
class Empty: pass
class Shared: total = 0
class Held:
    def __init__(self, *fields): self.fields = fields
class Loop:
    def __init__(self): self.me = self
class Rows(list): pass
class Frame(pandas.DataFrame): pass
class Late(datetime.date): pass
class Wrong(Exception):
    def __init__(self, code): self.code = code
class Slots:
    __slots__ = ("x",)
    def __init__(self, x): self.x = x
class Deep(Slots):
    __slots__ = ("y",)
    def __init__(self, x, y): self.x, self.y = x, y
class Colour(enum.Enum): RED = 1; BLUE = 2
@dataclasses.dataclass
class Point: x: int; y: object = None
Pair = collections.namedtuple("Pair", "a b")
def row(extra, items):
    found = Rows(items); found.extra = extra; return found
def late(extra):
    found = Late(2020, 1, 1); found.extra = extra; return found
def read(text):
    found = io.StringIO(text); found.read(); return found
zone = datetime.timezone.utc
sparse = scipy.sparse.csr_matrix
x = sympy.Symbol("x")
"""
MODULES = ("numpy", "pandas", "scipy", "sympy", "dateutil", "pytz")

FOREIGN = {
    "function": ("waits", "streams"),
    "lambda": ("(lambda: 1)", "(lambda: 2)"),
    "functions in a set": ("{len, max}", "{min, sum}"),
    "functions as keys": ("{len: 1}", "{max: 1}"),
    "class": ("Point", "Empty"),
    "class of one name": ("type('A', (), {'x': 1})", "type('A', (), {})"),
    "module": ("math", "json"),
    "builtin": ("len", "max"),
    "bound method": ("[1].append", "[2].append"),
    "partial": ("functools.partial(max, 1)", "functools.partial(min)"),
    "property": ("property(len)", "property()"),
    "coroutine": ("waits(1)", "waits(2)"),
    "async generator": ("streams(1)", "streams(2)"),
    "text file": ("io.StringIO('a')", "io.StringIO('b')"),
    "text file that was read": ("read('a')", "io.StringIO()"),
    "binary file": ("io.BytesIO(b'a')", "io.BytesIO(b'b')"),
    "csv reader": ("csv.reader(['a,b'])", "iter([['a', 'b']])"),
    "csv writer": ("csv.writer(io.StringIO('a'))", "csv.writer(io.StringIO())"),
    "exception": ("ValueError('a')", "ValueError()"),
    "exception of its own": ("Wrong(1)", "Wrong(2)"),
    "object": ("object()", "object()"),
    "no fields": ("Empty()", "Empty()"),
    "class fields only": ("Shared()", "type('Shared', (), {})()"),
    "function in a field": ("Held(len)", "Held(max)"),
    "frame in a field": ("Held(sparse((2, 2)))", "Held(sparse((3, 3)))"),
    "list with a field": ("row(1, [])", "row(2, [])"),
    "frame of its own": ("Frame({'a': [1]})", "Frame()"),
    "date with a field": ("late(1)", "late(2)"),
    "lock": ("threading.Lock()", "threading.Lock()"),
    "thread": ("threading.Thread(name='a')", "threading.Thread(name='b')"),
    "event": ("threading.Event()", "threading.Event()"),
    "weak reference": ("weakref.ref(Point)", "weakref.ref(Held)"),
    "context variable": ("contextvars.ContextVar('a')", "contextvars.ContextVar('b')"),
    "slice": ("slice(1, 2)", "slice(3)"),
    "type alias": ("list[int]", "list[str]"),
    "syntax tree": ("ast.parse('1')", "ast.Module()"),
    "signature": ("inspect.signature(waits)", "inspect.signature(lambda: 1)"),
    "struct": ("struct.Struct('i')", "struct.Struct('q')"),
    "digest": ("hashlib.sha256(b'a')", "hashlib.sha256()"),
    "random": ("random.Random(1)", "random.Random(2)"),
    "getter": ("operator.itemgetter(1)", "operator.itemgetter(2)"),
    "json encoder": ("json.JSONEncoder(indent=1)", "json.JSONEncoder(indent=2)"),
    "template": ("string.Template('a')", "string.Template('b')"),
    "c array": ("(ctypes.c_int * 2)(1, 2)", "(ctypes.c_int * 2)()"),
    "xml": ("xml.etree.ElementTree.Element('a')", "xml.etree.ElementTree.Element('b')"),
    "mail": ("email.message.Message()", "email.message.Message()"),
    "logger": ("logging.getLogger('a')", "logging.getLogger('b')"),
    "decimal context": ("decimal.Context(prec=1)", "decimal.Context(prec=2)"),
    "loop": ("asyncio.Queue(1)", "asyncio.Queue(2)"),
    "match": ("re.match('a+', 'aa')", "re.match('..', 'aa')"),
    "expression": ("x**2 + 1", "x"),
    "sympy matrix": ("sympy.Matrix([[1]])", "sympy.Matrix([[2]])"),
    "dtype": ("numpy.dtype('int8')", "numpy.dtype('int64')"),
    "polynomial": ("numpy.poly1d([1, 2])", "numpy.poly1d([3])"),
    "generator of numbers": ("numpy.random.default_rng(1)", "numpy.random.default_rng(2)"),
    "sparse": ("sparse([[1, 2]])", "sparse([[3, 4]])"),
    "group by": (
        "pandas.DataFrame({'a': [1]}).groupby('a')", "pandas.DataFrame({'a': [2]}).groupby('a')",
    ),
    "categories": ("pandas.Categorical(['a'])", "pandas.Categorical(['a'], ['a', 'b'])"),
    "endless": ("itertools.count()", "itertools.cycle([1])"),
    "in itself": ("(lambda a: a.append(a) or a)([])", "(lambda a: a.append([a]) or a)([])"),
    "object in itself": ("Loop()", "Loop()"),
}  # fmt: skip
"""Forms that are compared not at all: a reference's, and a wrong one of the same class."""

WHOLE = {
    "bool": ("True", "False"),
    "int": ("10**30", "10**30 + 1"),
    "float": ("0.1 + 0.2", "0.30001"),
    "nan": ("float('nan')", "0.0"),
    "complex": ("1 + 2j", "1 - 2j"),
    "text": ("'a\\ud800'", "'a'"),
    "bytes": ("b'ab'", "b''"),
    "bytearray": ("bytearray(b'ab')", "bytearray()"),
    "memory view": ("memoryview(b'ab')", "memoryview(b'')"),
    "list": ("[1, [2]]", "[1, []]"),
    "tuple": ("(1, 2)", "[1, 2]"),
    "set": ("{1, 'a'}", "set()"),
    "frozen set": ("frozenset({(1, 2)})", "frozenset({(1, 3)})"),
    "dict": ("{1: {'a': 2}}", "{1: {}}"),
    "ordered dict": ("collections.OrderedDict(a=1)", "collections.OrderedDict()"),
    "default dict": ("collections.defaultdict(list, a=[1])", "collections.defaultdict(list)"),
    "counter": ("collections.Counter('aab')", "collections.Counter()"),
    "deque": ("collections.deque([1, 2])", "collections.deque()"),
    "views": ("{'a': 1}.items()", "{}.items()"),
    "range": ("range(5)", "range(0)"),
    "array": ("array.array('i', [1])", "array.array('i')"),
    "generator": ("counts(1, 2)", "counts()"),
    "iterator": ("map(str, [1, 2])", "map(str, [])"),
    "date": ("datetime.date(2020, 1, 2)", "datetime.date(2020, 1, 1)"),
    "time": ("datetime.time(1, 2)", "datetime.time()"),
    "datetime": ("datetime.datetime(2020, 1, 2, 3)", "datetime.datetime(2020, 1, 2)"),
    "zone": (
        "datetime.datetime(2020, 1, 2, tzinfo=zone)", "datetime.datetime(2020, 1, 2)",
    ),
    "timedelta": ("datetime.timedelta(1)", "datetime.timedelta()"),
    "decimal": ("decimal.Decimal('1.10')", "decimal.Decimal(0)"),
    "fraction": ("fractions.Fraction(1, 3)", "fractions.Fraction(1, 4)"),
    "enum": ("Colour.RED", "Colour.BLUE"),
    "uuid": ("uuid.UUID(int=1)", "uuid.UUID(int=2)"),
    "path": ("pathlib.PurePosixPath('a')", "pathlib.PurePosixPath('b')"),
    "pattern": ("re.compile('a', re.I)", "re.compile('a')"),
    "named tuple": ("Pair(1, 2)", "Pair(1, 3)"),
    "dataclass": ("Point(1, [2])", "Point(1, [])"),
    "nested": ("Point(1, Point(2))", "Point(1, Point(3))"),
    "slots": ("Slots(1)", "Slots(2)"),
    "inherited slots": ("Deep(1, 2)", "Deep(2, 2)"),
    "namespace": ("types.SimpleNamespace(a=1)", "types.SimpleNamespace()"),
    "numpy number": ("numpy.float64(1.5)", "numpy.float64(0)"),
    "long double": ("numpy.longdouble(1.5)", "numpy.longdouble(0)"),
    "numpy array": ("numpy.array([[1, 2]])", "numpy.array([])"),
    "empty array": ("numpy.zeros((0, 3))", "numpy.zeros((0, 4))"),
    "numpy dates": (
        "numpy.array(['2020-01-01'], 'M8[D]')", "numpy.array(['2021-01-01'], 'M8[D]')",
    ),
    "numpy date": ("numpy.datetime64('2020-01-01')", "numpy.datetime64('2021-01-01')"),
    "records": (
        "numpy.array([(1, 2)], [('a', int), ('b', int)])",
        "numpy.array([(1, 2)], [('a', int), ('c', int)])",
    ),
    "frame": ("pandas.DataFrame({'a': [1, 2]})", "pandas.DataFrame()"),
    "frame of other names": ("pandas.DataFrame({'a': [1]})", "pandas.DataFrame({'b': [1]})"),
    "frame of another index": (
        "pandas.DataFrame({'a': [1]}, index=[5])", "pandas.DataFrame({'a': [1]})",
    ),
    "series": ("pandas.Series([1, 2])", "pandas.Series([1, 3])"),
    "series of another index": ("pandas.Series([1], index=['a'])", "pandas.Series([1])"),
    "index": ("pandas.Index(['a'])", "pandas.Index(['b'])"),
    "timestamp": ("pandas.Timestamp('2020-01-02')", "pandas.Timestamp('2020-01-01')"),
    "nanoseconds": ("pandas.Timestamp(1)", "pandas.Timestamp(2)"),
    "pandas timedelta": ("pandas.Timedelta('1D')", "pandas.Timedelta('2D')"),
    "no time": ("pandas.NaT", "pandas.NA"),
}  # fmt: skip
"""Forms that are compared whole: one, and another of the same class."""


def limits() -> Limits:
    return replace(limits_of("bubblewrap"), seconds=5.0, memory_mb=2048, modules=MODULES)


@cache
def outcomes(side: int) -> dict[str, CallOutcome]:
    """Return what each form's reference (0) or wrong one (1) gives, in one sandbox each."""
    forms = {**FOREIGN, **WHOLE}
    found = run_calls([NAMES], [form[side] for form in forms.values()], limits())
    return dict(zip(forms, found, strict=True))


@pytest.mark.parametrize("form", FOREIGN)
def test_what_is_not_compared_whole_is_never_equal(form: str) -> None:
    wanted, wrong = outcomes(0)[form], outcomes(1)[form]
    assert not agree(wrong, wanted)
    assert not agree(wanted, wanted)
    with pytest.raises(DataError, match="unsupported: the reference, on test 1, "):
        check_reference([wanted], "e")


@pytest.mark.parametrize("form", WHOLE)
def test_what_is_compared_is_compared_whole(form: str) -> None:
    wanted, wrong = outcomes(0)[form], outcomes(1)[form]
    check_reference([wanted], "e")
    assert agree(wanted, wanted)
    assert not agree(wrong, wanted)
    assert not agree(wanted, wrong)
