"""Import logs of conversations as a run.

    files = open_source("logs/")                   every file, its rows one after another
    reader = the first of `readers` that recognises a row
    reader.read(row)      -> LogConversation       as the source had it
    fold(log)             -> turns                 paired, joined, counted
    Conversation, Example, Verdict (of `records`)  appended; the manifest comes last

What is irregular is kept as far as it can be. What cannot be is left out and counted by its reason,
with one example; a file is refused only if nothing in it can be read.
"""

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from convbench import __version__
from convbench.errors import RunError
from convbench.formats.reading import ImportPlan
from convbench.formats.records import Importer
from convbench.formats.redact import redacted
from convbench.schema import JudgeSpec, ProtocolSpec, RunManifest, TaskSpec, fingerprint
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error
from convbench.store.scratch import make_workspace

SHOWN = 12  # most names that a note lists


@dataclass(frozen=True)
class ImportResult:
    """An imported run with its counts and notes; without a run if it was a dry run."""

    run: Run | None
    conversations: int
    rewards: int  # conversations with a reward
    examples: int  # questions
    left_out: int  # records that gave no conversation
    facts: dict[str, str] = field(default_factory=dict)  # what was found, by name
    notes: list[str] = field(default_factory=list)


def import_logs(
    source: str,
    target: Path,
    run_id: str,
    name: str = "imported",
    plan: ImportPlan | None = None,
    *,
    dry: bool = False,
) -> ImportResult:
    """Import a file, folder, pattern or set on the Hub as run `target` with the unique id `run_id`.

    With `dry` nothing is written. An error leaves nothing behind. Raise DataError if nothing can be
    read or too much is left out, HubError, RunError if the target is not an empty folder.
    """
    plan = plan or ImportPlan()
    mark = fingerprint(_judge([]))  # the same for all imports: several can be trained on as one
    importer = Importer(plan, run_id, name, mark)
    if dry:
        for _ in importer.records(source):
            pass
        importer.finish(source)
        return _result(None, importer)
    taken = RunError(f"{target}: already exists and is not empty; choose another with --run DIR")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise taken
    try:
        with make_workspace(target.parent, ".import-") as space, ExitStack() as stack:
            folder = space / "run"
            folder.mkdir()
            stems = ("conversations", "verdicts", "examples")
            files = {s: stack.enter_context(Appender(folder / f"{s}.jsonl")) for s in stems}
            for stem, record in importer.records(source):
                line = redacted(record.model_dump_json(), importer.seen.notes, pii=plan.pii)
                files[stem].write(line)
            stack.close()
            importer.finish(source)
            if plan.split_by == "time":
                _split_examples(folder / "examples.jsonl", importer.split_of)
            run = Run.write_manifest(folder, _manifest(source, name, importer))
            run.store_judge(mark, _judge(importer.rewards))
            run.path.replace(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another import was first
            raise taken from None
        raise disk_error(target, error) from None
    return _result(Run.open(target), importer)


def _split_examples(path: Path, split_of: dict[str, str]) -> None:
    """Write the examples again, each with the split of its group."""
    lines = path.read_bytes().splitlines()
    path.unlink()
    with Appender(path) as file:
        for example in map(orjson.loads, lines):
            split = split_of.get(example["group_id"], "train")
            file.write(orjson.dumps(example | {"split": split}))


def _judge(rewards: list[float]) -> JudgeSpec:
    """Return the judge of imported rewards, which takes them unchanged."""
    spec = {
        "name": "imported",
        "title": "rewards that came with imported conversations",
        "kind": "human",
        "metrics": [{"name": "overall", "label": "reward"}],
        "lowest": min(0.0, *rewards) if rewards else 0.0,
        "highest": max(1.0, *rewards) if rewards else 10.0,
        "reward": {"metric": "overall", "scale": 1.0},
    }
    return JudgeSpec.model_validate(spec)


def _manifest(source: str, name: str, importer: Importer) -> RunManifest:
    file, count = Path(source.removeprefix("hf://")).name, importer.count
    all_choices = count["with choices"] == count["conversations"]
    task = {
        "name": name,
        "title": f"conversations imported from {file}",
        "source": {"file": file},
        "answer": {"kind": "choice" if all_choices else "none"},
        "protocol": "imported",
        "judge": "imported",
    }
    steps = [{"id": "say", "speaker": "teacher"}, {"id": "reply", "speaker": "assistant"}]
    speakers: dict[str, Any] = {"assistant": {"policy": True}, "teacher": {}}
    if count["with late system"]:
        speakers["system"] = {"role": "system"}
        steps.append({"id": "note", "speaker": "system", "say": ""})
    protocol = {
        "name": "imported",
        "title": "conversations held elsewhere, as they were logged",
        "turns": {"default": importer.most_turns, "min": 1, "max": importer.most_turns},
        "speakers": speakers,
        "steps": [{"loop": steps, "times": "turns"}],
    }
    cast = {"assistant": "imported", "teacher": "script"}
    marks = {
        "task": fingerprint(TaskSpec.model_validate(task)),
        "protocol": fingerprint(ProtocolSpec.model_validate(protocol)),
        "cast": fingerprint(cast),
    }
    manifest = {
        "id": importer.run_id,
        "kind": "import",
        "created": importer.ended,
        "version": __version__,
        "task": task,
        "protocol": protocol,
        "mode": "thinking" if count["with reasoning"] else "standard",
        "turns": importer.most_turns,
        "samples": max(importer.samples.values()),
        "temperatures": [1.0],
        "seed": 0,
        "cast": {who: {"model": model} for who, model in cast.items()},
        "source_revision": importer.digest,
        "fingerprints": marks | {"specs": fingerprint(marks, importer.digest)},
        "extra": {"imported": file},
    }
    return RunManifest.model_validate(manifest)


def _result(run: Run | None, importer: Importer) -> ImportResult:
    count, rewards = importer.count, importer.rewards
    splits = Counter(importer.split_of[group] for group in importer.sizes.elements())
    mean = f"{len(rewards):,}, mean {sum(rewards) / len(rewards):.6g}" if rewards else "none"
    facts = {
        "format": _listed(importer.seen.formats),
        "conversations": f"{count['conversations']:,} ({_listed(splits)})",
        "policy turns": f"{count['policy turns']:,} with {count['calls']:,} calls of tools",
        "rewards": mean,
        "questions": f"{len(importer.agreed):,} in {len(importer.split_of):,} groups",
        **({"models": _listed(importer.models)} if importer.models else {}),
    }
    return ImportResult(
        run,
        count["conversations"],
        len(rewards),
        len(importer.agreed),
        importer.seen.left_out.total(),
        facts,
        list(_notes(importer)),
    )


def _listed(counts: Counter[str]) -> str:
    shown = [f"{name} {count:,}" for name, count in counts.most_common(SHOWN)]
    more = len(counts) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _notes(importer: Importer) -> Iterator[str]:
    """Yield a line for each thing that is not as one may expect."""
    seen, count, plan = importer.seen, importer.count, importer.plan
    yield from seen.left_out_lines()
    yield from (f"{number:,} {what}" for what, number in seen.notes.most_common() if number)
    if failed := count["failed"]:
        yield f"{failed} conversations failed in the program around the model, not trained on"
    if without := count["conversations"] - len(importer.rewards) - failed:
        yield (
            f"{without} of {count['conversations']} conversations have no reward; name it: --map "
            "reward=FIELD, or --rewards FILE --key NAME; or score them: convbench judge --judge "
            "RUBRIC@MODEL"
        )
    if len(importer.models) > 1 and plan.policy is None:
        models = _listed(importer.models)
        yield f"several models spoke ({models}); --policy MODEL learns one of them"
    if len(set(importer.split_of.values())) == 1 and plan.split_by is None:
        split = next(iter(importer.split_of.values()))
        yield f"all are in {split}; eval needs a test split: --split-by group, or --split-by time"
    if importer.metadata:
        yield f"stored as metadata, which no judge or trainer sees: {_listed(importer.metadata)}"
