"""Logs of Inspect (inspect_ai): `.eval`, an archive with a file a sample, or one JSON file."""

import json
from functools import partial
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Items, LeftOut, LogConversation, each
from convbench.formats.values import as_mapping, at, kept

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # correct, incorrect, partial, no answer
MESSAGE = ("role", "content", "tool_calls", "tool_call_id")


def recognises(first: object) -> bool:
    names = as_mapping(first).keys()
    return {"header", "sample"} == names or {"eval", "samples"} <= names


def read(record: Any, where: str) -> Items:
    """Yield each sample of a log."""
    samples = [record["sample"]] if "sample" in record else record["samples"] or []
    yield from each(samples, partial(_read_sample, record.get("header", record)))


def _read_sample(header: Any, sample: dict[str, Any]) -> Items:
    error, about = at(sample, "error", "message"), as_mapping(at(header, "eval"))
    log = LogConversation(task=sample.get("id"), time=about.get("created"))
    text = json.dumps(sample["messages"])
    for name, attached in as_mapping(sample.get("attachments")).items():
        text = text.replace(json.dumps(f"attachment://{name}"), json.dumps(attached))
    for message in json.loads(text):
        log.messages += read_message(kept(message, *MESSAGE))
    if not log.has_reply:
        raise LeftOut(str(error or "no reply")[:160])
    scores = {name: as_mapping(score) for name, score in as_mapping(sample.get("scores")).items()}
    values = {name: score.get("value") for name, score in scores.items()}
    values |= {f"{k}.{n}": v for k, many in values.items() for n, v in as_mapping(many).items()}
    marks = {name: GRADES.get(str(value), value) for name, value in values.items()}
    log.rewards = marks if len(marks) > 1 else {"reward": next(iter(marks.values()), None)}
    log.question = sample["input"] if isinstance(sample.get("input"), str) else None
    log.hidden = kept({"reference": sample.get("target")}, "reference")
    config = as_mapping(at(header, "plan", "config"))
    log.temperature = config.get("temperature", at(about, "model_generate_config", "temperature"))
    own = kept(about, "task", "model", "created", "task_version", "run_id")
    own |= {"epoch": sample.get("epoch"), "scores": scores, **kept({"error": error}, "error")}
    log.metadata = {**as_mapping(sample.get("metadata")), "inspect": own}
    yield log
