"""The house's own rules: layers, layout, lazy imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from convbench.judge import kinds as judge_kinds
from convbench.schema.judge import JudgeKind

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "convbench"

STAGES = (
    ("api",),
    ("commands",),
    ("experiment",),
    ("view",),
    ("publish",),
    ("report",),
    ("learn",),
    ("shards",),
    ("judge",),
    ("rollout",),
    ("options",),
    ("engine", "store", "models", "tasks", "catalog", "hub", "sandbox", "pocket", "formats"),
    ("answers", "views", "prompts", "rewards", "stats", "net"),
    ("templates", "template_calls", "plain_data"),
    ("schema",),
    ("usage_estimate",),
    ("redact", "terminal", "described"),
    ("printable", "regular"),
    ("words", "errors", "callable", "install", "cache", "guard"),
)
"""The stages, last first: each may use those below it, never one above it."""
HEIGHT = {name: height for height, names in enumerate(STAGES) for name in names}


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a module, parsed once for all laws."""
    return ast.parse(path.read_text())


def imports(path: Path) -> list[str]:
    """Return the convbench rooms that a file imports, inside functions too."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("convbench"):
            parts = (node.module or "").split(".")
            found += [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [a.name.split(".")[1] for a in node.names if a.name.startswith("convbench.")]
    return found


FILES = sorted(PACKAGE.rglob("*.py"))
PRETRAINING = sorted((ROOT / "trainers" / "pocket").glob("*.py"))
"""What made the weights that ship: these import each other, other trainers stand alone."""


def upward(path: Path) -> list[str]:
    """The imports of a file that go to a room above its own, or to one without a layer."""
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in ("__main__", "__init__"):
        return [other for other in imports(path) if (room, other) != ("__main__", "commands")]
    others = [other for other in imports(path) if other not in ("__version__", room)]
    return [other for other in others if HEIGHT.get(other, -1) < HEIGHT[room]]


def test_imports_go_downward() -> None:
    wrong = {str(path.relative_to(PACKAGE)): upward(path) for path in FILES}
    assert not {path: others for path, others in wrong.items() if others}


ROOMS = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def test_every_room_says_what_lives_there_and_what_it_may_use() -> None:
    """In its own words, and on the map."""
    drawn = (ROOT / "docs" / "map.md").read_text()
    for room in ROOMS:
        doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        assert doc.split("\n")[0].endswith((".", ":")), f"{room.name}: no sentence"
        assert re.search(r"\b(use|uses)\b", doc.lower()), f"{room.name}: what may it use?"
        assert f"{room.name}/" in drawn, f"{room.name}: not drawn"


def test_the_map_names_files_that_are_there() -> None:
    """Each `room/file.py` of the map, below the package or beside it."""
    named = re.findall(r"`([a-z_]+/[a-z0-9_/]+\.py)`", (ROOT / "docs" / "map.md").read_text())
    gone = [name for name in named if not any((at / name).is_file() for at in (PACKAGE, ROOT))]
    assert len(named) > 50
    assert not gone, f"not there: {gone}"


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in [*FILES, *PRETRAINING]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def uses(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports, inside functions and for types too."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in known and known[name] != path}


def test_every_module_of_ours_that_is_imported_is_there() -> None:
    """Those in functions too, which nothing else reads until they run."""
    known = {*modules(), "convbench"}
    lost = []
    for path in [*FILES, *(ROOT / "trainers").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            ours = [name for name in names if name.split(".")[0] in ("convbench", "trainers")]
            lost += [f"{path.relative_to(ROOT)}: {name}" for name in ours if name not in known]
    assert not lost


def test_no_circle_anywhere() -> None:
    """Not between rooms, not between two files of one room."""
    known = modules()
    left = {name: uses(path, known) for name, path in known.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    tied = {name: needs & left.keys() for name, needs in left.items()}
    assert not tied, f"these import each other, or what does: {tied}"


ONE_MEANING = ("Policy", "Job", "Row", "Result", "Table")


@pytest.mark.parametrize("name", ONE_MEANING)
def test_a_short_name_means_one_thing(name: str) -> None:
    """A class of such a name is defined once; the others say which."""
    found = [
        str(path.relative_to(PACKAGE))
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert len(found) <= 1, f"{name} is defined in {found}; say which in their names"


KINDS = set(get_args(JudgeKind))
LEARNERS = {path.stem for path in (ROOT / "trainers").glob("*.py")}


def compared(path: Path) -> list[str]:
    """Names in quotes that a file compares something with: `x == "name"`, `x in ("name", …)`."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                found += [
                    leaf.value
                    for leaf in ast.walk(side)
                    if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
                ]
    return found


def test_no_learner_or_judge_kind_is_known_by_name() -> None:
    """What differs between them is said where they are registered, and asked there."""
    for path in FILES:
        if path != PACKAGE / "schema" / "judge.py":  # where the kinds' names are listed
            named = [name for name in compared(path) if name in KINDS | LEARNERS]
            assert not named, f"{path.name} compares with {named}; ask judge.kinds or the trainer"


def test_every_judge_kind_is_registered() -> None:
    assert set(judge_kinds.KINDS) == KINDS
    for kind in judge_kinds.KINDS.values():
        assert callable(kind.open_kind)
        assert callable(kind.score)


def test_trainers_stand_alone() -> None:
    for path in sorted((ROOT / "trainers").glob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name} is launched by path: absolute imports only"
                assert not (node.module or "").startswith("trainers"), path.name


def test_nothing_imports_a_trainer() -> None:
    for path in FILES:
        assert "import trainers" not in path.read_text()
        assert "from trainers" not in path.read_text()


HEAVY = (
    "torch",
    "transformers",
    "litellm",
    "datasets",
    "duckdb",
    "trl",
    "openai",
    "pyarrow",
    "jinja2",
)


@pytest.mark.parametrize("what", [["-c", "import convbench"], ["-m", "convbench", "--help"]])
def test_nothing_heavy_is_loaded_for_help(what: list[str]) -> None:
    action = (
        "import convbench" if what[0] == "-c" else "from convbench.__main__ import main; main()"
    )
    code = (
        "import sys\n"
        f"sys.argv = ['convbench', *{what[2:]!r}]\n"
        "try:\n"
        f"    {action}\n"
        "except SystemExit:\n"
        "    pass\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_top_level_is_the_agreed_one() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    tops = {line.split("/")[0] for line in listed if line}
    agreed = {
        "pyproject.toml", "convbench", "specs", "trainers", "tests", "docs", "README.md",
        "Makefile", "LICENSE", "CHANGELOG.md", "constraints.txt", "mkdocs.yml", ".ci",
        ".gitignore", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "AGENTS.md", "llms.txt",
        ".github", ".pre-commit-config.yaml",
    }  # fmt: skip
    assert tops <= agreed, f"not agreed: {tops - agreed}"


def test_generated_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_class_reads_its_source_when_it_is_made() -> None:
    """`described` does when a schema is asked for; before, each command's start paid."""
    for path in FILES:
        assert "use_attribute_docstrings=True" not in path.read_text()
