"""The program inside the sandbox: run an answer on its tests, tell what came out.

It runs alone (no package around it, standard library only) and is itself not trusted by anyone:
the answer shares its process and may bend it. What it writes is only a claim of outputs, which
are compared outside with those of the reference; the reference's outputs never come in here.

stdin: this program, compiled, then one marshalled job. The results go to what was stdout, one
line of JSON a test; stdin, stdout and stderr are closed to the answer.
"""

from __future__ import annotations

import _json
import _signal  # type: ignore[import-not-found]
import marshal
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than running a test
    from typing import Any

DEPTH = 40
NODES = 200_000
ITEMS = 20_000
WALL = 10
"""Wall seconds a test may take for each CPU second it may use."""


class _OutOfTime(BaseException):
    pass


class _TooMuch(BaseException):
    pass


def main() -> None:
    """Read the job, shut the doors, run each test."""
    job = marshal.loads(sys.stdin.buffer.read())  # noqa: S302 - from our own side
    channel = os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if job["confine"]:
        _confine(job["confine"])
    elif job["user"] is not None:  # not root any more; the namespaces hold nothing else of root's
        os.setgroups([])
        os.setresgid(job["user"], job["user"], job["user"])
        os.setresuid(job["user"], job["user"], job["user"])
    _limit(job)
    sys.path[:] = [place for place in sys.path if os.path.isdir(place)] + job["paths"]
    if job["confine"]:
        sys.meta_path.insert(0, _Only(job["names"]))
    _load(job)
    os.write(channel, b"\n")
    for number, call in enumerate(job["calls"]):
        line = _one(job, call)
        if len(line) > job["output"]:
            line = '{"limit": "output"}'
        os.write(channel, f"[{number}, {line}]\n".encode("ascii"))
    os._exit(0)


class _Only:
    """With Landlock a folder of packages can be listed whole: one that may not be read is missing,
    as it is where namespaces hide it."""

    def __init__(self, names: list[str]) -> None:
        self.known = {*names, *sys.stdlib_module_names}

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse what is not there."""
        first = name.partition(".")[0]
        if first not in self.known and not first.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _load(job: dict[str, Any]) -> None:
    """Import what the code speaks of, so that no test's time goes into it."""
    for name in job["names"]:
        if any(name in text for text in job["code"]):
            try:
                __import__(name)
            except Exception:  # noqa: BLE001, S112 - the answer gets to see it
                continue


def _confine(settings: dict[str, Any]) -> None:
    """Landlock and seccomp from within, where no namespaces are to be had."""
    scope: dict[str, Any] = {"__name__": "confine"}
    exec(settings["code"], scope)  # noqa: S102 - our own
    scope["confine"](settings)


