"""Logs of Inspect (inspect_ai): `.eval`, an archive with a file a sample, or one JSON file. The
reader of `datasets` (`eval`) gives samples without the log's header, and stops at ids that are no
numbers."""

from functools import partial
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Items, LeftOut, LogConversation, each
from convbench.formats.values import as_mapping, as_number, at, kept

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # correct, incorrect, partial, no answer
MESSAGE = ("role", "content", "tool_calls", "tool_call_id")


def recognises(first: object) -> bool:
    names = as_mapping(first).keys()
    return {"header", "sample"} == names or {"eval", "samples"} <= names


def read(record: Any, where: str) -> Items:
    """Yield each sample of a log."""
    samples = [record["sample"]] if "sample" in record else record["samples"] or []
    yield from each(samples, partial(_read_sample, record.get("header", record)))


def _read_sample(header: Any, sample: dict[str, Any]) -> LogConversation:
    """Return a sample. A single score is the reward; of a score of several values, each is one."""
    error, about = at(sample, "error", "message"), as_mapping(at(header, "eval"))
    log = LogConversation(task=sample.get("id"), time=about.get("created"))
    for message in _attach(sample["messages"], as_mapping(sample.get("attachments"))):
        own = {key: message[key] for key in MESSAGE if key in message}
        log.messages += read_message({**own, "name": message.get("function")})
    if not log.has_reply:
        raise LeftOut(str(error or "no reply")[:160])
    scores = {name: as_mapping(score) for name, score in as_mapping(sample.get("scores")).items()}
    values = {name: score.get("value") for name, score in scores.items()}
    values |= {f"{k}.{n}": v for k, many in values.items() for n, v in as_mapping(many).items()}
    marks = {name: as_number(GRADES.get(str(value), value)) for name, value in values.items()}
    known = [mark for mark in marks.values() if mark is not None]
    log.rewards = {"reward": known[0]} if len(known) == 1 else marks
    log.question = sample["input"] if isinstance(sample.get("input"), str) else None
    log.hidden = kept({"reference": sample.get("target")}, "reference")
    settings = (at(about, "model_generate_config"), at(header, "plan", "config"))
    log.temperature = next((t for s in settings if (t := at(s, "temperature")) is not None), None)
    own = kept(about, "task", "model", "created", "task_version", "run_id")
    own |= {"epoch": sample.get("epoch"), "scores": scores, **kept({"error": error}, "error")}
    log.metadata = {**as_mapping(sample.get("metadata")), "inspect": own}
    return log


def _attach(value: Any, attached: dict[str, Any]) -> Any:
    """Return a value with references to attachments replaced by their texts."""
    if isinstance(value, dict):
        return {key: _attach(item, attached) for key, item in value.items()}
    if isinstance(value, list):
        return [_attach(item, attached) for item in value]
    is_mark = isinstance(value, str) and value.startswith("attachment://")
    return attached.get(value.removeprefix("attachment://"), value) if is_mark else value
