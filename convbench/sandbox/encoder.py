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
    """Return the items of an iterator of Python's own (a generator, `map`) as a list; else the
    value itself.

    Raise what the iterator raises, which is the answer's own doing, or TooMuch beyond 20,000 items.
    Iterators of other classes are not drawn.
    """
    if not hasattr(type(value), "__next__") or not _is_lazy(type(value)):
        return value
    items: list[Any] = []
    for item in value:
        if len(items) >= ITEMS:
            raise TooMuch
        items.append(item)
    return items


def text(value: Any) -> str:
    """Return the JSON of a value in the form of this module, such as `["l", [1, 2]]` for a list.

    Raise Foreign for an object that cannot be compared completely, TooMuch for a value that is too
    large or too deep, or what the value itself raises.
    """
    return _Encoder().encode_value(value, 0)


def _is_lazy(kind: type) -> bool:
    inside = kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
    return inside or (kind.__name__ in LAZY and kind.__module__ != OWN)


def _is_class(kind: type, module: str, name: str) -> bool:
    """Return True if this class or a base of it is MODULE.NAME, which need not be loaded."""
    return any(
        base.__name__ == name and str(base.__module__).partition(".")[0] == module
        for base in kind.__mro__
    )


def _text_list(tag: str, *parts: str) -> str:
    return f"[{', '.join(_json.encode_basestring_ascii(part) for part in (tag, *parts))}]"


def _own_fields(value: Any) -> dict[str, Any]:
    """Return an object's own fields, from its dictionary and its slots."""
    fields: dict[str, Any] = {}
    for kind in reversed(type(value).__mro__):
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                fields[name] = object.__getattribute__(value, name)
    if type(value).__dictoffset__:
        fields.update(object.__getattribute__(value, "__dict__"))
    return fields


class _Encoder:
    def __init__(self) -> None:
        self.nodes = 0

    def encode_value(self, value: Any, depth: int) -> str:
        self.nodes += 1
        if self.nodes > NODES or depth > DEPTH:
            raise TooMuch
        kind = type(value)
        write = ENCODERS.get(kind)
        if write is not None:
            return write(self, value, depth)
        if _is_class(kind, "enum", "Enum"):
            return self._encode_enum(value, kind, depth)
        for base_type in ENCODERS:
            if issubclass(kind, base_type):
                if kind.__module__ == OWN and _own_fields(value):
                    raise Foreign(kind.__name__)
                return ENCODERS[base_type](self, value, depth)
        return self._encode_other(value, kind, depth)

    def encode_items(self, tag: str, items: Iterable[Any], depth: int) -> str:
        parts: list[str] = []
        for item in items:
            if len(parts) >= ITEMS:
                raise TooMuch
            parts.append(self.encode_value(item, depth + 1))
        return f'["{tag}", [{", ".join(parts)}]]'

    def encode_object(self, name: str, fields: Any, depth: int) -> str:
        return (
            f'["o", {_json.encode_basestring_ascii(name)}, {self.encode_value(fields, depth + 1)}]'
        )

    def _encode_enum(self, value: Any, kind: type, depth: int) -> str:
        if issubclass(kind, int | str):  # members equal their values
            return self.encode_value(value.value, depth)
        return self.encode_object(kind.__name__, (value.name, value.value), depth)

    def _encode_other(self, value: Any, kind: type, depth: int) -> str:
        module = str(kind.__module__).partition(".")[0]
        if module in _LIBRARIES:
            return _LIBRARIES[module](self, value, kind, depth)
        if _is_lazy(kind):
            return self.encode_items("g", value, depth)
        if kind.__name__ in TEXTS and module in LIBRARY:
            return _text_list("r", kind.__name__, str(value))
        if module == OWN or kind.__name__ == "SimpleNamespace":
            return self._encode_own_class(value, kind, depth)
        raise Foreign(kind.__name__)

    def _encode_own_class(self, value: Any, kind: type, depth: int) -> str:
        """Return the JSON of an object of the task's own class, by its fields. Raises Foreign."""
        known = all(
            base.__module__ == OWN or (base.__module__, base.__name__) in BASES
            for base in kind.__mro__
            if base.__name__ != "SimpleNamespace"
        )
        fields = _own_fields(value) if known else {}
        if not fields:
            raise Foreign(kind.__name__)
        return self.encode_object(kind.__name__, fields, depth)


def _encode_integer(coder: _Encoder, value: Any, depth: int) -> str:
    value = int.__add__(value, 0)
    return str(value) if -(2**53) < value < 2**53 else f'["i", "{hex(value)}"]'


