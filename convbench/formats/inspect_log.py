"""Logs of Inspect (inspect_ai 0.3) as rows: `.eval`, an archive with a JSON file a sample, deflated
or in newer versions compressed with Zstandard, and the same log as one JSON file.

Source: inspect_ai's documentation, "Log Files", and its `EvalLog` and `EvalSample`. An archive is
untrusted: sizes are counted while it is unpacked, whatever its headers claim.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import orjson

from convbench.errors import DataError
from convbench.sources.rows import read_json
from convbench.util.regular import open_to_read

ENDING = ".eval"
SAMPLE = re.compile(r"samples/[^/]+\.json")
ZSTANDARD = 93
"""The ZIP format's number of Zstandard, which Python 3.11's `zipfile` cannot read."""
MOST = 1_000_000
"""Most files of an archive."""
LARGEST = 256 << 20
"""Most bytes of one file of it, unpacked."""
LARGEST_TOTAL = 8 << 30
"""Most bytes of all files together, unpacked."""
PEEK = 4096
"""Bytes at the start of a JSON file in which the keys of a log must occur."""
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Scores of Inspect's letters: correct, incorrect, partial, no answer."""
ATTACHED = "attachment://"

Row = tuple[str, int, Any]
"""(place in words, number from 1, the row). For a line that is not JSON the row is the DataError.
"""


def is_log(path: Path) -> bool:
    """Return whether a file is a log of Inspect: by the ending `.eval`, or for `.json` by keys in
    its first bytes; False for a file that cannot be read."""
    if path.suffix == ENDING:
        return True
    if path.suffix != ".json":
        return False
    try:
        with open_to_read(path) as file:
            head = file.read(PEEK)
    except OSError:
        return False
    return all(re.search(rb'"%s"\s*:' % key, head) for key in (b"status", b"eval", b"task_id"))


def log_rows(path: Path, left_out: list[str]) -> tuple[Iterator[Row], str]:
    """Return (an iterator of (place, number from 1, row) for each sample and epoch, the file's
    digest as `sha256:…`).

    A row has messages, example_id and metadata, and where the log has them reward, scores,
    temperature, question and hidden. Samples without a reply are appended to `left_out`, one line
    each, as the rows are read. Raise DataError, partly only while they are read, if the file is not
    a log.
    """
    try:
        with open_to_read(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    rows = _archive_rows(path, left_out) if path.suffix == ENDING else _as_json(path, left_out)
    return rows, f"sha256:{digest}"


def _as_json(path: Path, left_out: list[str]) -> Iterator[Row]:
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path}: found more than {LARGEST:,} bytes; expected the log as .eval")
    log = _read_object(path.read_bytes(), str(path))
    samples = log.get("samples") or []
    if not isinstance(samples, list):
        raise DataError(f"{path}: samples: found {type(samples).__name__}; expected a list")
    yield from _sample_rows(
        ((f"{path}: sample {n}", s) for n, s in enumerate(samples, 1)), log, left_out
    )


def _archive_rows(path: Path, left_out: list[str]) -> Iterator[Row]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: is no archive: {error}; expected a log of Inspect's") from None
    with archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if len(entries) > MOST:
            raise DataError(f"{path}: found {len(entries):,} files; expected at most {MOST:,}")
        if "header.json" not in entries:
            raise DataError(
                f"{path}: found no header.json; expected a log that Inspect ended (status success, "
                "error or cancelled)"
            )
        left = [LARGEST_TOTAL]
        header = _read_object(
            _unpack_entry(archive, path, entries["header.json"], left), f"{path}: header"
        )
        names = sorted(name for name in entries if SAMPLE.fullmatch(name))

        def read_samples() -> Iterator[tuple[str, Any]]:
            for name in names:
                where = f"{path}: {name}"
                yield where, _read_object(_unpack_entry(archive, path, entries[name], left), where)

        yield from _sample_rows(read_samples(), header, left_out)


