"""Import logs of conversations as a run.

    files = open_source("logs/")                   every file, its rows one after another
    reader = the first of `readers` that recognises a row
    reader.read(row)      -> LogConversation       as the source had it
    fold(log)             -> turns                 paired, joined, counted
    Conversation, Example, Verdict (of `records`)  appended; the manifest comes last

What is irregular is kept as far as it can be. What cannot be is left out and counted by its reason,
with one example; a file is refused only if nothing in it can be read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from convbench import __version__
from convbench.catalog.read import read_yaml
from convbench.errors import RunError
from convbench.formats.reading import ImportPlan
from convbench.formats.records import FILES, Importer
from convbench.schema import JudgeSpec, RunManifest, fingerprint
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error
from convbench.store.scratch import make_workspace
from convbench.util.redact import redact_record

SHOWN = 12  # most names that a note lists


@dataclass(frozen=True)
class ImportResult:
    """An imported run with its counts and notes; without a run if it was a dry run."""

    run: Run | None
    conversations: int
    rewards: int  # conversations with a reward
    examples: int  # questions
    left_out: int  # records that gave no conversation
    facts: dict[str, str]  # what was found, by name
    notes: list[str]


def import_logs(
    source: str, target: Path | None, run_id: str, name: str, plan: ImportPlan | None = None
) -> ImportResult:
    """Import a file, folder, pattern or set on the Hub as run `target` with the unique id `run_id`;
    without a target nothing is written, and there are counts and notes alone.

    An error leaves nothing behind. Raise DataError if nothing can be read or too much is left out,
    HubError, RunError if the target is not an empty folder.
    """
    plan = plan or ImportPlan()
    specs = read_yaml(Path(__file__).with_name("imported.yaml"))
    mark = fingerprint(
        _judge(specs["judge"], [])
    )  # the same for all imports: several can be trained on as one
    importer = Importer(plan, run_id, name, mark)
    if target is None:
        for _ in importer.records(source):
            pass
        return _result(None, importer)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: already exists and is not empty; choose another with --run DIR")
    try:
        with make_workspace(target.parent, ".import-") as space, ExitStack() as stack:
            folder = space / "run"
            folder.mkdir()
            files = {k: stack.enter_context(Appender(folder / name)) for k, name in FILES.items()}
            for record in importer.records(source):
                line = redact_record(record.model_dump_json(), importer.notes, pii=plan.pii)
                files[type(record)].write(line)
            stack.close()
            run = Run.write_manifest(folder, _manifest(specs["manifest"], source, importer))
            run.store_judge(mark, _judge(specs["judge"], importer.rewards))
            run.path.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
    return _result(Run.open(target), importer)


def _judge(fields: dict[str, Any], rewards: list[float]) -> JudgeSpec:
    highest = max([1.0, *rewards]) if rewards else 10.0
    return JudgeSpec.model_validate(fields | {"lowest": min([0.0, *rewards]), "highest": highest})


def _manifest(fields: dict[str, Any], source: str, importer: Importer) -> RunManifest:
    file, protocol = Path(source.removeprefix("hf://")).name, fields["protocol"]
    most = importer.most_turns
    protocol["turns"] = {"default": most, "min": 1, "max": most}
    if importer.count["with late system"]:
        protocol["speakers"]["system"] = {"role": "system"}
        protocol["steps"][0]["loop"].append({"id": "note", "speaker": "system", "say": ""})
    kind = "choice" if all(one.choices for one in importer.examples.values()) else "none"
    fields["task"] |= {"title": f"conversations imported from {file}", "source": {"file": file}}
    fields["task"] |= {"name": importer.name, "answer": {"kind": kind}}
    fields |= {"id": importer.run_id, "created": importer.ended, "version": __version__}
    fields |= {"turns": most, "samples": max(importer.samples.values())}
    fields |= {"source_revision": importer.digest, "extra": {"imported": file}}
    fields["mode"] = "thinking" if importer.count["with reasoning"] else "standard"
    made = RunManifest.model_validate(fields)
    marks = {"task": fingerprint(made.task), "protocol": fingerprint(made.protocol)}
    marks["cast"] = fingerprint({who: model.model for who, model in made.cast.items()})
    marks["specs"] = fingerprint(marks, importer.digest)
    return made.model_copy(update={"fingerprints": marks})


def _result(run: Run | None, importer: Importer) -> ImportResult:
    count, rewards, total = importer.count, importer.rewards, importer.count["conversations"]
    splits = Counter[str](importer.examples[key].split for key in importer.samples.elements())
    mean = f"{len(rewards):,}, mean {fmean(rewards):.6g}" if rewards else "none"
    facts = {
        "format": _listed(importer.formats),
        "conversations": f"{total:,} ({_listed(splits)})",
        "policy turns": f"{count['policy turns']:,} with {count['calls']:,} calls of tools",
        "rewards": mean,
        "questions": f"{len(importer.examples):,} in {len(importer.split_of):,} groups",
        **({"models": _listed(importer.models)} if importer.models else {}),
    }
    left_out, notes = importer.left_out.total(), list(_notes(importer, list(splits)))
    return ImportResult(run, total, len(rewards), len(importer.examples), left_out, facts, notes)


def _listed(counts: Counter[str]) -> str:
    shown = [f"{name} {count:,}" for name, count in counts.most_common(SHOWN)]
    more = len(counts) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _notes(importer: Importer, splits: Sequence[str]) -> Iterator[str]:
    failed, total = importer.count["failed"], importer.count["conversations"]
    yield from importer.left_out_lines()
    yield from (f"{number:,} {what}" for what, number in importer.notes.most_common() if number)
    if failed:
        yield f"{failed} conversations failed in the program around the model, not trained on"
    if without := total - len(importer.rewards) - failed:
        yield (
            f"{without} of {total} conversations have no reward; name it: --map reward=FIELD, or "
            "--rewards FILE --key NAME; or score them: convbench judge --judge RUBRIC@MODEL"
        )
    if len(importer.models) > 1 and importer.plan.policy is None:
        yield f"several models spoke ({_listed(importer.models)}); --policy MODEL learns one"
    if len(splits) == 1 and importer.plan.split_by is None:
        yield f"all are in {splits[0]}; eval needs a test split: --split-by group|time"
    if importer.metadata:
        yield f"stored as metadata, which no judge or trainer sees: {_listed(importer.metadata)}"
