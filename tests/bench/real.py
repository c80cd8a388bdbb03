"""SmolLM2-135M-Instruct on this machine: the local engine beside other ways to generate.

The same three-turn conversations at temperature 0, 50 at once, a thread each, in rounds: in each
round every engine takes the same conversations, one after the other, in a process of its own. CPU
seconds count, which other work on the machine changes little.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.models.vllm import PYTHON
from tests.bench.bench import ROOT, Row
from tests.lab.smollm2 import FOLDER, is_fetched

SERVED = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""How vLLM is served, where the environment says nothing else."""
ROUNDS, COUNT, TOKENS = 2, 50, 32
STATIC = ("static-16", "static-50")
LLAMA, VLLM = "llama-cpp", "vllm"


def real(folder: Path) -> Iterator[Row]:
    """The engine over the best static batch of `transformers.generate`; nothing without weights.

    CONVBENCH_BENCH_REAL=ROUNDSxCOUNTxTOKENS takes other sizes than 2 rounds of 50 conversations of
    32 tokens a reply; CONVBENCH_BENCH_GGUF=FILE adds llama.cpp with these weights,
    CONVBENCH_VLLM_PYTHON=INTERPRETER a vLLM server.
    """
    if not is_fetched():
        print("real: no weights; get them with: python -m tests.lab.smollm2", file=sys.stderr)
        return
    size = os.environ.get("CONVBENCH_BENCH_REAL", f"{ROUNDS}x{COUNT}x{TOKENS}")
    rounds, count, tokens = (int(one) for one in size.split("x"))
    weights = {name: str(FOLDER) for name in ("convbench", *STATIC)}
    weights |= _gguf() | _vllm()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in weights}
    for number in range(rounds):
        for name, path in weights.items():
            one = _ran(name, path, count, tokens, number * count)
            found[name].append(one)
            print(
                f"real: round {number + 1}, {name}: {one['tokens'] / one['cpu_s']:.0f} new tokens "
                f"a CPU second ({one['tokens']} in {one['cpu_s']:.0f}), {one['peak_mb']:.0f} MB",
                file=sys.stderr,
            )
    rates = {
        name: sum(one["tokens"] for one in some) / sum(one["cpu_s"] for one in some)
        for name, some in found.items()
    }
    peaks = {name: max(one["peak_mb"] for one in some) for name, some in found.items()}
    best = max(STATIC, key=lambda name: rates[name])
    yield Row(f"local engine over transformers.generate ({best}), tokens a CPU second",
              rates["convbench"] / rates[best], "x", 1.0, at_least=True)  # fmt: skip
    yield Row(f"its peak memory over that of {STATIC[-1]}",
              peaks["convbench"] / peaks[STATIC[-1]], "x", 1.1)  # fmt: skip
    for name in (LLAMA, VLLM):
        if name in rates:
            yield Row(f"local engine over {name}, tokens a CPU second",
                      rates["convbench"] / rates[name], "x", 1.0, at_least=True)  # fmt: skip
    texts = {name: [text for one in some for text in one["texts"]] for name, some in found.items()}
    for name, said in (("static-16", "transformers.generate"), (VLLM, "vLLM in float32")):
        pairs = list(zip(texts["convbench"], texts.get(name, []), strict=name in texts))
        if pairs:
            apart = 100 * sum(one != two for one, two in pairs) / len(pairs)
            yield Row(f"conversations that differ from {said}", apart, "%", 2.0)


def _gguf() -> dict[str, str]:
    """Return llama.cpp's weights, where it and they are here; else say what is missing."""
    file = os.environ.get("CONVBENCH_BENCH_GGUF", "")
    if file and importlib.util.find_spec("xllamacpp"):
        return {LLAMA: file}
    print(
        "real: no llama.cpp: pip install xllamacpp, and name its weights: "
        "CONVBENCH_BENCH_GGUF=FILE.gguf",
        file=sys.stderr,
    )
    return {}


def _vllm() -> dict[str, str]:
    """Return vLLM's weights, where it is here; else say what is missing."""
    if os.environ.get(PYTHON):
        return {VLLM: str(FOLDER)}
    print(f"real: no vLLM: name an interpreter that has it: {PYTHON}=PYTHON", file=sys.stderr)
    return {}


def _ran(engine: str, weights: str, count: int, tokens: int, first: int) -> dict[str, Any]:
    """Run one engine with one thread; return what it wrote."""
    sizes = [str(one) for one in (count, tokens, first)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.real_engine", engine, weights, *sizes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**SERVED, **os.environ, "OMP_NUM_THREADS": "1"}
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    if done.returncode:
        raise RuntimeError(f"{engine}: {done.stderr[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
