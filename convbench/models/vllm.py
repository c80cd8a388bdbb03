"""A vLLM server that we start, wait for, call over HTTP, and always stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convbench.errors import FatalModelError, TransientModelError
from convbench.models.devices import VISIBLE, Placement
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


class VLLMModel(Model):
    """`vllm:HF_ID`, `vllm:PATH` or `vllm:pocket`: our own server, started by the first call."""

    starts = True
    priced = True

    def __init__(
        self,
        ref: str,
        parameters: Parameters,
        log_dir: Path,
        media: Path | None = None,
        placement: Placement = Placement(),  # noqa: B008 - frozen
    ) -> None:
        self.ref, self.name = ref, ref.removeprefix("vllm:")
        self.python = find_interpreter()
        if self.python is None:
            raise FatalModelError(
                f"{ref}: found no vLLM, which needs an environment of its own; set {PYTHON} to "
                f"that environment's interpreter (found {os.environ.get(PYTHON, sys.executable)})"
            )
        self.placement = placement
        self.copies = max(1, len(placement.names or ()) // placement.split)
        self.log = log_dir / f"vllm-{self.name.strip('/').replace('/', '-')}.log"
        self._parameters, self._media = parameters, media
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._model: OpenAIModel | None = None

    @property
    def structured(self) -> Structured:  # type: ignore[override]
        """Return `json_schema` if it is made to reply by one, else `text`."""
        return self._parameters.structured

    async def start(self) -> None:
        """Start the server, once, and wait, at most an hour, until it is healthy. Raise
        FatalModelError with the log's telling lines if it ends or takes too long."""
        async with self._starting:
            if self._model is None:
                self._model = await self._start_server()

    async def _start_server(self) -> OpenAIModel:
        from convbench.models.openai import OpenAIModel

        port = int(self.placement.vllm.get("port") or free_port())
        names = self.placement.names
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(self.log) as log:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own interpreter
                guard_command(self.command_line(port)),
                env=os.environ if names is None else {**os.environ, VISIBLE: ",".join(names)},
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
        latest = time.monotonic() + 3600  # it may download the weights
        while self._process.poll() is None and time.monotonic() < latest:
            with contextlib.suppress(TransientModelError, TimeoutError):
                async with asyncio.timeout(5):
                    status, *_ = await model.http.send("GET", f"http://127.0.0.1:{port}/health")
                    if status == 200:
                        return model
            await asyncio.sleep(0.25)
        why = "did not start" if self._process.poll() is not None else "is still starting"
        await model.aclose()
        await self.aclose()
        raise FatalModelError(f"{self.ref}: vLLM {why}; {self._log_summary()}")

    def command_line(self, port: int) -> list[str]:
        """Return the server's command line: for a LoRA folder its base is the model and the folder
        an adapter; the placement's arguments come last. Raise RunError for a damaged
        adapter_config.json."""
        command = [str(self.python), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        base = adapter_base(self.name)
        if base is None:
            command += ["--served-model-name", self.name]
        else:
            rank = int(read_object(Path(self.name) / "adapter_config.json").get("r", 16))
            power = 1 << (rank - 1).bit_length()  # vLLM takes powers of two from 8 on
            command += ["--enable-lora", "--max-lora-rank", str(max(8, power))]
            command += ["--lora-modules", f"{self.name}={self.name}"]
        command += ["--model", base or shipped_folder(self.name)]
        if self.copies > 1:
            command += ["--data-parallel-size", str(self.copies)]
        if self.placement.share is not None:
            command += ["--gpu-memory-utilization", f"{self.placement.share:g}"]
        for name, value in self.placement.vllm.items():
            if value is not None and value is not False:
                command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return command

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the server's reply, started if it does not run. Raise FatalModelError with its
        log's telling lines if it has died, else what an OpenAI-compatible server raises."""
        await self.start()
        assert self._model is not None
        if self._process is not None and self._process.poll() is not None:
            raise FatalModelError(f"{self.ref}: the vLLM server ended; {self._log_summary()}")
        return await self._model.complete(messages, sampling, key=key)

    async def aclose(self) -> None:
        """Stop the server with all its processes, if it runs, and wait until it is gone."""
        model, self._model = self._model, None
        if model is not None:
            await model.aclose()
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            while process.poll() is None:
                await asyncio.sleep(0.05)

    def _log_summary(self) -> str:
        """Return the log's path with its first error, the cause, and its last; without errors with
        its last two lines."""
        text = self.log.read_bytes()[-20_000:].decode("utf-8", "replace")
        errors = re.findall(r"\b[A-Z]\w*(?:Error|Exception): .{,200}", text)
        lines = [line.strip()[:200] for line in text.splitlines() if line.strip()]
        telling = dict.fromkeys([errors[0], errors[-1]] if errors else lines[-2:])
        said = f"log {self.log}: " + " | ".join(telling)
        if "out of memory" in said.lower() or "kv cache" in said.lower():
            said += "; split it over cards: --devices vllm.ROLE.tensor-parallel-size=N"
        return said


def find_interpreter() -> str | None:
    """Return the path of the interpreter that CONVBENCH_VLLM_PYTHON names, else of our own; None if
    it has no vLLM."""
    path = shutil.which(os.environ.get(PYTHON, sys.executable))
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    has = path and not subprocess.run([path, "-c", probe], check=False).returncode  # noqa: S603
    return path if has else None


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now; it is not reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
