"""Takes vLLM's arguments and serves the scripted provider on its port."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--model")
parser.add_argument("--served-model-name")
parser.add_argument("--max-model-len", type=lambda text: text if text == "auto" else int(text))
parser.add_argument("--enable-prefix-caching", action="store_true")
parser.add_argument("--gpu-memory-utilization", type=float)
parser.add_argument("--tensor-parallel-size", type=int, default=1)
parser.add_argument("--data-parallel-size", type=int, default=1)
parser.add_argument("--load-format")
options = parser.parse_args()
print("starting", options.model, flush=True)
visible = os.environ.get("CUDA_VISIBLE_DEVICES")
print("devices", visible, flush=True)
needed = options.tensor_parallel_size * options.data_parallel_size
print("engines", options.data_parallel_size, "of", options.tensor_parallel_size, flush=True)
if visible is not None and len(visible.split(",")) < needed > 1:
    print(f"ValueError: {needed} devices are needed, found {visible}", flush=True)
    sys.exit(1)
if options.model == "broken":
    print("OSError: broken is not a local folder and is not a valid model identifier", flush=True)
    sys.exit(1)

sys.path.insert(0, os.environ["CONVBENCH_ROOT"])
from tests.support.chat.plan import Plan  # noqa: E402
from tests.support.provider import Provider  # noqa: E402

with Path(os.environ["CONVBENCH_PIDS"]).open("a") as file:
    file.write(f"{os.getpid()}\n")
server = Provider(Plan(models=(options.served_model_name,)), port=options.port)
with server:
    threading.Event().wait(600)
time.sleep(1)
