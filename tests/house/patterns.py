"""Print every pattern and reader of the package that a long text takes more than its share of time.

Every module is imported with the compiler of patterns watched, and what functions make of their
own is made by `samples`. Each pattern is tried on texts that its own literals and repeats suggest,
and what reads a whole reply on those of `READ`, `SHORT` and `LONG` characters of them: four times
the text may take four times as long.
"""

from __future__ import annotations

import ast
import gc
import importlib
import json
import pkgutil
import re
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import convbench

PACKAGE = Path(convbench.__file__).parent
FUNCTIONS = {"compile", "sub", "subn", "search", "match", "fullmatch", "finditer", "findall",
             "split"}  # fmt: skip
ANCHORED = {"match", "fullmatch"}
NAMES = ("experiments/preflight.py", "formats/inspect_log.py", "reports/experiment/printed.py",
         "store/guard.py")  # fmt: skip
"""Files whose functions make patterns for names and lines of ours, none for what a model wrote."""
SHORT, LONG = 5_000, 20_000
MOST = 10.0
"""LONG's time over SHORT's that is refused: 4 is in proportion to the text, 16 to its square."""
FLOOR_S = 0.02
"""Below it no time is compared: it is noise, and 100,000 characters take no time either."""
LIMIT_S = 1.0
"""CPU time after which a text is given up."""
UNITS = ("\n", " ", "\t", "a", "_", "-", "`", "a_ ", " \n", "<tool_call>{}")
READ = (" ", "\n", "\t", "a", "a_ ", "`", "*", "(", "-", "1", "1 ", "|", "> ", "~~", "<b>",
        "\N{GRINNING FACE}",
        "marble ", "marble, ", "B ", "wait ", "not ", "so B. ", "x is B. ", "the answer is ",
        "the answer is B. ", "I think it is B because ", "you should pick marble ",
        "Question: x?\n", "Accuracy: ", '{"a":')  # fmt: skip
"""What replies are made of that readers are tried on."""
SHAPES = (("T)- ", "_", ""), ("", "-", "?"))
TRIED = " \na_-`1A.:,;|()[]{}<>\"'/\\=+*#?"
"""Characters of which a class that is repeated is tried with the first few that it takes."""


class Site(NamedTuple):
    """A call of `re` in the sources."""

    file: str
    line: int
    function: str
    """Which function of `re`."""
    last: int
    """Its last line."""
    written: re.Pattern[Any] | None
    """The pattern, where a function has it written out of what its module knows."""


class TooLong(Exception):
    """A text took LIMIT_S."""


def sites() -> Iterator[Site]:
    """Yield every call of `re` in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "re":
                raise SystemExit(f"{path}: found `from re import`; expected `import re`")
            if _calls_re(node):
                file, last = str(path.relative_to(PACKAGE)), node.end_lineno or node.lineno
                yield Site(file, node.lineno, node.func.attr, last, _written(node, file))


def _calls_re(node: Any) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "re"
        and node.func.attr in FUNCTIONS
    )


def _written(call: ast.Call, file: str) -> re.Pattern[Any] | None:
    module = sys.modules.get("convbench." + file.removesuffix(".py").replace("/", "."))
    flags = [ast.unparse(word.value) for word in call.keywords if word.arg == "flags"]
    try:
        text = eval(ast.unparse(call.args[0]), vars(module))
    except NameError:  # made of what the function is given
        return None
    return re.compile(text, eval(flags[0], {"re": re}) if flags else 0)


def variables() -> dict[tuple[str, int], str]:
    """Return the name that a module gives to what stands in each of its lines."""
    return {
        (str(path.relative_to(PACKAGE)), line): name
        for path in PACKAGE.rglob("*.py")
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and (name := _variable(statement))
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }


def _variable(statement: ast.Assign | ast.AnnAssign) -> str | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return target.id if isinstance(target, ast.Name) else None


def uses() -> dict[tuple[str, str], set[str]]:
    """Return what is called of each name of a module, by (file or "" for all files, name)."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = {
            id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                for file in (str(path.relative_to(PACKAGE)), ""):
                    found[file, node.id].add(called.get(id(node), "passed on"))
            elif isinstance(node, ast.Attribute):  # module.NAME.search
                found["", node.attr].add(called.get(id(node), "passed on"))
    return found


