"""A vLLM server that we start, wait for, call over HTTP, and always stop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from convbench.errors import FatalModelError, TransientModelError
from convbench.models.devices import Placement
from convbench.models.model import Model
from convbench.models.prices import Price
from convbench.models.refusals import Parameters
from convbench.models.weights_path import shipped_folder
from convbench.schema import Completion, Message, Sampling
from convbench.store.shape import read_object, read_text_field
from convbench.util.guard import guard_command
from convbench.util.regular import open_to_append
from convbench.util.words import Structured

if TYPE_CHECKING:
    from convbench.models.openai_http import OpenAIModel

PYTHON = "CONVBENCH_VLLM_PYTHON"
"""Environment variable for the interpreter that has vLLM."""
ARGUMENTS = "CONVBENCH_VLLM_ARGS"
"""Environment variable for more arguments of the server, as a shell writes them."""
START_S = 3600.0
"""Longest start in seconds, the download of weights included."""
MODULE = "vllm.entrypoints.openai.api_server"
RAISED = re.compile(r"\b[A-Z]\w*(Error|Exception): ")
"""Matches an error in a log."""
OURS = ("host", "model", "served-model-name", "enable-lora", "lora-modules", "max-lora-rank")
"""Arguments that we set and users may not."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for `--max-lora-rank`."""


class VLLMModel(Model):
    """`vllm:HF_ID`, `vllm:PATH` or `vllm:pocket`: our own server, started by the first call."""

    starts = True
    priced = True

    def __init__(
        self,
        ref: str,
        *,
        python: str | Path | None = None,
        log_dir: Path | None = None,
        context: int | None = None,
        media: Path | None = None,
        parameters: Parameters | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
    ) -> None:
        self.ref, self.placement = ref, placement
        self.name = ref.removeprefix("vllm:")
        self.python = find_interpreter(python)
        self._context, self._media = context, media
        self._parameters = parameters or Parameters(ref)
        self.copies = placement.copies
        self.log = (log_dir or Path.cwd()) / f"vllm-{self.name.strip('/').replace('/', '-')}.log"
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._model: OpenAIModel | None = None

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return how it is made to reply by a JSON schema: `json_schema`, `tool` or `text`, which
        means it is not."""
        return self._parameters.structured

    async def start(self) -> None:
        """Start the server and wait, at most an hour, until it is healthy; do nothing if it runs.

        Raise FatalModelError with the log's telling lines if it ends or takes too long.
        """
        async with self._starting:
            if self._model is None:
                self._model = await self._start_server()

    async def _start_server(self) -> OpenAIModel:
        from convbench.models.openai_http import OpenAIModel

        port = int((self.placement.vllm or {}).get("port") or 0) or free_port()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(self.log) as log:
            self._process = _start_guarded(
                self.command_line(port), log, self.placement.extra_environment()
            )
        base = f"http://127.0.0.1:{port}"
        model = OpenAIModel(
            self.ref,
            self.name,
            f"{base}/v1",
            key=None,
            key_variable="(none)",
            parameters=self._parameters,
            price=Price(0.0, 0.0),
            media=self._media,
        )
        try:
            async with asyncio.timeout(START_S):
                await self._wait_until_healthy(base)
        except TimeoutError:
            await self.aclose()
            raise FatalModelError(
                f"{self.ref}: not ready within {START_S:g} s; {self._log_summary()}"
            ) from None
        return model

    def command_line(self, port: int) -> list[str]:
        """Return the server's command line; for a LoRA folder its base is the model and the folder
        an adapter.

        Arguments in CONVBENCH_VLLM_ARGS and of the placement come last. Raise FatalModelError for
        an argument that convbench sets itself, RunError for a damaged adapter_config.json.
        """
        model, lora = shipped_folder(self.name), _read_adapter(Path(self.name))
        command = [str(self.python), "-m", MODULE, "--host", "127.0.0.1", "--port", str(port)]
        if lora is not None:
            model, rank = lora
            command += ["--enable-lora", "--max-lora-rank", str(rank)]
            command += ["--lora-modules", f"{self.name}={self.name}"]
        else:
            command += ["--served-model-name", self.name]
        command += ["--model", model]
        typed = shlex.split(os.environ.get(ARGUMENTS, ""))
        placed = placed_arguments(self.placement, any("parallel" in word for word in typed))
        if self._context is not None:
            command += ["--max-model-len", str(self._context)]
        elif self.placement.names and not any("max-model-len" in w for w in (*typed, *placed)):
            command += ["--max-model-len", "auto"]  # the model's own, or as much as there is room
        return command + typed + placed

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the server's reply; start the server if it does not run.

        Raise FatalModelError with its log's telling lines if it has died, else what the call of an
        OpenAI-compatible server raises.
        """
        if self._model is None:
            await self.start()
        assert self._model is not None
        if self._process is not None and self._process.poll() is not None:
            raise FatalModelError(f"{self.ref}: the vLLM server ended; {self._log_summary()}")
        return await self._model.complete(messages, sampling, key=key)

    async def aclose(self) -> None:
        """Stop the server with all its processes and wait until it is gone; do nothing if it does
        not run."""
        model, self._model = self._model, None
        if model is not None:
            await model.aclose()
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            while process.poll() is None:
                await asyncio.sleep(0.05)

    async def _wait_until_healthy(self, base: str) -> None:
        """Wait until the server answers. Raises FatalModelError if it ends."""
        from convbench.models.http import HttpClient

        server = HttpClient(self.ref, base, {})
        try:
            while True:
                if self._process is None or self._process.poll() is not None:
                    raise FatalModelError(f"{self.ref}: vLLM did not start; {self._log_summary()}")
                with contextlib.suppress(TransientModelError, TimeoutError):
                    async with asyncio.timeout(5):
                        if (await server.send_request("GET", f"{base}/health"))[0] == 200:
                            return
                await asyncio.sleep(0.25)
        finally:
            await server.aclose()

    def _log_summary(self) -> str:
        """Return the log's path with its first and last error (the first one is the cause if an
        engine's process failed), else its last lines, on one line."""
        lines = self.log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        errors = [line[match.start() :] for line in lines if (match := RAISED.search(line))]
        telling = list(dict.fromkeys(errors[:1] + errors[-1:])) or lines[-2:]
        return f"log {self.log}: " + " | ".join(line[:200] for line in telling)


