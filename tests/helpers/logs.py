"""Logs to import: conversations of six messages with rewards, as many as are asked for."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from pathlib import Path

from convbench.store.jsonl import Appender, numbered_lines

SAMPLES = 4
"""Conversations about one question, so that `train swift` has something to compare."""
WORDS = 20_000
"""Words of the language that they speak; the n-th is about 1/n as frequent (Zipf)."""
SPOKEN = 2_000_000
"""Words in a row that texts are cut out of: a frame of a compressed file holds a fiftieth."""


def write_logs(path: Path, count: int, seed: int = 0) -> int:
    """Write `count` conversations of about 2.8 kB; return the bytes. Texts hardly repeat nearby, so
    that compression finds in them what it finds in prose."""
    random_ = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(random_.choices(letters, k=random_.randint(2, 9))) for _ in range(WORDS)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, WORDS + 1)))
    spoken = random_.choices(words, cum_weights=weights, k=SPOKEN)

    def text(size: int) -> str:
        start = int(random_.random() * (SPOKEN - size))
        return " ".join(spoken[start : start + size])

    with path.open("w") as file:
        for number in range(count):
            question = number // SAMPLES
            right = random_.random() < 0.6
            if number % SAMPLES == 0:
                asked = f"({question}) {text(60)}?"
            said = [asked, text(70), text(40), text(90), text(40),
                    f"{text(100)}\nAnswer: {'B' if right else 'C'}"]  # fmt: skip
            row = {
                "messages": [
                    {"role": ("user", "assistant")[place % 2], "content": one}
                    for place, one in enumerate(said)
                ],
                "example_id": f"q{question}", "reward": round(random_.random() / 2 + right / 2, 3),
                "answer": "B", "choices": ["one", "two", "three"],
                "split": "test" if question % 5 == 4 else "train",
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
    return path.stat().st_size


def inflate(run: Path, to: Path, copies: int) -> None:
    """Make a run of `copies` times the conversations of a run, under new names: what
    reads runs can be measured on a million without the hours that importing them takes."""
    to.mkdir(parents=True)
    if (run / "judges").is_dir():
        shutil.copytree(run / "judges", to / "judges")
    for name in ("examples.jsonl", "conversations.jsonl", "verdicts.jsonl"):
        whole = [line.rstrip(b"\n") for _, line in numbered_lines(run / name)]
        if not whole:
            continue
        with Appender(to / name) as file:
            for copy in range(copies):
                for line in whole:
                    file.write(_renamed(line, b"c%d" % copy))
    shutil.copyfile(run / "run.json", to / "run.json")


def _renamed(line: bytes, mark: bytes) -> bytes:
    """Give a record's names the mark; they stand among its first fields."""
    head, rest = line[:300], line[300:]
    for field in (b"key", b"conversation_id", b"example_id", b"group_id"):
        head = head.replace(b'"%b":"' % field, b'"%b":"%b-' % (field, mark), 1)
    return head + rest
