"""LangSmith's runs, one a row, or as the SDK posts them, {post, patch}: inputs, then outputs."""

from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.log import Items, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_mapping, as_text, at, kept

whole_file = True


def recognises(first: object) -> bool:
    names = as_mapping(first).keys()
    return {"post", "patch"} <= names or {"run_type", "trace_id"} <= names


def read(records: Any, where: str) -> Items:
    """Yield the calls of each trace."""
    runs: dict[str, dict[str, Any]] = {}
    for record in records:
        for part in [*record.get("post", ()), *record.get("patch", ())] or [record]:
            runs.setdefault(str(part.get("id")), {}).update(kept(part, *part))
    yield from read_steps(each(runs.values(), _step))


def _step(run: dict[str, Any]) -> Items:
    facts, marks = as_mapping(at(run, "extra", "metadata")), as_mapping(run.get("feedback_stats"))
    model = at(run, "outputs", "model") or facts.get("ls_model_name")
    log = LogConversation(read_exchange(run.get("inputs"), run.get("outputs"), model=model))
    log.id, log.within = run.get("trace_id"), run.get("parent_run_id")
    log.kind, log.step = as_text(run.get("run_type")), run.get("id")
    log.time, log.tools = run.get("start_time"), at(run, "extra", "invocation_params", "tools")
    log.rewards = {name: at(mark, "avg") for name, mark in marks.items()}
    log.failure = as_text(run.get("error")) or None
    log.metadata = {"name": run.get("name"), **facts}
    yield log
