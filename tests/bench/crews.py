"""Workers under fire: 4 of them, three killed, one asleep beyond its lease, 20 % faults; on this
machine, and on a Ray cluster of a head and two nodes that loses one. And shards, listed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from convbench.store import shards
from convbench.store.claims import Entry, listed, this_process
from tests.bench.bench import ROOT, Row
from tests.rollout.cli import convbench, get, start
from tests.support.serve import spawn
from tests.workers.crew import FAULTS, doubled, quiet, said, settled, under_fire

AT_ONCE = 8
CAP = 10_000_000
CLUSTER = """
import sys, time, types
import ray._private.node
from ray.cluster_utils import Cluster
slow = {**vars(time), "monotonic": lambda real=time.monotonic: real() / 20}
ray._private.node.time = types.SimpleNamespace(**slow)  # its 30 s are few on a loaded machine
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False,
                  "object_store_memory": 80_000_000})
nodes = [cluster.add_node(num_cpus=2, object_store_memory=80_000_000) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "remove":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
        print("removed", flush=True)
cluster.shutdown()
"""


def command(url: str, run: str, tasks: int, *more: str) -> list[str]:
    """Return a build against the provider."""
    return ["build", "demo", "--tasks", str(tasks), "--model", "openai/scripted", "--api-base",
            f"{url}/v1", "--concurrency", str(AT_ONCE), "--run", run, "--quiet", *more]  # fmt: skip


def crews(folder: Path) -> Iterator[Row]:
    """Three killed and one asleep on this machine; then a node of a cluster removed."""
    with spawn("provider") as url:
        quiet(url)
        alone = convbench(folder, *command(url, "alone", 40))
        assert alone.code == 0, alone.err
        least = int(get(url, "/_stats")["calls"])
        spread = ("--shards", "12", "--lease", "1.5", "--budget-tokens", str(CAP))
        quiet(url, latency_s=0.2, faults=FAULTS)
        found = under_fire(
            folder, url, command(url, "local", 40, *spread, "--on", "local:4"), "local", kills=3,
            least=least, sleep_s=120, longest=540,
        )  # fmt: skip
        assert found.done.code == 0, found.done.err
        yield Row("local: workers killed", found.kills, "workers", 3, at_least=True)
        yield Row("local: asleep beyond the lease, woken", found.slept, "workers", 1, at_least=True)
        yield from _proof("local", folder, "local", found.stats, least, 4 * AT_ONCE)
        quiet(url, latency_s=0.2, faults=FAULTS)
        with cluster() as (address, remove):
            stats = _on_ray(folder, url, least, address, remove, spread)
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
    booked = settled(folder / run)["spent_tokens"]
    yield Row(f"{what}: tokens billed beyond those booked", max(0, billed - booked), "tokens", 0)
    yield Row(f"{what}: tokens booked of the cap", 100 * booked / CAP, "%", 100)


@contextmanager
def cluster() -> Iterator[tuple[str, Any]]:
    """Start a head without cores and two nodes; yield the address and what removes a node."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
                   "RAY_health_check_timeout_ms": "3000"}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment, start_new_session=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        address = next(line for line in lines if ":" in line).strip()

        def remove() -> None:
            assert process.stdin is not None
            process.stdin.write("remove\n")
            process.stdin.flush()
            next(line for line in lines if "removed" in line)

        yield address, remove
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _on_ray(
    folder: Path, url: str, least: int, address: str, remove: Any, spread: tuple[str, ...]
) -> dict[str, Any]:
    """Build on the cluster, and remove a node in the middle of it."""
    more = (*spread, "--on", f"ray:{address}", "--workers", "4")
    process = start(folder, *command(url, "ray", 40, *more))
    heard: list[str] = []

    def fire() -> None:
        while process.poll() is None and get(url, "/_stats")["calls"] < least // 3:
            time.sleep(0.1)
        if process.poll() is None:
            remove()
            heard.append("removed")

    thread = threading.Thread(target=fire)
    thread.start()
    try:
        out, err = process.communicate(timeout=540)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        thread.join(60)
    assert process.returncode == 0, out + err
    assert heard == ["removed"], "the build ended before the node was removed"
    return dict(get(url, "/_stats"))


def listing(folder: Path) -> Iterator[Row]:
    """10,000 shards, each held and given back twice."""
    count = 10_000
    claims = folder / shards.FOLDER / shards.CLAIMS
    claims.mkdir(parents=True)
    plan = shards.ShardPlan(count=count, tasks=(shards.ShardTask(name="build"),))
    shards.write_plan(folder, plan)
    done = Entry(kind="free", worker="w", process=this_process(), done=("build",))
    text = done.model_dump_json()
    for index in range(count):
        for epoch in range(1, 5):
            (claims / f"{index:05}.{epoch}").write_text(text)
    began, cpu = time.monotonic(), time.process_time()
    assert len(listed(folder, plan).done) == count
    yield Row("10,000 shards listed", time.monotonic() - began, "s", 2.0)
    yield Row("10,000 shards listed, CPU", time.process_time() - cpu, "s", 2.0)
