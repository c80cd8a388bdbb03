"""A build whose parts run on a Ray cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.store import Run
from convbench.store.jsonl import parse_line
from tests.helpers.cli import convbench, finish, start
from tests.support.chat.plan import Plan
from tests.support.processes import until
from tests.support.provider import Provider

SHAPE = ("--samples", "2", "--temperatures", "0.7,1.0", "--concurrency", "2")
CALLS = 40 * 2 * 3
"""Forty questions, two samples, three turns."""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--shards", "2"), "expected --shards N and --on ray[:ADDRESS] together"),
        (("--on", "ray"), "expected --shards N and --on ray[:ADDRESS] together"),
        (("--shards", "2", "--on", "slurm"), "expected ray or ray:ADDRESS"),
        (("--shards", "2", "--on", "ray"), "expected --run DIR, which all nodes see"),
        (("--shards", "2", "--on", "ray", "--run", "."), "exists already"),
    ],
)
def test_build_refuses_parts_without_a_place(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = convbench(tmp_path, "build", "demo", "--model", "scripted:policy", *words)
    assert done.code != 0
    assert told in " ".join(done.err.split())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of two CPUs, whose environment alone has the key."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-nodes")
    small = {"num_cpus": 2, "object_store_memory": 100 << 20}
    nodes = Cluster(initialize_head=True, head_node_args=small)
    nodes.add_node(**small)
    monkeypatch.delenv("OPENAI_API_KEY")
    try:
        yield nodes
    finally:
        nodes.shutdown()


@pytest.mark.exhaustive
def test_build_on_ray_loses_nothing_when_a_task_and_a_node_are_killed(
    tmp_path: Path, cluster: Any
) -> None:
    with Provider(Plan(latency_s=0.5, api_keys=("sk-of-the-nodes",))) as server:
        building = start(
            tmp_path, "build", "demo", "--model", "openai/m", "--api-base", server.api_base,
            "--tasks", "40", *SHAPE, "--shards", "4", "--on", f"ray:{cluster.address}",
            "--run", "run", "--budget-tokens", "1000000",
        )  # fmt: skip
        until(lambda: server.stats.calls > 30, "the parts begin")
        os.kill(workers()[0], signal.SIGKILL)
        time.sleep(2)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        done = finish(building)
        calls = server.stats.calls
    assert done.code == 0, done.err
    run = Run.open(tmp_path / "run")
    assert sum(each.failure is None for each in run.conversations()) == 80
    assert CALLS <= calls <= CALLS + 3 * 2, "but for those in flight of three parts nothing twice"
    paid = [line for line in run.calls_file.read_bytes().splitlines() if b'"content"' in line]
    assert len({parse_line(line)["key"] for line in paid}) == len(paid) == CALLS


def workers() -> list[int]:
    """The processes of Ray's tasks that run a command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if words.startswith(b"ray::run_command"):
            found.append(int(folder.name))
    return found
