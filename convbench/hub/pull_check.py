"""Check a run from elsewhere before it is added to the user's runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from convbench.errors import HubError, RunError
from convbench.schema import (
    Conversation,
    Example,
    ImagePart,
    JudgeSpec,
    RunManifest,
    Verdict,
)
from convbench.store.keys import NameSet
from convbench.store.run_format import parse_manifest
from convbench.store.shape import read_bytes
from convbench.util.regular import open_to_read

Record = TypeVar("Record", bound=BaseModel)

LARGEST = {"run.json": 16 << 20, "judge": 4 << 20, "media": 32 << 20, "records": 16 << 30}
"""Most bytes of a file, by its kind."""
LONGEST_LINE = 32 << 20
"""Most bytes of one record."""
LONGEST_TEXT = 4 << 20
"""Most characters of one turn, question, or field."""

_ALLOWED = re.compile(
    r"run/(?:run\.json|(?:examples|conversations|verdicts)\.jsonl"
    r"|judges/[0-9a-f]{1,64}\.json|media/[A-Za-z0-9][\w.-]{0,199})"
)
_REF = re.compile(r"(?:rule:)?([A-Za-z_][\w.]*|[^:]+\.py):[A-Za-z_]\w*")


def check_names(repo: str, files: dict[str, int]) -> list[str]:
    """Return the sorted names of a run's files (`run/…`) among a repository's `files` (bytes by
    name); other files are ignored.

    Raise HubError for any name that leaves its folder, for a name under `run/` that is no file of a
    run, for a file that is too large, and if run.json or examples.jsonl is missing.
    """
    for name in files:
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or name.startswith(("/", "\\")) or "\0" in name or ":" in parts[0]:
            raise HubError(f"{repo}: found a file named {name!r}, which leaves its folder; refused")
    run_files = [name for name in files if name.startswith("run/")]
    for name in run_files:
        if not _ALLOWED.fullmatch(name):
            raise HubError(f"{repo}: found {name!r}, which is no file of a run; refused")
        limit = LARGEST[_file_kind(name)]
        if files[name] > limit:
            raise HubError(f"{repo}: {name} has {files[name]:,} bytes; expected at most {limit:,}")
    missing = [n for n in ("run.json", "examples.jsonl") if f"run/{n}" not in files]
    if missing:
        raise HubError(
            f"{repo}: found no run/{missing[0]}; expected a set made by `convbench publish` "
            "(other sets: load them with datasets, and use convbench import)"
        )
    return sorted(run_files)


def _file_kind(name: str) -> str:
    if name.endswith("run.json"):
        return "run.json"
    folder = name.split("/")[1]
    return {"judges": "judge", "media": "media"}.get(folder, "records")


def check_run(folder: Path, repo: str) -> RunManifest:
    """Check every record of a downloaded run in `folder` and return its manifest; nothing is
    written.

    Raise HubError naming file, line and field for an invalid record, a reference to something that
    is missing, or a spec that names a Python function other than convbench's own. `repo` is the
    repository's name, for errors.
    """
    try:
        manifest = parse_manifest(f"{repo}: run/run.json", read_bytes(folder / "run.json"))
    except RunError as error:
        raise HubError(str(error)) from None
    _refuse_functions(manifest.model_dump(mode="json"), f"{repo}: run/run.json")
    for path in sorted((folder / "judges").glob("*.json")):
        spec = _validate_record(path.read_bytes(), JudgeSpec, f"{repo}: run/judges/{path.name}")
        _refuse_functions(spec.model_dump(mode="json"), f"{repo}: run/judges/{path.name}")
    examples = NameSet(
        example.example_id for _, example in _read_records(folder / "examples.jsonl", Example, repo)
    )
    owners = NameSet(_conversation_ids(folder, repo, manifest, examples))
    for where, verdict in _read_records(folder / "verdicts.jsonl", Verdict, repo):
        if verdict.conversation_id not in owners:
            raise HubError(
                f"{where}: found a verdict of {_short_repr(verdict.conversation_id)}, "
                "which is no conversation of the run"
            )
    return manifest


def _conversation_ids(
    folder: Path, repo: str, manifest: RunManifest, examples: NameSet
) -> Iterator[str]:
    """Check every conversation and yield its id."""
    speakers = set(manifest.protocol.speakers)
    for where, conversation in _read_records(folder / "conversations.jsonl", Conversation, repo):
        if conversation.example_id not in examples:
            raise HubError(
                f"{where}: found example {_short_repr(conversation.example_id)}, which is "
                "not in examples.jsonl"
            )
        strangers = {turn.speaker for turn in conversation.turns} - speakers
        if strangers:
            raise HubError(
                f"{where}: found speaker {_short_repr(min(strangers))}; expected one of "
                f"{', '.join(sorted(speakers))}"
            )
        for turn in conversation.turns:
            parts = turn.content if isinstance(turn.content, tuple) else ()
            for part in parts:
                if isinstance(part, ImagePart) and not (folder / "media" / part.file).is_file():
                    raise HubError(
                        f"{where}: image {_short_repr(part.file)} is missing from run/media"
                    )
        yield conversation.conversation_id


def _read_records(path: Path, model: type[Record], repo: str) -> Iterator[tuple[str, Record]]:
    """Yield (place, record) of a JSON lines file. Raises HubError for an invalid record, or a line
    that is too long."""
    if not path.exists():
        return
    number = 0
    with open_to_read(path) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            where = f"{repo}: run/{path.name}:{number}"
            if len(line) > LONGEST_LINE:
                raise HubError(f"{where}: found a record of more than {LONGEST_LINE:,} bytes")
            if line.strip():
                record = _validate_record(line, model, where)
                _refuse_long(line, where)
                yield where, record


def _validate_record(data: bytes, model: type[Record], where: str) -> Record:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(_short_repr(part).strip("'") for part in first["loc"][:6]) or "(top)"
        raise HubError(f"{where}: {key}: {first['msg'][:200]}") from None
    except (RecursionError, ValueError):
        raise HubError(f"{where}: found values nested too deeply") from None


def _refuse_long(line: bytes, where: str) -> None:
    if len(line) <= LONGEST_TEXT:
        return
    for way, text in _json_texts(orjson.loads(line)):
        if len(text) > LONGEST_TEXT:
            raise HubError(
                f"{where}: {way}: found {len(text):,} characters; expected at most {LONGEST_TEXT:,}"
            )


def _json_texts(value: Any, way: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield way, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _json_texts(item, f"{way}.{_short_repr(key)}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _json_texts(item, f"{way}[{index}]")


FUNCTIONS = frozenset({"rows", "maker", "function", "model", "default"})
"""Keys of specs that may name a Python function."""


def _refuse_functions(value: Any, where: str) -> None:
    """Raise HubError for a spec that names a function of another package: specs are data."""
    for way, text in _json_texts(value):
        keys = re.findall(r"[\w-]+", way)
        named = bool(keys) and (keys[-1] in FUNCTIONS or "speakers" in keys)
        match = _REF.fullmatch(text) if named else None
        if match is None or (match[1].startswith("convbench.") and not match[1].endswith(".py")):
            continue
        is_model = keys[-1] in ("model", "default") or "speakers" in keys
        if is_model and not text.startswith("rule:"):
            continue  # a model reference such as vllm:NAME
        raise HubError(
            f"{where}: {way}: names the Python function {_short_repr(text)}; expected none but "
            "convbench's own, because a set from elsewhere is data. Load it with datasets instead"
        )


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…'"
