"""Shards under fire: 4 at once, four of their processes killed, 20 % faults; on this machine, on a
stand-in of Slurm that loses nodes, and on a Ray cluster of a head and two nodes that loses one. And
shards, listed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from convbench.store import shards
from convbench.store.shard_attempts import mark_left, shard_states
from tests.bench.bench import Row
from tests.helpers.cli import convbench, get, start
from tests.shards import slurm
from tests.shards.fire import FAULTS, booked, doubled, quiet, said, under_fire
from tests.shards.ray_cluster import cluster
from tests.support.serve import spawn

AT_ONCE = 8
CAP = 10_000_000


def command(url: str, run: str, tasks: int, *more: str) -> list[str]:
    """Return a build against the provider."""
    return ["build", "demo", "--tasks", str(tasks), "--model", "openai/scripted", "--api-base",
            f"{url}/v1", "--concurrency", str(AT_ONCE), "--run", run, "--quiet", *more]  # fmt: skip


def crews(folder: Path) -> Iterator[Row]:
    """Four killed on this machine; nodes lost by a stand-in of Slurm; then a node of a cluster
    removed."""
    with spawn("provider") as url:
        quiet(url)
        alone = convbench(folder, *command(url, "alone", 40))
        assert alone.code == 0, alone.err
        least = int(get(url, "/_stats")["calls"])
        spread = ("--shards", "12", "--budget-tokens", str(CAP))
        quiet(url, latency_s=0.2, faults=FAULTS)
        ended = under_fire(
            folder, url, command(url, "local", 40, *spread, "--on", "local:4"), "local", kills=4,
            least=least, longest=540,
        )  # fmt: skip
        assert ended.done.code == 0, ended.done.err
        yield Row("local: processes killed", ended.kills, "", 4, at_least=True)
        yield from _proof("local", folder, "local", ended.stats, least, 4 * AT_ONCE)
        quiet(url, latency_s=0.2, faults=FAULTS)
        extra, lost, draw = slurm.install(folder), [0], random.Random(5)

        def lose() -> None:
            time.sleep(0.1)
            if there := slurm.tasks(folder):
                lost[0] += slurm.lose_node(draw.choice(there))

        stats = _fired(folder, url, command(url, "slurm", 40, *spread, "--on", "slurm:4"), lose,
                       [least * n // 8 for n in range(6)], extra)  # fmt: skip
        yield Row("Slurm: nodes lost", lost[0], "", 4, at_least=True)
        yield from _proof("Slurm", folder, "slurm", stats, least, lost[0] * AT_ONCE)
        quiet(url, latency_s=0.2, faults=FAULTS)
        with cluster() as (address, remove):
            on = ("--on", f"ray:{address}", "--workers", "4")
            words = command(url, "ray", 40, *spread, *on)
            stats = _fired(folder, url, words, remove, [least // 3])
        yield from _proof("Ray", folder, "ray", stats, least, 4 * AT_ONCE)


def _proof(
    what: str, folder: Path, run: str, stats: dict[str, Any], least: int, in_flight: int
) -> Iterator[Row]:
    whole, found = said(folder / "alone"), said(folder / run)
    lost = sum(key not in found for key in whole)
    other = sum(found.get(key) != one for key, one in whole.items())
    yield Row(f"{what}: conversations lost, of {len(whole)}", lost, "", 0)
    yield Row(f"{what}: conversations that stand twice", len(doubled(folder / run)), "", 0)
    yield Row(f"{what}: conversations unlike one process's", other, "", 0)
    yield Row(f"{what}: calls paid again, of {least}", stats["repeats"], "calls", in_flight)
    faults = sum(stats["faults"].values()) / stats["calls"]
    yield Row(f"{what}: calls that met a fault", 100 * faults, "%", 12, at_least=True)
    billed = stats["billed_prompt"] + stats["billed_reply"]
    journal = booked(folder / run)
    yield Row(f"{what}: tokens billed beyond those booked", max(0, billed - journal), "tokens", 0)
    yield Row(f"{what}: tokens booked of the cap", 100 * journal / CAP, "%", 100)


def _fired(
    folder: Path,
    url: str,
    words: list[str],
    fire: Callable[[], None],
    marks: list[int],
    extra: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run a command, and `fire` once so many calls were made, for each of `marks`."""
    process = start(folder, *words, extra=extra)
    fired: list[int] = []

    def go() -> None:
        for mark in marks:
            while process.poll() is None and get(url, "/_stats")["calls"] < mark:
                time.sleep(0.1)
            if process.poll() is None:
                fire()
                fired.append(mark)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        out, err = process.communicate(timeout=540)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        thread.join(60)
    assert process.returncode == 0, out + err
    assert fired == marks, "it ended before it was fired at"
    return dict(get(url, "/_stats"))


def listing(folder: Path) -> Iterator[Row]:
    """10,000 shards, each begun twice."""
    count = 10_000
    plan = shards.ShardPlan(count=count, tasks=(shards.ShardTask(name="build"),))
    for index in range(count):
        for number in range(2):
            shards.attempt_folder(folder, index, number).mkdir(parents=True)
    shards.write_plan(folder, plan)
    mark_left(folder, dict.fromkeys(range(0, count, 2), "not begun yet"))
    began, cpu = time.monotonic(), time.process_time()
    assert shard_states(folder).done_count == count // 2
    yield Row("10,000 shards listed", time.monotonic() - began, "s", 2.0)
    yield Row("10,000 shards listed, CPU", time.process_time() - cpu, "s", 2.0)
