"""Logs of Inspect (inspect_ai): `.eval`, an archive with a file a sample, or one JSON file.

Source: inspect_ai's documentation, "Log Files", and its `EvalLog` and `EvalSample`. The reader of
`datasets` (`eval`) gives samples without the log's header, and stops at ids that are no numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from convbench.formats.dialects import read_messages
from convbench.formats.log import Item, LeftOut, LogConversation, each
from convbench.formats.values import as_mapping, as_number, kept

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Scores of Inspect's letters: correct, incorrect, partial, no answer."""


def recognises(first: object) -> bool:
    """A log, or a sample with its log's header."""
    log = first if isinstance(first, dict) else {}
    return {"header", "sample"} == log.keys() or ("eval" in log and "samples" in log)


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each sample of a log."""
    header = as_mapping(record.get("header", record))
    samples = [record["sample"]] if "sample" in record else record["samples"] or []
    yield from each(samples, partial(_read_sample, header))


def _read_sample(header: Mapping[str, Any], sample: dict[str, Any]) -> LogConversation:
    evaluation, error = as_mapping(header.get("eval")), as_mapping(sample.get("error"))
    messages = _attach(sample["messages"], as_mapping(sample.get("attachments")))
    if not any(message.get("role") == "assistant" for message in messages):
        raise LeftOut(str(error.get("message") or "no reply")[:160])
    scores = {k: as_mapping(v) for k, v in as_mapping(sample.get("scores")).items()}
    values = {name: score.get("value") for name, score in scores.items()}
    values |= {f"{k}.{n}": v for k, many in values.items() for n, v in as_mapping(many).items()}
    known = {name: n for name, value in values.items() if (n := _grade(value)) is not None}
    settings = as_mapping(as_mapping(header.get("plan")).get("config"))
    settings |= kept(as_mapping(evaluation.get("model_generate_config")), "temperature")
    about = kept(evaluation, "task", "model", "created", "task_version", "run_id")
    about |= {"epoch": sample.get("epoch"), "scores": scores}
    about |= {"error": error.get("message")} if error else {}
    target = sample.get("target")
    return LogConversation(
        read_messages(map(_as_openai, messages)),
        task=sample.get("id"),
        rewards={"reward": next(iter(known.values()))} if len(known) == 1 else known,
        question=sample["input"] if isinstance(sample.get("input"), str) else None,
        hidden={} if target in (None, "", []) else {"reference": target},
        temperature=settings.get("temperature"),
        time=evaluation.get("created"),
        metadata={**as_mapping(sample.get("metadata")), "inspect": about},
    )


def _grade(value: Any) -> float | None:
    return GRADES[value] if isinstance(value, str) and value in GRADES else as_number(value)


def _as_openai(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what Inspect adds to it, such as the model and the source."""
    keys = ("role", "content", "tool_calls", "tool_call_id")
    return {key: message[key] for key in keys if key in message} | {"name": message.get("function")}


def _attach(value: Any, attached: Mapping[str, Any]) -> Any:
    """Return a value with references to attachments replaced by their texts."""
    if isinstance(value, list):
        return [_attach(item, attached) for item in value]
    if isinstance(value, dict):
        return {key: _attach(item, attached) for key, item in value.items()}
    if isinstance(value, str) and value.startswith("attachment://"):
        return attached.get(value.removeprefix("attachment://"), value)
    return value
