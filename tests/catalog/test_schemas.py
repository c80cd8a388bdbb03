"""The JSON schemas that editors read: named by every shipped file, and true of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

validators = pytest.importorskip("jsonschema.validators", reason="jsonschema is not installed")

SPECS = Path(__file__).resolve().parents[2] / "specs"
FILES = sorted(SPECS.rglob("*.yaml"))
LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)")


def schema_of(path: Path) -> Path:
    """Return the schema that a file's first line names; fails where it names none."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    found = LINE.fullmatch(first)
    assert found is not None, f"{path}: the first line names no schema: {first!r}"
    return (path.parent / found[1]).resolve()


def faults(path: Path, value: Any) -> list[str]:
    schema = json.loads(schema_of(path).read_text(encoding="utf-8"))
    kind = validators.Draft202012Validator
    kind.check_schema(schema)
    return [f"{error.json_path}: {error.message:.200}" for error in kind(schema).iter_errors(value)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SPECS)))
def test_a_shipped_file_is_what_its_schema_says(path: Path) -> None:
    kind = "models" if path.parent == SPECS else path.parent.name.removesuffix("s")
    assert schema_of(path) == SPECS / "schemas" / f"{kind}.json"
    assert faults(path, yaml.safe_load(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("tasks/arc.yaml", {"nosuch": 1}),
        ("tasks/arc.yaml", {"sample": {"count": "many"}}),
        ("protocols/reasoning.yaml", {"modes": ["fast"]}),
        ("judges/rubric.yaml", {"kind": "oracle"}),
        ("recipes/swift.yaml", {"fit": {"epochs": "three"}}),
        ("models.yaml", {"models": {"x": {"reff": "openai/x"}}}),
    ],
)
def test_a_schema_finds_a_mistake(name: str, wrong: dict[str, Any]) -> None:
    path = SPECS / name
    assert faults(path, {**yaml.safe_load(path.read_text(encoding="utf-8")), **wrong}) != []
