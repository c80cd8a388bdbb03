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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convbench.errors import FatalModelError, TransientModelError
from convbench.models.devices import Placement
from convbench.models.model import Model
from convbench.models.parameters import Parameters
from convbench.models.prices import Price
from convbench.models.weights_path import adapter_base, shipped_folder
from convbench.schema import Completion, Message, Sampling
from convbench.store.shape import read_object
from convbench.util.guard import guard_command
from convbench.util.regular import open_to_append
from convbench.util.words import Structured

if TYPE_CHECKING:
    from convbench.models.openai import OpenAIModel

PYTHON = "CONVBENCH_VLLM_PYTHON"
"""Environment variable for the interpreter that has vLLM."""
ARGUMENTS = "CONVBENCH_VLLM_ARGS"
"""Environment variable for more arguments of the server, as a shell writes them."""
START_S = 3600.0
"""Longest start in seconds, the download of weights included."""
MODULE = "vllm.entrypoints.openai.api_server"
RAISED = re.compile(r"\b[A-Z]\w*(Error|Exception): ")
"""Matches an error in a log."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for `--max-lora-rank`."""


class VLLMModel(Model):
    """`vllm:HF_ID`, `vllm:PATH` or `vllm:pocket`: our own server, started by the first call."""

    starts = True
    priced = True

    def __init__(
        self,
        ref: str,
        parameters: Parameters,
        log_dir: Path,
        context: int | None = None,
        media: Path | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
    ) -> None:
        self.ref, self.name = ref, ref.removeprefix("vllm:")
        self.python = find_interpreter()
        self.placement = placement
        self.copies = placement.copies
        if "parallel" in os.environ.get(ARGUMENTS, ""):
            self.copies = 1
        self.log = log_dir / f"vllm-{self.name.strip('/').replace('/', '-')}.log"
        self._parameters, self._context, self._media = parameters, context, media
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._model: OpenAIModel | None = None

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return `json_schema` if it is made to reply by one, else `text`."""
        return self._parameters.structured

    async def start(self) -> None:
        """Start the server and wait, at most an hour, until it is healthy; do nothing if it runs.

        Raise FatalModelError with the log's telling lines if it ends or takes too long.
        """
        async with self._starting:
            if self._model is None:
                self._model = await self._start_server()

    async def _start_server(self) -> OpenAIModel:
        from convbench.models.openai import OpenAIModel

        port = int((self.placement.vllm or {}).get("port") or 0) or free_port()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(self.log) as log:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own interpreter
                guard_command(self.command_line(port)),
                env={**os.environ, **self.placement.extra_environment()},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        model = OpenAIModel(
            self.ref,
            self.name,
            f"http://127.0.0.1:{port}/v1",
            key=None,
            key_variable="(none)",
            parameters=self._parameters,
            price=Price(0.0, 0.0),
            media=self._media,
        )
        try:
            async with asyncio.timeout(START_S):
                await self._wait_until_healthy(model, f"http://127.0.0.1:{port}/health")
        except TimeoutError:
            await self.aclose()
            line = f"{self.ref}: not ready within {START_S:g} s; {self._log_summary()}"
            raise FatalModelError(line) from None
        return model

    async def _wait_until_healthy(self, model: OpenAIModel, url: str) -> None:
        """Wait until the server answers. Raises FatalModelError if it ends."""
        while True:
            if self._process is None or self._process.poll() is not None:
                raise FatalModelError(f"{self.ref}: vLLM did not start; {self._log_summary()}")
            with contextlib.suppress(TransientModelError, TimeoutError):
                async with asyncio.timeout(5):
                    if (await model.http.send("GET", url))[0] == 200:
                        return
            await asyncio.sleep(0.25)

    def command_line(self, port: int) -> list[str]:
        """Return the server's command line; for a LoRA folder its base is the model and the folder
        an adapter.

        A server gets the cards of its role, each copy on as many as `tensor-parallel-size` says
        (1). Arguments in CONVBENCH_VLLM_ARGS and of the placement come last. Raise RunError for a
        damaged adapter_config.json.
        """
        command = [str(self.python), "-m", MODULE, "--host", "127.0.0.1", "--port", str(port)]
        base = adapter_base(self.name)
        if base is None:
            command += ["--served-model-name", self.name]
        else:
            rank = read_object(Path(self.name) / "adapter_config.json").get("r", 16)
            fitting = next((r for r in RANKS if isinstance(rank, int) and r >= rank), RANKS[-1])
            command += ["--enable-lora", "--max-lora-rank", str(fitting)]
            command += ["--lora-modules", f"{self.name}={self.name}"]
        command += ["--model", base or shipped_folder(self.name)]
        if self._context is not None:
            command += ["--max-model-len", str(self._context)]
        own = {name.replace("_", "-") for name in self.placement.vllm or {}}
        if self.copies > 1 and "data-parallel-size" not in own:
            command += ["--data-parallel-size", str(self.copies)]
        if self.placement.share is not None:
            command += ["--gpu-memory-utilization", f"{self.placement.share:g}"]
        command += shlex.split(os.environ.get(ARGUMENTS, ""))
        for name, value in (self.placement.vllm or {}).items():
            if name != "port" and value is not None and value is not False:
                flag = f"--{name.replace('_', '-')}"
                command += [flag] if value is True else [flag, str(value)]
        return command

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

    def _log_summary(self) -> str:
        """Return the log's path with its first and last error (the first one is the cause if an
        engine's process failed), else its last lines, on one line."""
        lines = self.log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        errors = [line[match.start() :] for line in lines if (match := RAISED.search(line))]
        telling = list(dict.fromkeys(errors[:1] + errors[-1:])) or lines[-2:]
        said = f"log {self.log}: " + " | ".join(line[:200] for line in telling)
        if "out of memory" in said.lower() or "kv cache" in said.lower():
            said += "; split it over cards: --devices vllm.ROLE.tensor-parallel-size=N"
        return said


def find_interpreter() -> Path:
    """Return the path of the interpreter that has vLLM: CONVBENCH_VLLM_PYTHON, else our own.

    Raise FatalModelError if it does not exist or has no vLLM.
    """
    named = os.environ.get(PYTHON)
    if named is None:
        if importlib.util.find_spec("vllm") is not None:
            return Path(sys.executable)
        raise FatalModelError(
            "vllm: vLLM is not installed here (it needs a separate environment); set "
            f"{PYTHON} to that environment's interpreter"
        )
    path = shutil.which(named)
    if path is None:
        raise FatalModelError(f"{PYTHON}: found no program {named}")
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    completed = subprocess.run([path, "-c", probe], check=False, capture_output=True)  # noqa: S603
    if completed.returncode:
        raise FatalModelError(f"{PYTHON}: vLLM is not installed for {named}")
    return Path(path)


def can_run() -> bool:
    """Return True if an interpreter has vLLM, and it was named or the machine has a GPU device
    file."""
    try:
        find_interpreter()
    except FatalModelError:
        return False
    return PYTHON in os.environ or Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now; it is not reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
