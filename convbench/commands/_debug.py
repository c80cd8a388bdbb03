"""`--debug`: log what a command does, call by call, to a file."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from logging.handlers import RotatingFileHandler
from pathlib import Path

from convbench import __version__
from convbench.errors import RunError
from convbench.util.redact import redact_text

LARGEST = 50_000_000
"""Largest number of bytes of the log; then its older half is dropped."""
PACKAGES = (
    "litellm",
    "aiohttp",
    "duckdb",
    "datasets",
    "huggingface-hub",
    "pydantic",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "deepspeed",
    "vllm",
)


class _RedactedFormatter(logging.Formatter):
    """Formats log records with API keys redacted."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record))


@contextmanager
def debug_log(arguments: list[str]) -> Iterator[Path]:
    """Log everything of this process and its libraries, in the body of `with`, to a new file in the
    current folder.

    Yields its path. The file may hold prompts and replies and is readable by its owner only; API
    keys are redacted. Of more than 50 MB the older half is dropped. Raises RunError if it cannot be
    written.
    """
    path = Path(f"convbench-debug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        handler = RotatingFileHandler(path, maxBytes=LARGEST // 2, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise RunError(f"--debug: {path} cannot be written: {error.strerror or error}") from None
    handler.setFormatter(_RedactedFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    log = logging.getLogger("convbench")
    log.info(
        "convbench %s, Python %s, %s", __version__, sys.version.split()[0], platform.platform()
    )
    log.info("typed: %s", shlex.join(["convbench", *arguments]))
    log.info("packages: %s", ", ".join(_package_versions()))
    try:
        yield path
    except BaseException as error:
        if not isinstance(error, SystemExit):
            log.exception("ended by %s", type(error).__name__)
        raise
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def _package_versions() -> Iterator[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"{name} missing"
