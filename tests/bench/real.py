"""SmolLM2-135M-Instruct on this machine: the local engine beside other ways to generate.

The same three-turn conversations at temperature 0, 48 at once, a thread each; every engine in a
process of its own. CPU seconds count, which other work on the machine changes little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.models.gguf import cache
from convbench.models.packaged import have
from tests.bench.bench import ROOT, Row

COUNT, TOKENS = 100, 96
STATIC = ("static-16", "static-48")


def real(folder: Path) -> Iterator[Row]:
    """The engine over the best static batch of `transformers.generate`; nothing without weights.

    CONVBENCH_BENCH_REAL=COUNTxTOKENS takes other sizes than 100 conversations of 96 tokens a reply.
    """
    if not have("smollm2"):
        print("real: no weights; get them with: convbench models get smollm2", file=sys.stderr)
        return
    size = os.environ.get("CONVBENCH_BENCH_REAL", f"{COUNT}x{TOKENS}")
    found = {name: _ran(name, size) for name in ("convbench", *STATIC)}
    ours = found["convbench"]
    rates = {name: one["tokens"] / one["cpu_s"] for name, one in found.items()}
    for name, rate in rates.items():
        print(f"real: {name}: {rate:.0f} new tokens a CPU second, {found[name]['peak_mb']:.0f} MB",
              file=sys.stderr)  # fmt: skip
    best = max(rates[name] for name in STATIC)
    yield Row("local engine over the best static batch, tokens a CPU second",
              rates["convbench"] / best, "x", 1.0, at_least=True)  # fmt: skip
    yield Row("its peak memory over that of the static batch of 48",
              ours["peak_mb"] / found["static-48"]["peak_mb"], "x", 1.1)  # fmt: skip
    pairs = zip(ours["texts"], found["static-16"]["texts"], strict=True)
    differ = 100 * sum(one != two for one, two in pairs) / len(ours["texts"])
    yield Row("conversations that differ from transformers.generate", differ, "%", 2.0)


def _ran(engine: str, size: str) -> dict[str, Any]:
    """Run one engine with one thread; return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.real_engine", engine, str(cache() / "smollm2"),
         *size.split("x")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{engine}: {done.stderr[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
