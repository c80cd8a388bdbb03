"""LangSmith's runs: as the SDK posts them, {post, patch}, or a run a row; inputs are in the first,
outputs in the second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_time
from convbench.formats.log import Item, LeftOut, LogConversation
from convbench.formats.payload import read_exchange

whole_file = True


def recognises(first: object) -> bool:
    """A batch of runs, or a run."""
    if not isinstance(first, dict):
        return False
    return {"post", "patch"} <= first.keys() or {"run_type", "trace_id"} <= first.keys()


def read(records: Any, where: str) -> Iterator[Item]:
    """Yield each call of a model; of a trace without one, its root. What a later call repeats is a
    copy."""
    runs: dict[str, dict[str, Any]] = {}
    for record in (record for record in records if isinstance(record, dict)):
        for part in (
            [*record.get("post", ()), *record.get("patch", ())] if "post" in record else [record]
        ):
            known = runs.setdefault(str(part.get("id")), {})
            known.update({k: v for k, v in part.items() if v not in (None, {}, [])})
    models = [run for run in runs.values() if run.get("run_type") == "llm"]
    roots = [run for run in runs.values() if not run.get("parent_run_id")]
    order = sorted(
        models or roots, key=lambda run: (str(run.get("trace_id")), str(run.get("dotted_order")))
    )
    for run in order:
        facts = as_mapping(as_mapping(run.get("extra")).get("metadata"))
        inputs, outputs = as_mapping(run.get("inputs")), as_mapping(run.get("outputs"))
        if not outputs:
            yield LeftOut("a run without an output")
            continue
        stats = as_mapping(run.get("feedback_stats"))
        scores = {
            k: n for k, v in stats.items() if (n := as_number(as_mapping(v).get("avg"))) is not None
        }
        yield LogConversation(
            read_exchange(
                inputs, outputs, model=outputs.get("model") or facts.get("ls_model_name")
            ),
            id=str(run.get("trace_id")),
            rewards=scores | ({"reward": next(iter(scores.values()))} if len(scores) == 1 else {}),
            tools=as_mapping(as_mapping(run.get("extra")).get("invocation_params")).get("tools")
            or [],
            failure=str(run["error"]) if run.get("error") else None,
            time=as_time(run.get("start_time")),
            metadata={
                "name": run.get("name"),
                **{k: facts[k] for k in facts if k.startswith("ls_")},
            },
        )
