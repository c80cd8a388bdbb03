"""Set the Hub's clients up before they load: no progress bars, no wait for missing endpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from convbench.hub.client import bound

PUBLIC = "https://huggingface.co"


def prepare() -> None:
    """Set what the clients read when they are imported; what the user set stays.

    A Hub other than the public one mostly lacks the Xet endpoints; the client would ask for
    them again and again for minutes.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if os.environ.get("HF_ENDPOINT", PUBLIC).rstrip("/") != PUBLIC:
        os.environ.setdefault("HF_HUB_DISABLE_XET", "1")


@contextmanager
def quietly() -> Iterator[None]:
    """Run with the clients' progress bars and warnings off; as before afterwards."""
    prepare()
    import datasets
    from datasets.utils import logging as datasets_logging
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    hub_off, datasets_off = are_progress_bars_disabled(), datasets.are_progress_bars_disabled()
    bound()
    level, hub_level = datasets_logging.get_verbosity(), hub_logging.get_verbosity()
    disable_progress_bars()
    datasets.disable_progress_bars()
    datasets_logging.set_verbosity_error()
    hub_logging.set_verbosity(40)  # logging.ERROR
    try:
        yield
    finally:
        datasets_logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if not hub_off:
            enable_progress_bars()
        if not datasets_off:
            datasets.enable_progress_bars()
