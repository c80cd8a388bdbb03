"""Logs of Inspect (inspect_ai): `.eval`, an archive with a file a sample, or one JSON file.

Source: inspect_ai's documentation, "Log Files", and its `EvalLog` and `EvalSample`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_time, read_message
from convbench.formats.log import Item, LeftOut, LogConversation, each

GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Scores of Inspect's letters: correct, incorrect, partial, no answer."""
FACTS = ("task", "model", "created", "task_version", "run_id")


def recognises(first: object) -> bool:
    """A log, or a sample with its log's header."""
    if not isinstance(first, dict):
        return False
    return {"header", "sample"} == first.keys() or ("eval" in first and "samples" in first)


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each sample of a log."""
    header = record.get("header", record) or {}
    samples = [record["sample"]] if "sample" in record else record["samples"] or []
    yield from each(samples, lambda sample: _read_sample(sample, header))


def _read_sample(sample: dict[str, Any], header: Mapping[str, Any]) -> LogConversation:
    evaluation = as_mapping(header.get("eval"))
    about = {key: evaluation[key] for key in FACTS if evaluation.get(key) is not None}
    configs = (header.get("plan"), {"config": evaluation.get("model_generate_config")})
    settings = [as_mapping(as_mapping(config).get("config")) for config in configs]
    attached = as_mapping(sample.get("attachments"))
    messages = [_attach(message, attached) for message in sample["messages"]]
    if not any(message.get("role") == "assistant" for message in messages):
        raise LeftOut(str(as_mapping(sample.get("error")).get("message") or "no reply")[:160])
    scores = {k: as_mapping(v) for k, v in as_mapping(sample.get("scores")).items()}
    values = {name: score.get("value") for name, score in scores.items()}
    values |= {f"{k}.{n}": v for k, many in values.items() for n, v in as_mapping(many).items()}
    known = {name: n for name, value in values.items() if (n := _grade(value)) is not None}
    own = {**about, "epoch": sample.get("epoch"), "scores": scores}
    if sample.get("error"):
        own["error"] = as_mapping(sample["error"]).get("message")
    temperature = [
        n for config in settings if (n := as_number(config.get("temperature"))) is not None
    ]
    target = sample.get("target")
    return LogConversation(
        [part for message in messages for part in read_message(_as_openai(message))],
        task=str(sample.get("id")),
        rewards={"reward": next(iter(known.values()))} if len(known) == 1 else known,
        question=sample["input"] if isinstance(sample.get("input"), str) else None,
        hidden={} if target in (None, "", []) else {"reference": target},
        temperature=temperature[-1] if temperature else None,
        time=as_time(evaluation.get("created")),
        metadata={**as_mapping(sample.get("metadata")), "inspect": own},
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
