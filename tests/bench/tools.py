"""Dialogues that call tools and think, with servers strict about both; killed amid the rounds of
tools and resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from convbench.catalog import load_spec
from convbench.schema import ProtocolSpec
from tests.bench.bench import Row
from tests.bench.thinking import CONCURRENCY, KINDS, killed_and_resumed
from tests.helpers.cli import get, records
from tests.support.serve import spawn

SERVERS = {
    **{kind: KINDS[kind] for kind in ("deepseek-r1", "deepseek-v4", "anthropic")},
    "openai": {"ref": "openai/plain"},
}
TASKS, SAMPLES, REPLIES = 50, 5, 3
COUNTED = """
from convbench.tasks import market

def lookup(arguments, fields):
    with open("lookups", "a") as file:
        file.write("x")
    return market.lookup(arguments, fields)
"""
"""A plugin whose tool leaves a mark each time that it runs."""


def tools(folder: Path) -> Iterator[Row]:
    """250 dialogues with each of four servers: two look-ups at once, a sum, the answer."""
    spec = load_spec(ProtocolSpec, "protocols", "tools").model_dump(mode="json", exclude={"name"})
    spec["speakers"]["assistant"]["tools"][0]["function"] = "counted:lookup"
    (folder / "specs" / "protocols").mkdir(parents=True)
    (folder / "specs" / "protocols" / "counted.yaml").write_text(json.dumps(spec))
    (folder / "specs" / "models.yaml").write_text(json.dumps({"models": SERVERS}))
    (folder / "counted.py").write_text(COUNTED)
    for kind in SERVERS:
        yield from _with(folder, kind)


def _with(folder: Path, kind: str) -> Iterator[Row]:
    wanted, thinks = TASKS * SAMPLES, kind != "openai"
    (folder / "lookups").unlink(missing_ok=True)
    began = time.monotonic()
    with spawn("provider") as url:
        killed_and_resumed(
            folder, kind, url, wanted * REPLIES // 2,
            "market", "--protocol", "counted", "--plugin", "counted.py",
            "--tasks", str(TASKS), "--samples", str(SAMPLES), thinks=thinks,
        )  # fmt: skip
        stats = get(url, "/_stats")
    seconds = time.monotonic() - began
    found = records(folder / f"run-{kind}" / "conversations.jsonl")
    gold = {
        one["example_id"]: one["answer"]
        for one in records(folder / f"run-{kind}" / "examples.jsonl")
    }
    whole = [one for one in found if one["failure"] is None]
    turns = [one["turns"][-1] for one in whole]
    right = sum(
        turn["content"].startswith(f"The answer is {gold[one['example_id']]}.")
        for one, turn in zip(whole, turns, strict=True)
    )
    thought = sum(
        ("reasoning" in turn) + sum("reasoning" in one for one in turn["rounds"]) for turn in turns
    )
    refused = sum(n for status, n in stats["status"].items() if status not in ("200", "lost"))
    yield Row(f"{kind}: dialogues lost or wrong, calls refused", 2 * wanted - len(whole) - right
              + refused, "", 0)  # fmt: skip
    if thinks:
        yield Row(f"{kind}: replies without reasoning", wanted * REPLIES - thought, "", 0)
    yield Row(f"{kind}: calls made twice", stats["repeats"], "", CONCURRENCY)
    twice = (folder / "lookups").stat().st_size - 2 * wanted
    yield Row(f"{kind}: look-ups run twice", twice, "", 2 * CONCURRENCY)
    yield Row(f"{kind}: dialogues", wanted / seconds, "/s", 0, at_least=True)
