"""A Ray cluster on this machine: a head without cores and two nodes, one of which can be lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.cli import ROOT

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
