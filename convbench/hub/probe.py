"""One question to the Hub before a dataset is loaded.

Left to themselves the clients ask again five times for each of several files when nobody
answers: more than a minute, even where all that is needed lies in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

TIMEOUT = 20.0
"""Seconds to wait for the Hub's first answer."""


@dataclass(frozen=True)
class Found:
    """What the Hub said of a dataset."""

    commit: str | None = None
    """The commit its revision resolves to."""
    refused: Exception | None = None
    """The Hub answered, and refused."""
    unreachable: Exception | None = None
    """Nobody answered, or offline mode is on: the cache is all there is."""


def ask(repo: str, revision: str | None) -> Found:
    """Return what the Hub says of this dataset and whether its files may be read."""
    import httpx
    from huggingface_hub import HfApi, errors

    api = HfApi()
    try:
        info = api.dataset_info(repo, revision=revision, timeout=TIMEOUT)
        if info.gated:
            api.auth_check(repo, repo_type="dataset")
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        return Found(refused=error)
    except (httpx.TransportError, ConnectionError) as error:  # offline mode is one of the latter
        return Found(unreachable=error)
    return Found(commit=info.sha)


@contextmanager
def offline(yes: bool) -> Iterator[None]:
    """Make the clients use their caches only, if `yes`; as before afterwards."""
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if yes:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