def watched() -> dict[tuple[str, int], set[tuple[re.Pattern[Any], int]]]:
    """Import everything and make what functions make; return the patterns by file and line, each
    with the line of the module itself that led there."""
    compiler = re._compile  # type: ignore[attr-defined]
    found: dict[tuple[str, int], set[tuple[re.Pattern[Any], int]]] = defaultdict(set)

    def watch(pattern: Any, flags: int) -> re.Pattern[Any]:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename == re.__file__:
            frame = frame.f_back
        made: re.Pattern[Any] = compiler(pattern, flags)
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            place, outer = (str(file.relative_to(PACKAGE)), frame.f_lineno), frame
            while outer.f_code.co_name != "<module>" and outer.f_back is not None:
                outer = outer.f_back
            own = outer.f_code.co_filename == str(file)
            found[place].add((made, outer.f_lineno if own else 0))
        return made

    re._compile = watch  # type: ignore[attr-defined]
    for module in pkgutil.walk_packages([str(PACKAGE)], "convbench."):
        with suppress(ImportError):  # an extra that is not installed
            importlib.import_module(module.name)
    samples()
    re._compile = compiler  # type: ignore[attr-defined]
    return found


def samples() -> None:
    """Have each function that makes a pattern make one."""
    from convbench import catalog
    from convbench.answers.read import read_option
    from convbench.hub.safety import SecretScanner
    from convbench.judges import instructions, rules
    from convbench.models import refusals
    from convbench.rollout import checks
    from convbench.schema import JudgeSpec
    from convbench.store import keys
    from convbench.util import redact

    example = asked("aaaaaaaa", "a b, a b", "SELECT a FROM b")
    redact._wrapped_patterns(("sk-aaaa1111aaaa1111",))
    redact._key_patterns.__wrapped__()
    SecretScanner({})
    keys._key_pattern.__wrapped__(("key", "example_id"))
    rules._mentioned_share("A", example)
    instructions.names_every_label(catalog.load_spec(JudgeSpec, "judges", "rubric"))
    refusals.named_parameters("no top_p", ["top_p"])
    checks._named_options("nothing.", example)
    read_option("nothing", example.options)


def literals(tree: Any) -> Iterator[str]:
    """Yield the runs of plain characters in a parsed pattern, and those of its classes."""
    run = ""
    for kind, value in tree:
        if kind is op.LITERAL:
            run += chr(value)
            continue
        yield run
        run = ""
        if kind is op.IN:
            yield from (chr(one) for what, one in value if what is op.LITERAL)
        for inner in _inner(kind, value):
            yield from literals(inner)
    yield run


