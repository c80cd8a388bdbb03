"""Encode what a call returned as JSON, losslessly, so that outputs can be compared completely.

Runs inside the sandbox with `inside.py` (standard library only). A value of a JSON type is written
as it is, any other as a list that begins with a tag. An object of a class that is not listed here
may hold something the encoding would miss (a frame's blocks, a function's code): it is `Foreign`,
never a value. So are objects of the task's own classes without fields, or with a foreign field.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than running a test
    from collections.abc import Callable, Iterable
    from typing import Any

DEPTH = 40
NODES = 200_000
ITEMS = 20_000
LETTERS = 400
"""Longest text of a non-integer number; the reader outside accepts no longer one."""
OWN = "answer"
"""Module of the classes that a task defines."""
BASES = {("builtins", "object"), ("abc", "ABC"), ("typing", "Generic"), ("typing", "Protocol")}
"""Bases of such a class that hold no data themselves."""
LAZY = {
    "range",
    "dict_keys",
    "dict_values",
    "dict_items",
    "odict_keys",
    "odict_values",
    "odict_items",
    "deque",
    "array",
}
TEXTS = {
    "UUID",
    "PurePosixPath",
    "PureWindowsPath",
    "PosixPath",
    "WindowsPath",
    "ZoneInfo",
    "timezone",
    "IPv4Address",
    "IPv6Address",
    "IPv4Network",
    "IPv6Network",
}
"""Classes of the standard library whose text is their whole value."""
LIBRARY = ("uuid", "pathlib", "zoneinfo", "datetime", "ipaddress")


class TooMuch(BaseException):
    """The value is larger or deeper than is compared."""


class Foreign(Exception):
    """An object of a class that cannot be compared completely; the message is the class's name."""


def drawn(value: Any) -> Any:
    """Return an iterator's items as a list, and any other value unchanged.

    It raises what the iterator raises, which is the answer's own doing, or TooMuch."""
    if not hasattr(type(value), "__next__") or not _lazy(type(value)):
        return value
    found: list[Any] = []
    for item in value:
        if len(found) >= ITEMS:
            raise TooMuch
        found.append(item)
    return found


def text(value: Any) -> str:
    """Return the JSON of a value. Raises Foreign, TooMuch, or what the value itself raises."""
    return _Encoder().text(value, 0)


def _lazy(kind: type) -> bool:
    inside = kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
    return inside or (kind.__name__ in LAZY and kind.__module__ != OWN)


def _is(kind: type, module: str, name: str) -> bool:
    """Return True if this class or a base of it is MODULE.NAME, which need not be loaded."""
    return any(
        base.__name__ == name and str(base.__module__).partition(".")[0] == module
        for base in kind.__mro__
    )


def _texts(tag: str, *parts: str) -> str:
    return f"[{', '.join(_json.encode_basestring_ascii(part) for part in (tag, *parts))}]"


def _fields(value: Any) -> dict[str, Any]:
    """Return an object's own fields, from its dictionary and its slots."""
    found: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__):
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = object.__getattribute__(value, name)
    if type(value).__dictoffset__:
        found.update(object.__getattribute__(value, "__dict__"))
    return found


class _Encoder:
    def __init__(self) -> None:
        self.nodes = 0

    def text(self, value: Any, depth: int) -> str:
        self.nodes += 1
        if self.nodes > NODES or depth > DEPTH:
            raise TooMuch
        kind = type(value)
        write = PLAIN.get(kind)
        if write is not None:
            return write(self, value, depth)
        if _is(kind, "enum", "Enum"):
            return self._enum(value, kind, depth)
        for plain in PLAIN:
            if issubclass(kind, plain):
                if kind.__module__ == OWN and _fields(value):
                    raise Foreign(kind.__name__)
                return PLAIN[plain](self, value, depth)
        return self._other(value, kind, depth)

    def many(self, tag: str, items: Iterable[Any], depth: int) -> str:
        parts: list[str] = []
        for item in items:
            if len(parts) >= ITEMS:
                raise TooMuch
            parts.append(self.text(item, depth + 1))
        return f'["{tag}", [{", ".join(parts)}]]'

    def object(self, name: str, fields: Any, depth: int) -> str:
        return f'["o", {_json.encode_basestring_ascii(name)}, {self.text(fields, depth + 1)}]'

    def _enum(self, value: Any, kind: type, depth: int) -> str:
        if issubclass(kind, int | str):  # members equal their values
            return self.text(value.value, depth)
        return self.object(kind.__name__, (value.name, value.value), depth)

    def _other(self, value: Any, kind: type, depth: int) -> str:
        module = str(kind.__module__).partition(".")[0]
        if module in _LIBRARIES:
            return _LIBRARIES[module](self, value, kind, depth)
        if _lazy(kind):
            return self.many("g", value, depth)
        if kind.__name__ in TEXTS and module in LIBRARY:
            return _texts("r", kind.__name__, str(value))
        if module == OWN or kind.__name__ == "SimpleNamespace":
            return self._own(value, kind, depth)
        raise Foreign(kind.__name__)

    def _own(self, value: Any, kind: type, depth: int) -> str:
        """Return the JSON of an object of the task's own class, by its fields. Raises Foreign."""
        known = all(
            base.__module__ == OWN or (base.__module__, base.__name__) in BASES
            for base in kind.__mro__
            if base.__name__ != "SimpleNamespace"
        )
        fields = _fields(value) if known else {}
        if not fields:
            raise Foreign(kind.__name__)
        return self.object(kind.__name__, fields, depth)