def find_interpreter(python: str | Path | None = None) -> Path:
    """Return the path of the interpreter that has vLLM: `python`, else CONVBENCH_VLLM_PYTHON, else
    our own.

    The first one that is named counts. Raise FatalModelError if it does not exist or has no vLLM.
    """
    named = python or os.environ.get(PYTHON)
    if named is None:
        if importlib.util.find_spec("vllm") is not None:
            return Path(sys.executable)
        raise FatalModelError(
            "vllm: vLLM is not installed here (it needs a separate environment); give that "
            f"environment's interpreter with --vllm-python or {PYTHON}"
        )
    path = shutil.which(str(named))
    if path is None:
        raise FatalModelError(f"--vllm-python {named}: found no such program")
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    completed = subprocess.run([path, "-c", probe], check=False, capture_output=True)  # noqa: S603
    if completed.returncode:
        raise FatalModelError(f"--vllm-python {named}: vLLM is not installed there")
    return Path(path)


def can_run(python: str | Path | None = None) -> bool:
    """Return True if an interpreter has vLLM, and it was named or the machine has a GPU device
    file."""
    try:
        find_interpreter(python)
    except FatalModelError:
        return False
    named = python is not None or PYTHON in os.environ
    return named or Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists()


def placed_arguments(placement: Placement, is_parallel: bool = False) -> list[str]:
    """Return a server's arguments for its placement; empty if it sets nothing.

    They are a copy on each device, unless the user sets that (elsewhere if `is_parallel`); the
    share of their memory; and the user's own arguments without `port` and those that are None or
    False. Raise FatalModelError for one that is malformed or that convbench sets itself.
    """
    own = {name.replace("_", "-") for name in placement.vllm or {}}
    arguments: list[str] = []
    if placement.copies > 1 and "data-parallel-size" not in own and not is_parallel:
        arguments += ["--data-parallel-size", str(placement.copies)]
    if placement.share is not None:
        arguments += ["--gpu-memory-utilization", f"{placement.share:g}"]
    for name, value in (placement.vllm or {}).items():
        flag = name.replace("_", "-")
        if flag in OURS or re.fullmatch(r"[a-z][a-z0-9-]*", flag) is None:
            raise FatalModelError(
                f"devices: vllm: found an argument {name!r:.60}; expected one of vLLM's by its "
                f"name, without dashes before it, that is none of {', '.join(OURS)}"
            )
        if flag != "port" and value is not None and value is not False:
            arguments += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    return arguments


def _start_guarded(
    command: list[str], log: IO[bytes], more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Return a command started under the guard, which ends it when this process is gone; `more` is
    added to its environment."""
    return subprocess.Popen(  # noqa: S603 - the user's own interpreter and arguments
        guard_command(command),
        env={**os.environ, **more},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _read_adapter(folder: Path) -> tuple[str, int] | None:
    """Return (base model, rank) of a LoRA checkpoint folder, the rank rounded up to one that vLLM
    accepts; None for any other folder. Raises FatalModelError."""
    path = folder / "adapter_config.json"
    if not path.is_file():
        return None
    rank = read_object(path).get("r", 16)
    if not isinstance(rank, int):
        raise FatalModelError(f"{path}: r: found {rank!r:.60}; expected a whole number")
    return read_text_field(path, "base_model_name_or_path"), next(
        (r for r in RANKS if r >= rank), rank
    )


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now; it is not reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