def _encode_bytes(coder: _Encoder, value: Any, depth: int) -> str:
    if isinstance(value, memoryview) and (value.format != "B" or value.ndim != 1):
        raise Foreign("memoryview")
    return f'["b", "{bytes(value).hex()}"]'


ENCODERS: dict[type, Callable[[_Encoder, Any, int], str]] = {
    type(None): lambda coder, value, depth: "null",
    bool: lambda coder, value, depth: "true" if value else "false",
    int: _encode_integer,
    float: lambda coder, value, depth: f'["f", "{float.__repr__(value)}"]',
    str: lambda coder, value, depth: _json.encode_basestring_ascii(str.__str__(value)),
    list: lambda coder, value, depth: coder.encode_items("l", list.__iter__(value), depth),
    tuple: lambda coder, value, depth: coder.encode_items("t", tuple.__iter__(value), depth),
    set: lambda coder, value, depth: coder.encode_items("s", list(value), depth),
    frozenset: lambda coder, value, depth: coder.encode_items("s", list(value), depth),
    dict: lambda coder, value, depth: coder.encode_items("d", dict.items(value), depth),
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    complex: lambda coder, value, depth: f'["c", "{value.real!r}", "{value.imag!r}"]',
}


def _encode_exact(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    if kind.__name__ not in ("Decimal", "Fraction"):
        raise Foreign(kind.__name__)
    written = str(value)
    if len(written) > LETTERS:
        raise TooMuch
    return _text_list("n", written)


def _encode_time(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a date or time with the name of its zone, or of a duration's parts."""
    name = next(
        (n for n in ("datetime", "date", "time", "timedelta") if _is_class(kind, "datetime", n)),
        None,
    )
    if name is None:
        if kind.__name__ in TEXTS:
            return _text_list("r", kind.__name__, repr(value))
        raise Foreign(kind.__name__)
    if kind.__name__ == "NaTType":
        return _text_list("r", "NaT", "")
    if name == "timedelta":
        parts = (value.days, value.seconds, value.microseconds, getattr(value, "nanoseconds", 0))
        return _text_list("r", name, " ".join(map(str, parts)))
    zone = "" if name == "date" or value.tzinfo is None else str(value.tzname())
    return _text_list("r", name, f"{value.isoformat()} {zone}")


def _encode_pattern(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    if kind.__name__ != "Pattern":
        raise Foreign(kind.__name__)
    return coder.encode_object("Pattern", (value.pattern, value.flags), depth)


def _encode_numpy(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a numpy array or scalar, by its elements. Raises Foreign."""
    if not (_is_class(kind, "numpy", "ndarray") or _is_class(kind, "numpy", "generic")):
        raise Foreign(kind.__name__)
    held = value.dtype
    if held.kind in "mM":
        return coder.encode_object(f"{held.kind}8", value.astype(str).tolist(), depth)
    if held.names:
        return coder.encode_object("records", (held.names, value.tolist()), depth)
    if value.size == 0 and value.ndim > 1:
        return coder.encode_object("empty", value.shape, depth)
    if value.ndim == 0 and held.char in "gG":  # more digits than Python's own numbers
        return coder.encode_value(complex(value) if held.char == "G" else float(value), depth)
    return coder.encode_value(value.tolist(), depth)


def _encode_pandas(coder: _Encoder, value: Any, kind: type, depth: int) -> str:
    """Return the JSON of a frame, series or index, by its names and values. Raises Foreign."""
    name = kind.__name__
    if name == "NAType":
        return _text_list("r", "NA", "")
    if _is_class(kind, "datetime", "date") or _is_class(kind, "datetime", "timedelta"):
        return _encode_time(coder, value, kind, depth)
    if name == "DataFrame":
        columns = [value.iloc[:, column].tolist() for column in range(value.shape[1])]
        return coder.encode_object(name, (value.columns, value.index, columns), depth)
    if name == "Series":
        return coder.encode_object(name, (value.name, value.index, value.tolist()), depth)
    if _is_class(kind, "pandas", "Index"):
        return coder.encode_object("Index", (list(value.names), value.tolist()), depth)
    raise Foreign(name)


_LIBRARIES: dict[str, Callable[[_Encoder, Any, type, int], str]] = {
    "decimal": _encode_exact,
    "fractions": _encode_exact,
    "datetime": _encode_time,
    "re": _encode_pattern,
    "numpy": _encode_numpy,
    "pandas": _encode_pandas,
}