def repeats(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (what stands before it, what it takes) for everything that is repeated without end."""
    for kind, value in tree:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[1] > LONG:
            yield from ((before, one) for one in _taken(value[2]))
        for inner in _inner(kind, value):
            yield from repeats(inner, before)
        before += _sample([(kind, value)])


def _inner(kind: Any, value: Any) -> list[Any]:
    if kind is op.BRANCH:
        return list(value[1])
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return [value[1]]
    return [value] if kind is op.ATOMIC_GROUP else []


def _taken(body: Any) -> list[str]:
    """Return what a repeat is tried with: a few characters of its class, or a sample of it."""
    items = list(body)
    if len(items) == 1 and items[0][0] is op.IN:
        return _characters(items[0][1])[:4]
    return [text for text in [_sample(items)] if text]


def _sample(tree: Any) -> str:
    """Return a text that the pattern takes, as short as its counts allow."""
    out = ""
    for kind, value in tree:
        if kind is op.LITERAL:
            out += chr(value)
        elif kind in (op.NOT_LITERAL, op.ANY):
            out += "b" if value == ord("a") else "a"
        elif kind is op.IN:
            out += _characters(value)[0]
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            out += _sample(value[2]) * value[0]
        elif kind not in (op.ASSERT, op.ASSERT_NOT):
            out += next((_sample(inner) for inner in _inner(kind, value)), "")
    return out


def _characters(members: Any) -> list[str]:
    """Return the characters of TRIED that a class takes, or its first one."""
    takes = [one for one in TRIED if _takes(members, one) != (members[0][0] is op.NEGATE)]
    first = [value if kind is op.LITERAL else value[0] for kind, value in members
             if kind in (op.LITERAL, op.RANGE)]  # fmt: skip
    return takes or [chr(first[0])]


def _takes(members: Any, char: str) -> bool:
    for kind, value in members:
        if kind is op.LITERAL and ord(char) == value:
            return True
        if kind is op.RANGE and value[0] <= ord(char) <= value[1]:
            return True
        if kind is op.CATEGORY and re.match(CATEGORIES[value], char):
            return True
    return False


CATEGORIES = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
              op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w",
              op.CATEGORY_NOT_WORD: r"\W"}  # fmt: skip


def shapes(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (beginning, what is repeated, end) of the texts that a pattern is tried on."""
    source = pattern.pattern
    plain = source if isinstance(source, str) else source.decode("latin-1")
    tree = _parser.parse(plain, pattern.flags & ~(0 if isinstance(source, str) else re.UNICODE))
    own = list(dict.fromkeys(filter(None, literals(tree))))[:24]
    found = dict.fromkeys([*(("", unit) for unit in (*UNITS, *own)), *repeats(tree)])
    found.update(dict.fromkeys(("", before + unit) for before, unit in list(found) if before))
    yield from SHAPES
    yield from ((before, unit, end) for before, unit in found for end in ("", "!"))


def seconds(work: Callable[[], Any]) -> float:
    """Return the CPU time of some work, infinity after LIMIT_S."""
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    start = time.process_time()
    try:
        work()
        return time.process_time() - start
    except TooLong:
        return float("inf")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def slow(pattern: re.Pattern[Any], how: str) -> str | None:
    """Return the first text that takes a pattern more than its share, and by how much."""

    def read(text: str) -> None:
        said: Any = text if isinstance(pattern.pattern, str) else text.encode()
        if how in ANCHORED:
            getattr(pattern, how)(said)
        else:
            deque(pattern.finditer(said), maxlen=0)

    return next(filter(None, (takes_long(read, *shape) for shape in shapes(pattern))), None)


def takes_long(read: Callable[[str], Any], before: str, unit: str, end: str) -> str | None:
    """Return by how much reading a text of one unit takes more than its share, if it does."""
    texts = [
        before + (unit * (size // len(unit) + 1))[: size - len(before)] + end
        for size in (LONG, SHORT)
    ]
    long, short = float("inf"), float("inf")
    for _ in range(3):
        long = min(long, seconds(lambda: read(texts[0])))
        if FLOOR_S < long < LIMIT_S:
            short = min(short, sum(seconds(lambda: read(texts[1])) for _ in range(4)) / 4)
        if long < LIMIT_S and long <= max(FLOOR_S, MOST * short):
            return None
    told = f"over {LIMIT_S:g} s" if long > LIMIT_S else f"{long:.2f} s for {short:.4f} s"
    return f"{told} on {before!r} + {unit!r} … + {end!r}"


def readers() -> dict[str, Callable[[str], Any]]:
    """Return what reads a whole reply, by name."""
    from convbench import catalog
    from convbench.answers.read import read_option
    from convbench.judges import replies
    from convbench.rollout import checks
    from convbench.schema import JudgeSpec

    rocks, numbers = asked("granite", "sandstone", "marble"), asked("5", "10", "15")
    rubric = catalog.load_spec(JudgeSpec, "judges", "rubric")
    return {
        "read_option of words": lambda text: read_option(text, rocks.options),
        "read_option of numbers": lambda text: read_option(text, numbers.options),
        "options that are named": lambda text: checks._named_options(text, rocks),
        "a judge's reply": lambda text: replies.read_reply(text, rubric),
    }


def asked(*texts: str) -> Any:
    """Return an example with these options."""
    from convbench.schema import Choice, Example

    choices = tuple(Choice(label="ABC"[i], text=text) for i, text in enumerate(texts))
    return Example(example_id="e", task="t", split="train", group_id="e", question="Which?",
                   choices=choices, answer="A")  # fmt: skip


def main() -> None:
    """Print the slow patterns, and the calls of `re` whose pattern was never made, as JSON."""
    signal.signal(signal.SIGVTALRM, _stop)
    found, used, names = watched(), uses(), variables()
    gc.disable()
    lines: dict[str, None] = {}
    for site in sites():
        made = {one for line in range(site.line, site.last + 1) for one in found[site.file, line]}
        if not made and site.written is not None and site.function != "compile":
            made = {(site.written, 0)}
        if not made and site.file not in NAMES:
            lines[f"{site.file}:{site.line}: no pattern was made; give `samples` a call"] = None
        for pattern, line in made:
            name = names.get((site.file, line), "")
            calls = used[site.file if name.startswith("_") else "", name]
            calls = calls if site.function == "compile" else {site.function}
            for how in sorted(calls) if calls and calls <= ANCHORED else ["search"]:
                told = slow(pattern, how)
                if told:
                    lines[f"{site.file}:{site.line}: {how}: {told}: {pattern.pattern!r:.90}"] = None
    for name, read in readers().items():
        told = filter(None, (takes_long(read, "", unit, "") for unit in READ))
        lines.update((f"{name}: {one}", None) for one in told)
    print(json.dumps(list(lines)))


def _stop(*_: Any) -> None:
    raise TooLong


if __name__ == "__main__":
    main()
