"""convbench: multi-turn LLM conversations from one declarative spec.

build → judge → train → eval → report → publish, all from the same records.

    import convbench

    run = convbench.build("arc", mode="thinking", model="openai/gpt-4o-mini")
    convbench.judge(run, "claude-opus")
    checkpoint = convbench.train("swift", run, model="meta-llama/Llama-3.1-8B-Instruct")
    convbench.eval(checkpoint)
    convbench.report(run)
"""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

_MODULES = {
    "build": "api.verbs",
    "judge": "api.verbs",
    "train": "api.verbs",
    "eval": "api.verbs",
    "report": "api.verbs",
    "query": "api.verbs",
    "publish": "api.verbs",
    "pull": "api.verbs",
    "import_logs": "api.verbs",
    "open_run": "api.verbs",
    "Run": "api.handles",
    "Checkpoint": "api.handles",
    "Report": "api.handles",
    "DryRun": "api.handles",
    "ConvbenchError": "errors",
}
"""Module of each public name, imported at first use, so that `import convbench` is fast."""

__all__ = [
    "Checkpoint",
    "ConvbenchError",
    "DryRun",
    "Report",
    "Run",
    "build",
    "eval",
    "import_logs",
    "judge",
    "open_run",
    "publish",
    "pull",
    "query",
    "report",
    "train",
]


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'convbench' has no attribute {name!r}")
    return getattr(_import_module(f"convbench.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
