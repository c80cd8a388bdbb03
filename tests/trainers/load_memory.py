"""Worker of the test of sharded loading: load policy and reference, write the memory it took.

    python -m tests.trainers.load_memory --recipe FILE      under any launcher

Writes FILE's folder / `memory-RANK.json`: anonymous memory before and after loading, its peak, and
the weights that this process holds, in bytes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
from pathlib import Path

from trl import DPOConfig

from convbench.learn import fitting
from convbench.learn.job import Job
from tests.helpers.workers.gradients import gloo_alone


def anonymous() -> int:
    """Bytes of this process's own memory; a file of weights that is mapped does not count."""
    status = Path("/proc/self/status").read_text().split("RssAnon:")[1]
    return int(status.split()[0]) << 10


def main(file: Path) -> None:
    gloo_alone()
    job = Job.from_file(file)
    fitting.silence_libraries()
    args = fitting.with_cpu_fsdp(DPOConfig(**fitting.training_arguments(job)))
    before = anonymous()
    sharded = os.environ["LOADED"] == "shards"
    models = [fitting.load_model(job, sharded=sharded),
              fitting.load_model(job, trained=False, sharded=sharded)]  # fmt: skip
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # else what was freed still counts
    after, peak = anonymous(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    held = sum(
        getattr(weight, "ds_tensor", weight).numel() * weight.element_size()
        for model in models
        for weight in model.parameters()
    )
    with fitting.gathered_weights(models[0]):
        total = sum(float(weight.detach().double().sum()) for weight in models[0].parameters())
    told = {"before": before, "after": after, "peak": peak, "held": held, "sum": total}
    rank = args.process_index
    file.with_name(f"memory-{rank}.json").write_text(json.dumps(told))
    fitting.close_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # as trainers leave: gloo's threads race the interpreter's end