def _integer(coder: _Encoder, value: Any, depth: int) -> str:
    value = int.__add__(value, 0)
    return str(value) if -(2**53) < value < 2**53 else f'["i", "{hex(value)}"]'


def _bytes(coder: _Encoder, value: Any, depth: int) -> str:
    if isinstance(value, memoryview) and (value.format != "B" or value.ndim != 1):
        raise Foreign("memoryview")
    return f'["b", "{bytes(value).hex()}"]'


PLAIN: dict[type, Callable[[_Encoder, Any, int], str]] = {
    type(None): lambda coder, value, depth: "null",
    bool: lambda coder, value, depth: "true" if value else "false",
    int: _integer,
    float: lambda coder, value, depth: f'["f", "{float.__repr__(value)}"]',
    str: lambda coder, value, depth: _json.encode_basestring_ascii(str.__str__(value)),
    list: lambda coder, value, depth: coder.many("l", list.__iter__(value), depth),
    tuple: lambda coder, value, depth: coder.many("t", tuple.__iter__(value), depth),
    set: lambda coder, value, depth: coder.many("s", list(value), depth),
    frozenset: lambda coder, value, depth: coder.many("s", list(value), depth),
    dict: lambda coder, value, depth: coder.many("d", dict.items(value), depth),
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    complex: lambda coder, value, depth: f'["c", "{value.real!r}", "{value.imag!r}"]',
}


def _exact(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    if kind.__name__ not in ("Decimal", "Fraction"):
        raise Foreign(kind.__name__)
    written = str(value)
    if len(written) > LETTERS:
        raise TooMuch
    return _texts("n", written)


def _time(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a date or time with the name of its zone, or of a duration's parts."""
    name = next(
        (n for n in ("datetime", "date", "time", "timedelta") if _is(kind, "datetime", n)), None
    )
    if name is None:
        if kind.__name__ in TEXTS:
            return _texts("r", kind.__name__, repr(value))
        raise Foreign(kind.__name__)
    if kind.__name__ == "NaTType":
        return _texts("r", "NaT", "")
    if name == "timedelta":
        parts = (value.days, value.seconds, value.microseconds, getattr(value, "nanoseconds", 0))
        return _texts("r", name, " ".join(map(str, parts)))
    zone = "" if name == "date" or value.tzinfo is None else str(value.tzname())
    return _texts("r", name, f"{value.isoformat()} {zone}")


def _pattern(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    if kind.__name__ != "Pattern":
        raise Foreign(kind.__name__)
    return coder.object("Pattern", (value.pattern, value.flags), depth)


def _numpy(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a numpy array or scalar, by its elements. Raises Foreign."""
    if not (_is(kind, "numpy", "ndarray") or _is(kind, "numpy", "generic")):
        raise Foreign(kind.__name__)
    held = value.dtype
    if held.kind in "mM":
        return coder.object(f"{held.kind}8", value.astype(str).tolist(), depth)
    if held.names:
        return coder.object("records", (held.names, value.tolist()), depth)
    if value.size == 0 and value.ndim > 1:
        return coder.object("empty", value.shape, depth)
    if value.ndim == 0 and held.char in "gG":  # more digits than Python's own numbers
        return coder.text(complex(value) if held.char == "G" else float(value), depth)
    return coder.text(value.tolist(), depth)


def _pandas(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a frame, series or index, by its names and values. Raises Foreign."""
    name = kind.__name__
    if name == "NAType":
        return _texts("r", "NA", "")
    if _is(kind, "datetime", "date") or _is(kind, "datetime", "timedelta"):
        return _time(coder, value, kind, depth)
    if name == "DataFrame":
        columns = [value.iloc[:, place].tolist() for place in range(value.shape[1])]
        return coder.object(name, (value.columns, value.index, columns), depth)
    if name == "Series":
        return coder.object(name, (value.name, value.index, value.tolist()), depth)
    if _is(kind, "pandas", "Index"):
        return coder.object("Index", (list(value.names), value.tolist()), depth)
    raise Foreign(name)


_LIBRARIES: dict[str, Callable[[_Encoder, Any, type, int], str]] = {
    "decimal": _exact,
    "fractions": _exact,
    "datetime": _time,
    "re": _pattern,
    "numpy": _numpy,
    "pandas": _pandas,
}
