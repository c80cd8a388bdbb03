"""LangSmith's runs: as the SDK posts them, {post, patch}, or a run a row; inputs are in the first,
outputs in the second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.log import Item, LeftOut, LogConversation
from convbench.formats.values import as_mapping

whole_file = True


def recognises(first: object) -> bool:
    """A batch of runs, or a run."""
    run = first if isinstance(first, dict) else {}
    return {"post", "patch"} <= run.keys() or {"run_type", "trace_id"} <= run.keys()


def read(records: Any, where: str) -> Iterator[Item]:
    """Yield each call of a model; of a trace without one, its root. What a later call repeats is a
    copy."""
    runs: dict[str, dict[str, Any]] = {}
    for record in records:
        batch = [*record.get("post", ()), *record.get("patch", ())]
        for part in batch if "post" in record else [record]:
            known = runs.setdefault(str(part.get("id")), {})
            known |= {k: v for k, v in part.items() if v not in (None, {}, [])}
    models = [run for run in runs.values() if run.get("run_type") == "llm"]
    roots = [run for run in runs.values() if not run.get("parent_run_id")]
    names = ("trace_id", "dotted_order")
    for run in sorted(models or roots, key=lambda run: [str(run.get(name)) for name in names]):
        yield _read(run) if as_mapping(run.get("outputs")) else LeftOut("a run without an output")


def _read(run: dict[str, Any]) -> LogConversation:
    extra = as_mapping(run.get("extra"))
    facts, outputs = as_mapping(extra.get("metadata")), as_mapping(run.get("outputs"))
    stats = as_mapping(run.get("feedback_stats"))
    model = outputs.get("model") or facts.get("ls_model_name")
    settings = {name: value for name, value in facts.items() if name.startswith("ls_")}
    return LogConversation(
        read_exchange(run.get("inputs"), outputs, model=model),
        id=run.get("trace_id"),
        rewards={name: as_mapping(marks).get("avg") for name, marks in stats.items()},
        tools=as_mapping(extra.get("invocation_params")).get("tools"),
        failure=str(run["error"]) if run.get("error") else None,
        time=run.get("start_time"),
        metadata={"name": run.get("name"), **settings},
    )
