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
parser.add_argument("--max-model-len", type=int)
parser.add_argument("--enable-prefix-caching", action="store_true")
parser.add_argument("--gpu-memory-utilization", type=float)
parser.add_argument("--tensor-parallel-size", type=int)
options = parser.parse_args()
print("starting", options.model, flush=True)
print("devices", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
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
