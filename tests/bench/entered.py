"""How many of our files a command enters: what a reader has to open to follow it.

python -m tests.bench.entered

Counts the files of `convbench/` and `trainers/` of which a function was called, but those that are
called while a module is imported: `build`, `judge` and `train swift` on the embedded policy, in
this process, from the stage that a command calls; docs/map.md names the main ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from convbench.options.shared import CallOptions

ROOT = Path(__file__).resolve().parents[2]
PLACES = tuple(f"{ROOT / name}{os.sep}" for name in ("convbench", "trainers"))
QUIET = CallOptions(quiet=True)
FUNCTION = 1
"""Flag of a function's code; a class's body has none."""


def build() -> None:
    from convbench.options.build import BuildOptions
    from convbench.options.shared import RunSettings
    from convbench.rollout.build import build_or_resume

    shape = RunSettings(samples=3, temperatures=(1.0,))
    made = BuildOptions(
        "pocket", model="local:pocket", tasks=20, run=Path("run"), shape=shape, calls=QUIET
    )
    build_or_resume(made)


def judge() -> None:
    from convbench.judges.command import judge_run
    from convbench.options.judge import JudgeOptions

    judge_run(JudgeOptions(("rules",), Path("run"), calls=QUIET))


def train() -> None:
    from convbench.experiments.train import run_train
    from convbench.options.shared import SpecOptions
    from convbench.options.train import TrainOptions

    sets = ("fit.max_steps=1", "fit.batch_size=2", "fit.accumulation=1")
    specs = SpecOptions(sets=sets)
    run_train(TrainOptions("swift", (Path("run"),), specs=specs, calls=QUIET, in_process=True))


STAGES = {"build": build, "judge": judge, "train swift": train}


def entered(stage: Callable[[], None]) -> set[str]:
    """Return the files that a stage enters."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        file = code.co_filename if event == "call" and code.co_flags & FUNCTION else ""
        if file.startswith(PLACES) and file not in files and not _in_import(frame):
            files.add(file)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        stage()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return files


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False


def main() -> None:
    """Run the commands in a folder of their own and print how many files each enters."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["CONVBENCH_CACHE"] = folder
        for name, stage in STAGES.items():
            print(f"{name}: {len(entered(stage))} files", flush=True)


if __name__ == "__main__":
    main()