def _limit(job: dict[str, Any]) -> None:
    seconds = int(len(job["calls"]) * (job["seconds"] + 1)) + 2
    for kind, value in (
        (resource.RLIMIT_AS, job["memory"]),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, job["file"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, job["threads"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _one(job: dict[str, Any], call: str) -> str:
    """Run one test with fresh names; return the JSON of its outcome."""
    for number in (_signal.SIGPROF, _signal.SIGALRM):
        _signal.signal(number, _late)
    _seed(job["code"])
    try:
        _signal.setitimer(_signal.ITIMER_PROF, job["seconds"])
        _signal.setitimer(_signal.ITIMER_REAL, WALL * job["seconds"])
        module = type(sys)("answer")
        sys.modules["answer"] = module
        exec(_compiled(job["code"]), module.__dict__)  # noqa: S102 - the very purpose
        value = eval(compile(call, "test", "eval"), module.__dict__)  # noqa: S307
        return f'{{"value": {_Encoder().text(value, 0)}}}'
    except _OutOfTime:
        return '{"limit": "time"}'
    except _TooMuch:
        return '{"limit": "output"}'
    except MemoryError:
        return '{"limit": "memory"}'
    except BaseException as error:  # noqa: BLE001 - an answer may raise anything
        return _raised(error)
    finally:
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _late(*_: object) -> None:
    raise _OutOfTime


def _seed(texts: list[str]) -> None:
    """Same chance for the answer and the reference, test by test, where they speak of it."""
    if not any("random" in text for text in texts):
        return
    try:
        import random

        random.seed(0)
        if any("numpy" in text for text in texts):
            import numpy.random

            numpy.random.seed(0)
    except Exception:  # noqa: BLE001, S110 - the answer may have bent them
        pass


_CODE: dict[int, Any] = {}


def _compiled(texts: list[str]) -> Any:
    """Compile the first text that is Python; the error is the first one's."""
    if 0 not in _CODE:
        first = None
        for text in texts:
            try:
                _CODE[0] = compile(text, "answer", "exec")
                break
            except (SyntaxError, ValueError) as error:
                first = first or error
        else:
            raise first or SyntaxError("no text")
    return _CODE[0]


def _raised(error: BaseException) -> str:
    try:
        text = str(error)[:300]
    except BaseException:  # noqa: BLE001 - its __str__ is the answer's
        text = ""
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    parts = [type(error).__name__, text, missing if isinstance(missing, str) else ""]
    return f'{{"raised": [{", ".join(map(_json.encode_basestring_ascii, parts))}]}}'


class _Encoder:
    """Values as JSON: plain where JSON has the type, else a list that begins with a tag."""

    def __init__(self) -> None:
        self.nodes = 0

    def text(self, value: Any, depth: int) -> str:
        """Return the JSON of a value; too much of it, or too deep, is _TooMuch."""
        self.nodes += 1
        if self.nodes > NODES or depth > DEPTH:
            raise _TooMuch
        kind = type(value)
        if value is None or kind is bool:
            return "null" if value is None else "true" if value else "false"
        if isinstance(value, int):
            return self._integer(int.__add__(value, 0))
        if isinstance(value, float):
            return f'["f", "{float.__repr__(value)}"]'
        if isinstance(value, str):
            return _json.encode_basestring_ascii(str.__str__(value))
        return self._container(value, kind, depth)

    def _integer(self, value: int) -> str:
        return str(value) if -(2**53) < value < 2**53 else f'["i", "{hex(value)}"]'

    def _many(self, tag: str, items: Any, depth: int) -> str:
        parts: list[str] = []
        for item in items:
            if len(parts) >= ITEMS:
                raise _TooMuch
            parts.append(self.text(item, depth + 1))
        return f'["{tag}", [{", ".join(parts)}]]'

    def _container(self, value: Any, kind: type, depth: int) -> str:
        if isinstance(value, list):
            return self._many("l", list.__iter__(value), depth)
        if isinstance(value, tuple):
            return self._many("t", tuple.__iter__(value), depth)
        if isinstance(value, set | frozenset):
            return self._many("s", list(value), depth)
        if isinstance(value, dict):
            return self._many("d", dict.items(value), depth)
        if isinstance(value, bytes | bytearray):
            return f'["b", "{bytes(value).hex()}"]'
        if isinstance(value, complex):
            return f'["c", "{value.real!r}", "{value.imag!r}"]'
        return self._other(value, kind, depth)

    def _other(self, value: Any, kind: type, depth: int) -> str:
        module = str(getattr(kind, "__module__", ""))
        if module.partition(".")[0] in ("numpy", "pandas") and hasattr(value, "tolist"):
            return self.text(value.tolist(), depth + 1)
        if module == "decimal" or module == "fractions":
            return f'["n", "{value!s}"]'
        if hasattr(kind, "__next__") or kind.__name__ in _LAZY:
            return self._many("g", value, depth)
        name = _json.encode_basestring_ascii(kind.__name__)
        if module in ("datetime", "uuid", "pathlib", "re", "enum", "zoneinfo", "ipaddress"):
            return f'["r", {name}, {_json.encode_basestring_ascii(repr(value)[:1000])}]'
        if isinstance(value, _INCOMPARABLE):
            return f'["x", {name}]'
        fields = getattr(value, "__dict__", None)
        if not isinstance(fields, dict):
            fields = {n: getattr(value, n, None) for n in getattr(kind, "__slots__", ())}
        return f'["o", {name}, {self.text(dict(fields), depth + 1)}]'


_INCOMPARABLE = (type, type(main), type(len), type(sys))
_LAZY = ("range", "dict_keys", "dict_values", "dict_items", "deque", "array")

if __name__ == "__main__":
    main()
