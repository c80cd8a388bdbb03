"""Damages of a run folder's files, by the file: what strangers, crashes and editors leave there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
DEEP = "[" * 100_000 + "]" * 100_000
ODD = {
    "slashes": "../../../etc/passwd",
    "NUL": "a\0b",
    "300 characters": "x" * 300,
    "controls": "a\x1b[2J\u202eb\r\n",
    "empty": "",
}
"""Texts that are no name anybody gives."""
HUGE = 10**9
WHOLE = (
    b"{\n",
    b"\xff\xfe\x00\n",
    b"5\n",
    b"null\n",
    b'"text"\n',
    b"[1, 2]\n",
    b"%s\n" % DEEP.encode(),
)
"""Contents that are no file of ours at all."""


def write(name: str, data: bytes) -> Damage:
    """Put these bytes in the place of a file."""
    return lambda run: (run / name).write_bytes(data) and None


def change(name: str, way: str, value: Any, line: int = 0) -> Damage:
    """Set one field, by its path, of a JSON file, or of one line of JSON lines; `...` takes it
    away."""

    def do(run: Path) -> None:
        path = run / name
        lines = path.read_text().splitlines() if name.endswith(".jsonl") else [path.read_text()]
        record = json.loads(lines[line])
        place, *rest = way.split(".")
        at = record
        for key in rest:
            at, place = at[int(place) if isinstance(at, list) else place], key
        if value is ...:
            at.pop(place)
        else:
            at[int(place) if isinstance(at, list) else place] = value
        lines[line] = json.dumps(record)
        path.write_text("\n".join(lines) + "\n")

    return do


def line(name: str, text: str) -> Damage:
    """Add a line of text."""
    return lambda run: (run / name).write_text((run / name).read_text() + text + "\n") and None


def folder(name: str) -> Damage:
    """Put a folder in the place of a file."""

    def do(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return do


def pipe(name: str) -> Damage:
    """Put a pipe that nobody writes to in the place of a file."""

    def do(run: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return do


def holes(name: str) -> Damage:
    """Put five gigabytes in the place of a file that take nothing of the disk."""

    def do(run: Path) -> None:
        (run / name).write_bytes(b"")
        os.truncate(run / name, 5 << 30)

    return do


def fields(name: str, wrong: dict[str, tuple[Any, ...]]) -> dict[str, Damage]:
    """Return a damage for every wrong value of every field."""
    return {
        f"{way} {'missing' if value is ... else repr(value)[:30]}": change(name, way, value)
        for way, values in wrong.items()
        for value in values
    }


def contents(name: str) -> dict[str, Damage]:
    """Return the damages that every file may have."""
    found = {f"is {data[:8]!r}": write(name, data) for data in WHOLE}
    return {**found, "is a folder": folder(name), **no_file(name)}


def no_file(name: str) -> dict[str, Damage]:
    """Return what never ends where a file is expected."""
    return {"is a pipe": pipe(name), "is holes": holes(name)}


def lines(name: str) -> dict[str, Damage]:
    """Return the damages that every file of JSON lines may have; no line at all is none."""
    texts = ("5", "null", "[1, 2]", '"text"', "{}", "{", '{"a": NaN}', '{"a": ' + DEEP + "}")
    return {f"has a line {text[:12]}": line(name, text) for text in texts} | no_file(name)


def odd(name: str, way: str, line: int = 0) -> dict[str, Damage]:
    """Return odd names for a field."""
    return {f"{way} {what}": change(name, way, text, line) for what, text in ODD.items()}


TEXT, COUNT, LIST = (5, [], {}, None), (-1, 2**70, "x", 1.5), ("x", 5, [1], {"a": 1})
REFUSED: dict[str, dict[str, Damage]] = {
    "run.json": contents("run.json") | fields("run.json", {
        "id": (..., *TEXT), "created": (..., 5), "version": (..., 5), "mode": ("x", ...),
        "format": (2, "x"), "kind": ("x",), "task": (..., "x", 5, []), "protocol": (..., "x", {}),
        "samples": (HUGE, 0, *COUNT), "turns": (HUGE, *COUNT), "seed": (2**70, "x"),
        "temperatures": ([], ["x"], [-1], [0.1, 0.2, 0.3], "x", [float("nan")]),
        "cast": (..., [], {}, {"assistant": 5}), "split": ("x",),
        "fingerprints": ("x", [], {"a": 1}),
        "parent": (5, []), "checkpoint": (5, {}), "extra": ("x", [1]), "pulled_from": (5,),
        "task.source": ({}, "x"), "task.sample": ({"train": 2}, 5),
        "protocol.speakers": ({}, {"a": {"policy": True}}, 5), "protocol.steps": ([], [5]),
        "unknown": (1,),
    }),
    "examples.jsonl": contents("examples.jsonl") | lines("examples.jsonl")
    | fields("examples.jsonl", {
        "example_id": (..., *TEXT), "split": (..., "x", 5), "group_id": (..., 5, {}),
        "question": (..., 5, []), "choices": ("x", [5], [{"label": 5}]), "inputs": (5, "x"),
        "answer": (5, []), "hidden": ([1],), "unknown": (1,),
    }) | {"one id twice": change("examples.jsonl", "example_id", "q1")},
    "conversations.jsonl": lines("conversations.jsonl") | fields("conversations.jsonl", {
        "key": (..., *TEXT), "example_id": (..., "nobody", *TEXT),
        "conversation_id": (..., *TEXT, "", "/etc/notes", "../notes", "a/b", "a b", ".x", "a\0b",
                            "a\n", "x" * 201),
        "attempt": COUNT, "sample": COUNT, "temperature": (-1, "x", float("nan")),
        "seed": (2**70, "x"), "systems": (5, {"a": 1}), "turns": ("x", 5, [1], [{}]),
        "turns.1.content": (..., 5, [{"type": "image", "file": "../../x.png"}],
                            [{"type": "image", "file": ".."}], [5]),
        "turns.1.speaker": (..., 5), "turns.1.prompt_tokens": COUNT,
        "turns.1.cost_usd": (-1, float("inf"), "x"), "turns.1.finish_reason": ("x", 5),
        "stop": ("x", 5), "failure": ("x", {"kind": 5}), "flags": ("x", [5]),
        "unknown": (1,),
    }) | {"one id twice": change("conversations.jsonl", "conversation_id", "run-q0-1")},
    "verdicts.jsonl": lines("verdicts.jsonl") | fields("verdicts.jsonl", {
        "conversation_id": (..., *TEXT, "/etc/notes", "a/b", "../a", "a#b"),
        "judge": (..., *TEXT, "j\x1b]0;PWN\x07", "a\u202eb", "a\x9b2J"),
        "fingerprint": (..., 5, []),
        "scores": ("x", [1], {"overall": "x"}, {"overall": float("nan")}),
        "reward": ("x", [], float("inf")), "justifications": ("x", {"overall": 5}),
        "details": ("x", [1]), "failure": ("x", {"kind": 5}), "attempts": COUNT,
        "cost_usd": (-1, "x"), "unknown": (1,),
    }),
}  # fmt: skip
"""Damages that a command which reads the file refuses, by file and name."""

BORNE: dict[str, dict[str, Damage]] = {
    "run.json": odd("run.json", "id") | odd("run.json", "task.title") | odd("run.json", "created")
    | odd("run.json", "parent") | odd("run.json", "checkpoint")
    | odd("run.json", "cast.assistant.model"),
    "examples.jsonl": odd("examples.jsonl", "group_id") | odd("examples.jsonl", "question")
    | odd("examples.jsonl", "task") | {"is empty": write("examples.jsonl", b"")},
    "conversations.jsonl": contents("conversations.jsonl") | odd("conversations.jsonl", "key")
    | odd("conversations.jsonl", "conversation_id") | odd("conversations.jsonl", "turns.1.content")
    | odd("conversations.jsonl", "turns.1.step")
    | {"a stranger speaks": change("conversations.jsonl", "turns.1.speaker", "nobody")},
    "verdicts.jsonl": contents("verdicts.jsonl") | odd("verdicts.jsonl", "judge")
    | odd("verdicts.jsonl", "fingerprint") | odd("verdicts.jsonl", "conversation_id"),
    "comparisons.jsonl": contents("comparisons.jsonl") | fields("comparisons.jsonl", {
        "first": (..., None, 5), "preferred": ("x", 2, -1, float("nan")), "scores": ("x", [5]),
        "group_id": (..., 5), "failure": ("x",),
    }),
    "calls.jsonl": contents("calls.jsonl") | lines("calls.jsonl") | fields("calls.jsonl", {
        "prompt_tokens": ("x", [], -1), "cost_usd": ("x", {}, -1), "content": (5, [5], {}),
        "finish_reason": (5,), "hash": (5, []), "key": (5, None),
    }),
    "labels.jsonl": contents("labels.jsonl") | lines("labels.jsonl"),
    "judges/f00d.json": contents("judges/f00d.json") | fields("judges/f00d.json", {
        "name": (..., "../x", 5), "kind": ("x", ...), "metrics": ("x", [5]), "reward": ("x", 5),
        "lowest": ("x", float("nan")), "unknown": (1,), "function": ("os:system", "x", 5),
    }),
    "published.json": contents("published.json"),
    "checkpoints/refit/training.json": contents("checkpoints/refit/training.json"),
    "checkpoints/refit/recipe.yaml": contents("checkpoints/refit/recipe.yaml"),
    "evals/refit/run.json": contents("evals/refit/run.json")
    | odd("evals/refit/run.json", "parent"),
    "evals/refit/conversations.jsonl": lines("evals/refit/conversations.jsonl"),
}  # fmt: skip
"""Damages that a command refuses or passes over; it never breaks on them."""


def says(messages: Any, state: Any) -> str:
    """The policy of the damaged runs."""
    return "The answer is B."
