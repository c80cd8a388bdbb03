"""Send a training's numbers to an experiment tracker, without paths, keys, user or machine.

The libraries' own integrations also send every argument with its folders, the command line and the
git repository. Here a tracker gets the name of the training, the resolved recipe without paths, and
the logged numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback

from convbench import __version__
from convbench.learn.job import Job
from convbench.util.redact import redact_error

PROJECT = "convbench"
"""Project or experiment of the runs, in trackers that have one."""
FOLDER = "tracking"
"""Folder in the checkpoint's, for trackers that write files."""


class TrackerRun(Protocol):
    """An open run of a tracker."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of one step."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


def tracker_run_name(job: Job) -> str:
    """Return the name of a training in trackers, `RUN_ID/RECIPE`."""
    return f"{job.run.manifest.id}/{job.recipe.name}"


def config_of(job: Job) -> dict[str, str | int | float | bool]:
    """Return the recipe as a flat dict of dotted names, with `run` (ids), `task` and `convbench`
    (version).

    Values are numbers, booleans and text; lists are joined by spaces, nulls left out. Of a local
    path only the last part is kept, and keys are redacted.
    """
    values = job.recipe.model_dump(mode="json", exclude={"run", "runs"}, exclude_none=True)
    manifests = [run.manifest for run in job.runs]
    values |= {
        "run": [manifest.id for manifest in manifests],
        "task": [manifest.task.name for manifest in manifests],
    }
    values |= {"convbench": __version__}
    return {name: _tracked_value(value) for name, value in _flatten_values(values, "")}


def _flatten_values(values: Mapping[str, Any], above: str) -> list[tuple[str, Any]]:
    pairs = []
    for name, value in values.items():
        if isinstance(value, dict):
            pairs += _flatten_values(value, f"{above}{name}.")
        else:
            pairs.append((f"{above}{name}", value))
    return pairs


def _tracked_value(value: Any) -> str | int | float | bool:
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else " ".join(map(str, value))
    path = Path(text).expanduser()
    local = path.is_absolute() or text.startswith((".", "~", "local:", "vllm:"))
    return redact_error(path.name if local else text)


class TrackerCallback(TrainerCallback):
    """Sends the log to the trackers, from the first process only."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.sinks: list[TrackerRun] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open a run in every tracker."""
        if state.is_world_process_zero:
            self.sinks = [SINKS[name](self.job) for name in self.job.recipe.fit.trackers]

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Send the numbers of a log entry to every tracker, except `total_flos`."""
        numbers = {
            name: float(value)
            for name, value in (logs or {}).items()
            if isinstance(value, int | float) and name != "total_flos"
        }
        for sink in self.sinks:
            sink.log(numbers, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the runs."""
        for sink in self.sinks:
            sink.close()


class TensorBoard:
    """TensorBoard: event files in `tracking/` of the checkpoint."""

    def __init__(self, job: Job) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(job.folder / FOLDER))
        rows = "".join(f"| {name} | {value} |\n" for name, value in config_of(job).items())
        self.writer.add_text("recipe", f"{tracker_run_name(job)}\n\n| | |\n|---|---|\n{rows}")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Write each number as the scalar `train/NAME`."""
        for name, value in numbers.items():
            self.writer.add_scalar(f"train/{name}", value, step)

    def close(self) -> None:
        """Close the file."""
        self.writer.close()


class Trackio:
    """A trackio run without user and machine; trackio's own settings say where it is stored."""

    def __init__(self, job: Job) -> None:
        import trackio

        self.library = trackio
        run = trackio.init(
            project=PROJECT,
            name=tracker_run_name(job),
            config=config_of(job),
            auto_log_gpu=False,
            auto_log_cpu=False,
            embed=False,
        )
        run.config["_Username"] = None  # trackio sends the Hub user's name with the first log

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log one step."""
        self.library.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        self.library.finish()


class Wandb:
    """A W&B run, without the machine, the repository, the code and the console."""

    def __init__(self, job: Job) -> None:
        import wandb

        settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            host="convbench",
            program="convbench",
            username="convbench",
        )
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=tracker_run_name(job),
            config=config_of(job),
            dir=str(job.folder),
            settings=settings,
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log one step."""
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class MLflow:
    """An MLflow run at the store that MLFLOW_TRACKING_URI names."""

    def __init__(self, job: Job) -> None:
        import mlflow

        self.library = mlflow
        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        tags = dict.fromkeys(("mlflow.user", "mlflow.source.name"), PROJECT)
        mlflow.start_run(run_name=tracker_run_name(job), tags=tags, log_system_metrics=False)
        mlflow.log_params(config_of(job))

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log one step."""
        self.library.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        """End the run."""
        self.library.end_run()


SINKS: dict[str, Callable[[Job], TrackerRun]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": Wandb,
    "mlflow": MLflow,
}
"""Trackers by the names of `fit.trackers`, which are their packages'."""
