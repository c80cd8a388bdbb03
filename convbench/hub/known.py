"""Whether the Hub has a model."""

from __future__ import annotations

from functools import lru_cache

from convbench.hub.client import bound

TIMEOUT = 20.0
"""Seconds to wait for the Hub's answer."""


@lru_cache
def on_hub(model: str) -> bool:
    """Ask the Hub once whether it has this model: the clients ask five times for every file
    where nobody answers."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    bound()  # whatever the Hub is asked for later, too
    try:
        HfApi().model_info(model, timeout=TIMEOUT)
    except (HfHubHTTPError, HFValidationError, httpx.TransportError, OSError):
        return False
    return True
