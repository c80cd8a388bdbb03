"""The order of the rooms, no circles, and nothing heavy on `--help`."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "convbench"

ORDER = """
api commands experiments viewer hub reports seal learn shards judges rollout options formats engine
models pocket tasks source store sandbox catalog answers,rewards views,prompts
stats templates schema util errors
"""
"""The rooms, top to bottom: each may import from those below it."""
DEPTH = {name: depth for depth, names in enumerate(ORDER.split()) for name in names.split(",")}
ENDS = ("__init__", "__main__")

BREAKS: set[str] = set()
"""Imports that go up: mended with their rooms."""

HEAVY = ("torch", "transformers", "litellm", "datasets", "duckdb", "trl", "pyarrow", "jinja2")


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    files = {path.relative_to(ROOT).with_suffix("").parts: path for path in PACKAGE.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in files.items()}


@cache
def imported(path: Path) -> frozenset[str]:
    """The dotted names that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & modules().keys() or {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(names)


def room(name: str) -> str:
    """The room of a dotted module name."""
    return [*name.split("."), "__init__"][1]


def test_imports_go_down() -> None:
    known = modules()
    upward = set()
    for name, path in known.items():
        for other in imported(path) & known.keys():
            if room(name) in ENDS or room(other) in (*ENDS, room(name)):
                continue
            if DEPTH[room(other)] <= DEPTH[room(name)]:
                upward.add(f"{name} > {other}")
    assert upward == BREAKS


def test_no_two_files_import_each_other() -> None:
    known = modules()
    left = {name: imported(path) & known.keys() - {name} for name, path in known.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert not left


def test_no_test_imports_a_test() -> None:
    """What tests share lies in `tests/helpers`."""
    shared = [
        f"{path.relative_to(ROOT)} > {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in imported(path)
        if any(part.startswith("test_") for part in name.split("."))
    ]
    assert not shared


def test_every_module_of_ours_that_is_imported_is_there() -> None:
    """Those in functions too, which nothing else reads until they run."""
    lost = []
    for folder in ("convbench", "trainers", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_relative_to(ROOT / "tests" / "lab"):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                name = node.module if isinstance(node, ast.ImportFrom) and not node.level else None
                parts = (name or "").split(".")
                at = ROOT.joinpath(*parts)
                if parts[0] in ("convbench", "trainers", "tests") and not (
                    at.is_dir() or at.with_suffix(".py").is_file()
                ):
                    lost.append(f"{path.relative_to(ROOT)}: {name}")
    assert not lost


@pytest.mark.parametrize("words", [["-c", "import convbench"], ["-m", "convbench", "--help"]])
def test_nothing_heavy_is_loaded_for_help(words: list[str]) -> None:
    action = "from convbench.__main__ import main; main()" if "-m" in words else words[1]
    code = (
        "import sys, atexit\n"
        "sys.argv = ['convbench', '--help']\n"
        f"heavy = lambda: [name for name in {HEAVY!r} if name in sys.modules]\n"
        "atexit.register(lambda: print('LOADED', heavy()))\n"
        f"{action}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("LOADED []"), done.stdout[-200:]


def test_generated_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
