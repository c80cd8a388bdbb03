"""Client of a vLLM server that answers with an edit's adapters, loaded while it runs.

The server must be on this machine, since it reads adapters from a folder: `vllm serve WEIGHTS
--enable-lora --max-lora-rank R --max-loras SEEDS`, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.
"""

from __future__ import annotations

import http.client
import secrets
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from convbench.errors import SpecError, TrainError
from convbench.judges.adaptation.lora import MultiSeedLora

HERE = ("127.0.0.1", "localhost", "::1")
MOST_BYTES = 64 << 20
"""Longest response of the server in bytes."""
TIMEOUT_S = 600.0


class AdapterServer:
    """Client of the server at an address such as `http://127.0.0.1:8000`."""

    def __init__(self, base: str, weights: str, key: str = "args.inner.server") -> None:
        """`weights` are those that it must serve; `key` is the setting of the address, for errors.
        Raises SpecError for an address that is not on this machine."""
        parts = urlsplit(base)
        if parts.scheme != "http" or parts.hostname not in HERE:
            raise SpecError(
                f"{key}: found {base!r:.80}; expected a vLLM server on this machine, "
                "such as http://127.0.0.1:8000"
            )
        self.base, self.weights = base, weights
        self._host, self._port = parts.hostname, parts.port or 80
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")

    def served_model(self) -> str:
        """Return the name under which the server serves the weights that it must serve.

        Raise TrainError if it serves others or cannot be reached.
        """
        served = self._request_json("GET", "/v1/models").get("data") or []
        for entry in served:
            root = str(entry.get("root") or entry.get("id"))
            if not entry.get("parent") and _is_same_path(root, self.weights):
                return str(entry["id"])
        names = (
            ", ".join(str(entry.get("root") or entry.get("id")) for entry in served) or "nothing"
        )
        raise TrainError(f"{self.base}: serves {names:.200}; expected {self.weights}")

    @contextmanager
    def load_adapters(self, stack: MultiSeedLora) -> Iterator[list[str]]:
        """Load each seed's adapter into the server, yield their names in the order of the seeds,
        and unload them after the block. Raise TrainError if the server refuses."""
        with tempfile.TemporaryDirectory(prefix="adapters-") as folder, ExitStack() as loaded:
            names = []
            for row in range(len(stack.seeds)):
                name = f"edit-{secrets.token_hex(6)}"
                path = Path(folder) / name
                stack.save_adapter(path, row, self.weights)
                request = {"lora_name": name, "lora_path": str(path)}
                self._request_json("POST", "/v1/load_lora_adapter", request)
                loaded.callback(
                    self._request_json, "POST", "/v1/unload_lora_adapter", {"lora_name": name}
                )
                names.append(name)
            yield names

    def greedy_replies(
        self, model: str, prompts: Sequence[Sequence[int]], ends: Collection[int], most: int
    ) -> tuple[str, ...]:
        """Return the greedy replies to prompts of token ids, in their order, each of at most `most`
        tokens; empty without prompts.

        Raise TrainError if the request fails or a reply is missing.
        """
        if not prompts:
            return ()
        request = {
            "model": model,
            "prompt": [list(entry) for entry in prompts],
            "temperature": 0,
            "max_tokens": most,
            "stop_token_ids": sorted(ends),
        }
        choices = self._request_json("POST", "/v1/completions", request).get("choices") or []
        by_index = {entry.get("index"): entry.get("text") for entry in choices}
        texts = [by_index.get(number) for number in range(len(prompts))]
        if not all(isinstance(entry, str) for entry in texts):
            raise TrainError(f"{self.base}: found {len(choices)} answers to {len(prompts)} prompts")
        return tuple(map(str, texts))

    def _request_json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the JSON object of a response; {} if it is no object. Raises TrainError for a
        failed request."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            data = None if body is None else orjson.dumps(body)
            connection.request(
                method, self._prefix + path, data, {"Content-Type": "application/json"}
            )
            reply = connection.getresponse()
            raw = reply.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TrainError(f"{self.base}{path}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if reply.status != 200:
            words = raw[:200].decode("utf-8", "replace")
            more = ""
            if path.endswith("lora_adapter"):
                more = "; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            raise TrainError(f"{self.base}{path}: status {reply.status}: {words}{more}")
        try:
            parsed = orjson.loads(raw)
        except ValueError:
            parsed = {}
        return parsed if isinstance(parsed, dict) else {}


def _is_same_path(first: str, second: str) -> bool:
    """Return whether two names of weights are equal, or paths of the same folder."""
    paths = [Path(name).expanduser() for name in (first, second)]
    return first == second or (all(p.exists() for p in paths) and paths[0].samefile(paths[1]))
