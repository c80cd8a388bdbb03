"""The program inside the sandbox: run an answer on its tests and report the outcomes.

It runs alone (no package around it, standard library only) and is not trusted: the answer shares
its process and may tamper with it. What it writes is only a claim of outputs, which are compared
outside with those of the reference; the reference's outputs never enter this process.

stdin: this program, compiled, then one marshalled job. The results go to the original stdout, one
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

WALL = 10
"""Clock seconds that a test may take for each CPU second."""


class _OutOfTime(BaseException):
    pass


def main() -> None:
    """Read the job from stdin, confine the process, run each call and write its outcome as a line
    of JSON.

    A blank line says that it starts. This ends the process and does not return.
    """
    job = marshal.loads(sys.stdin.buffer.read())  # noqa: S302 - from our own side
    channel = os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    _confine_process(job["confine"])
    _set_limits(job)
    sys.path[:] = [path for path in sys.path if os.path.isdir(path)] + job["paths"]
    if not job["confine"]["scratch"]:
        sys.meta_path.insert(0, _AllowedModules(job["names"]))
    _import_modules(job)
    coder = _run_program(job["encoder"], "encoder")
    os.write(channel, b"\n")
    for number, call in enumerate(job["calls"]):
        line = _run_test(job, coder, call)
        if len(line) > job["output"]:
            line = '{"limit": "output"}'
        os.write(channel, f"[{number}, {line}]\n".encode("ascii"))
    os._exit(0)


class _AllowedModules:
    """Import finder that hides packages which may not be read: Landlock lets a folder be listed
    completely, where namespaces would hide them."""

    def __init__(self, names: list[str]) -> None:
        self.known = {*names, *sys.stdlib_module_names}

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for a module that is not allowed."""
        first = name.partition(".")[0]
        if first not in self.known and not first.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _import_modules(job: dict[str, Any]) -> None:
    """Import the allowed modules that the code mentions, so that no test's time is spent on it."""
    for name in job["names"]:
        if any(name in text for text in job["code"]):
            try:
                __import__(name)
            except Exception:  # noqa: BLE001, S112 - the answer's own import raises it again
                continue


def _confine_process(settings: dict[str, Any]) -> None:
    """Apply the restrictions set from within, before any code of the answer runs."""
    _run_program(settings["code"], "confine")["confine"](settings)


def _run_program(code: Any, name: str) -> dict[str, Any]:
    """Return the namespace of another program of ours after running it."""
    scope: dict[str, Any] = {"__name__": name}
    exec(code, scope)  # noqa: S102 - our own
    return scope


def _set_limits(job: dict[str, Any]) -> None:
    seconds = int(len(job["calls"]) * (job["seconds"] + 1)) + 2
    for kind, value in (
        (resource.RLIMIT_AS, job["memory"]),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, job["file"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, job["threads"]),
        (resource.RLIMIT_SIGPENDING, 256),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _run_test(job: dict[str, Any], coder: dict[str, Any], call: str) -> str:
    """Run one test in a fresh namespace; return the JSON of its outcome."""
    for number in (_signal.SIGPROF, _signal.SIGALRM):
        _signal.signal(number, _raise_timeout)
    _seed_random(job["code"])
    try:
        _signal.setitimer(_signal.ITIMER_PROF, job["seconds"])
        _signal.setitimer(_signal.ITIMER_REAL, WALL * job["seconds"])
        module = type(sys)("answer")
        sys.modules["answer"] = module
        local = {} if job["scope"] == "function" else module.__dict__
        exec(_compile_code(job["code"]), module.__dict__, local)  # noqa: S102 - the very purpose
        value = eval(compile(call, "test", "eval"), module.__dict__, local)  # noqa: S307
        if job["scope"] == "function" and isinstance(value, type):
            value = f"class {value.__name__}"
        return _value_line(coder, coder["drawn"](value))
    except _OutOfTime:
        return '{"limit": "time"}'
    except coder["TooMuch"]:
        return '{"limit": "output"}'
    except MemoryError:
        return '{"limit": "memory"}'
    except BaseException as error:  # noqa: BLE001 - an answer may raise anything
        return _raised_line(error)
    finally:
        _signal.setitimer(_signal.ITIMER_PROF, 0)
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def _value_line(coder: dict[str, Any], value: Any) -> str:
    """Return the outcome line of a value; one that cannot be encoded is `foreign`, not `raised`."""
    try:
        return f'{{"value": {coder["text"](value)}}}'
    except coder["Foreign"] as error:
        name = str(error)
    except Exception:  # noqa: BLE001 - its fields may be the answer's own code
        name = type(value).__name__
    return f'{{"foreign": {_json.encode_basestring_ascii(name[:100])}}}'


def _raise_timeout(*_: object) -> None:
    raise _OutOfTime


def _seed_random(texts: list[str]) -> None:
    """Seed `random` and numpy, if the code mentions them, so that the answer and the reference
    draw the same numbers in each test."""
    if not any("random" in text for text in texts):
        return
    try:
        import random

        random.seed(0)
        if any("numpy" in text for text in texts):
            import numpy.random

            numpy.random.seed(0)
    except Exception:  # noqa: BLE001, S110 - the answer may have changed them
        pass


_CODE: dict[int, Any] = {}


def _compile_code(texts: list[str]) -> Any:
    """Return the compiled first text that is valid Python. Raises the first text's error."""
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


def _raised_line(error: BaseException) -> str:
    try:
        text = str(error)[:300]
    except BaseException:  # noqa: BLE001 - its __str__ is the answer's
        text = ""
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    parts = [type(error).__name__, text, missing if isinstance(missing, str) else ""]
    return f'{{"raised": [{", ".join(map(_json.encode_basestring_ascii, parts))}]}}'


if __name__ == "__main__":
    main()
