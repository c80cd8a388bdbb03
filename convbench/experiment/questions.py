"""Questions read once for all cells that ask the same ones: making some takes a minute."""

from __future__ import annotations

from convbench.errors import ConvbenchError
from convbench.schema import TaskSpec, fingerprint
from convbench.tasks.load import Loaded, load_examples

_KNOWN: dict[str, Loaded | ConvbenchError] = {}


def read(task: TaskSpec, seed: int) -> Loaded:
    """Return the drawn questions of a task, as `load_examples` does; what it found is kept for as
    long as the process lives, what it refused until `forget`."""
    name = fingerprint(task, seed)
    if name not in _KNOWN:
        try:
            _KNOWN[name] = load_examples(task, seed)
        except ConvbenchError as error:
            _KNOWN[name] = error
    found = _KNOWN[name]
    if isinstance(found, ConvbenchError):
        raise found
    return found


def forget() -> None:
    """Let go of all: another experiment may find other rows."""
    _KNOWN.clear()
