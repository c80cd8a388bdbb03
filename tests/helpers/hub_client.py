"""The real Hub clients in a process of their own, which speaks to the local Hub only.

The clients read HF_ENDPOINT when they are imported, so the process that runs the tests cannot
use them against one server after another.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.hub_server import HubServer

TOKENS = {"hf_alice": "alice", "hf_bob": "bob"}


class Client:
    """Runs importable functions in the client's process."""

    def __init__(self, hub: HubServer, pool: ProcessPoolExecutor, home: Path) -> None:
        self.hub = hub
        self._pool = pool
        self._home = home

    def __call__(
        self,
        function: Callable[..., Any],
        *args: Any,
        token: str | None = "hf_alice",
        offline: bool = False,
        home: Path | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return what `function(*args, **kwargs)` returns there, or raise what it raises."""
        place = str(home or self._home)
        future = self._pool.submit(_call, token, offline, place, function, args, kwargs)
        return future.result(timeout=200)


def _call(
    token: str | None,
    offline: bool,
    home: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    import datasets.config
    from huggingface_hub import constants

    os.environ.pop("HF_TOKEN", None)
    if token:
        os.environ["HF_TOKEN"] = token
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = offline
    constants.HF_HUB_CACHE = f"{home}/hub"
    datasets.config.HF_DATASETS_CACHE = Path(home) / "datasets"
    return function(*args, **kwargs)


@contextmanager
def client(home: Path) -> Iterator[Client]:
    """A local Hub and a client's process, both ended on the way out."""
    with HubServer(TOKENS) as hub:
        before = dict(os.environ)
        os.environ.update(hub.client_env(home))
        # The child inherits this environment when it is spawned, by the first call.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                pool.submit(os.getpid).result(timeout=200)
            finally:
                os.environ.clear()
                os.environ.update(before)
            yield Client(hub, pool, home)