def _unpack_entry(
    archive: zipfile.ZipFile, path: Path, entry: zipfile.ZipInfo, left: list[int]
) -> bytes:
    """Return the bytes of one file of an archive. `left` holds the number of bytes that all files
    may still have, and is reduced. Raises DataError if it is damaged or too large."""
    where, most = f"{path}: {entry.filename}", min(LARGEST, left[0])
    try:
        if entry.compress_type == ZSTANDARD:
            data = _unpack_zstandard(path, entry, most + 1)
        else:
            with archive.open(entry) as file:
                data = file.read(most + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise DataError(f"{where}: cannot be unpacked: {error}") from None
    except Exception as error:  # zlib's own error is a bare Exception
        if type(error).__module__ != "zlib":
            raise
        raise DataError(f"{where}: cannot be unpacked: {error}") from None
    if len(data) > most:
        raise DataError(f"{where}: found more than {most:,} bytes when unpacked; refused")
    left[0] -= len(data)
    return data


def _unpack_zstandard(path: Path, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Return at most `most` bytes of a Zstandard file, which `zipfile` cannot unpack. Its data
    follows a header of 30 bytes, its name and an extra field (APPNOTE 6.3.10, 4.3.7). Raises
    BadZipFile."""
    import pyarrow

    with open_to_read(path) as file:
        file.seek(entry.header_offset)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("found no header of the file")
        skip = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        file.seek(skip, 1)
        packed = file.read(min(entry.compress_size, LARGEST))
    out = bytearray()
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
        while len(out) < most and (block := stream.read(min(1 << 20, most - len(out)))):
            out += block
    return bytes(out)


def _read_object(data: bytes, where: str) -> dict[str, Any]:
    value = read_json(data, where)
    if not isinstance(value, dict):
        raise DataError(f"{where}: found {type(value).__name__}; expected an object")
    return value


def _sample_rows(
    samples: Iterator[tuple[str, Any]], log: Mapping[str, Any], left_out: list[str]
) -> Iterator[Row]:
    about = _log_facts(log)
    for number, (where, sample) in enumerate(samples, 1):
        if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
            raise DataError(f"{where}: found no messages; expected a sample of Inspect's")
        raw_messages = _attach_texts(sample["messages"], _as_mapping(sample.get("attachments")))
        messages = [_openai_message(message, f"{where}: messages") for message in raw_messages]
        if not any(message["role"] == "assistant" for message in messages):
            error = _as_mapping(sample.get("error")).get("message")
            left_out.append(f"{where}: {error or 'no reply'}"[:200])
            continue
        yield where, number, _sample_row(sample, messages, about)


def _log_facts(log: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a log that are stored with each row."""
    evaluation = _as_mapping(log.get("eval"))
    keys = ("task", "model", "created", "task_version", "run_id")
    facts = {key: evaluation[key] for key in keys if evaluation.get(key) is not None}
    for config in (
        _as_mapping(log.get("plan")).get("config"),
        evaluation.get("model_generate_config"),
    ):
        if isinstance(_as_mapping(config).get("temperature"), int | float):
            facts["temperature"] = _as_mapping(config)["temperature"]
    return facts


def _sample_row(
    sample: Mapping[str, Any], messages: list[dict[str, Any]], about: Mapping[str, Any]
) -> dict[str, Any]:
    scores = {name: _as_mapping(score) for name, score in _as_mapping(sample.get("scores")).items()}
    values = {name: _grade_number(score.get("value")) for name, score in scores.items()}
    known = {name: value for name, value in values.items() if value is not None}
    own = {**about, "epoch": sample.get("epoch"), "scores": scores}
    own.pop("temperature", None)
    if sample.get("error"):
        own["error"] = _as_mapping(sample["error"]).get("message")
    row: dict[str, Any] = {
        "messages": messages,
        "example_id": str(sample.get("id")),
        "metadata": {**_as_mapping(sample.get("metadata")), "inspect": own},
    }
    if len(known) == 1:
        row["reward"] = next(iter(known.values()))
    elif known:
        row["scores"] = known
    if about.get("temperature") is not None:
        row["temperature"] = about["temperature"]
    if isinstance(sample.get("input"), str):
        row["question"] = sample["input"]
    if sample.get("target") not in (None, "", []):
        row["hidden"] = {"reference": sample["target"]}
    return row


def _grade_number(value: object) -> float | None:
    """Return a score as a number; None if it is no number or letter, e.g. a mapping."""
    if isinstance(value, bool | int | float):
        return float(value)
    return GRADES.get(value) if isinstance(value, str) else None


def _openai_message(message: object, where: str) -> dict[str, Any]:
    """Return a message in OpenAI's form, with reasoning and tool calls in their own keys. Raises
    DataError."""
    if not isinstance(message, dict):
        raise DataError(f"{where}: found {type(message).__name__}; expected a message")
    content, thoughts = message.get("content", ""), []
    if isinstance(content, list):
        thoughts = [
            str(part.get("reasoning") or "")
            for part in content
            if isinstance(part, dict) and part.get("type") == "reasoning"
        ]
        content = [
            part
            for part in content
            if not (isinstance(part, dict) and part.get("type") == "reasoning")
        ]
        if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            content = "\n".join(part["text"] for part in content)
    converted: dict[str, Any] = {"role": message.get("role"), "content": content}
    if any(thoughts):
        converted["reasoning_content"] = "\n".join(thoughts)
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        converted["tool_calls"] = [_openai_call(call, where) for call in calls]
    if message.get("role") == "tool":
        converted["tool_call_id"] = message.get("tool_call_id")
        converted["name"] = message.get("function")
    return converted


def _openai_call(call: object, where: str) -> dict[str, Any]:
    fields = _as_mapping(call)
    if not isinstance(fields.get("function"), str):
        raise DataError(f"{where}: tool_calls: found no function; expected a call of Inspect's")
    arguments = orjson.dumps(fields.get("arguments") or {}).decode()
    return {
        "id": fields.get("id"),
        "type": "function",
        "function": {"name": fields["function"], "arguments": arguments},
    }


def _attach_texts(value: Any, attachments: Mapping[str, Any]) -> Any:
    """Return a value with references to attachments replaced by their texts, recursively."""
    if isinstance(value, list):
        return [_attach_texts(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _attach_texts(item, attachments) for key, item in value.items()}
    if isinstance(value, str) and value.startswith(ATTACHED):
        return attachments.get(value.removeprefix(ATTACHED), value)
    return value


def _as_mapping(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
