"""Write what was imported as a run: records as they are read, then the manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import orjson
from pydantic import BaseModel

from convbench import __version__
from convbench.errors import RunError
from convbench.formats.importing import Importer
from convbench.formats.reading import ImportPlan, Seen
from convbench.formats.redact import redacted
from convbench.schema import (
    JudgeSpec,
    Loop,
    Metric,
    ModelConfig,
    ProtocolSpec,
    Reward,
    RunManifest,
    Speaker,
    Step,
    TaskSpec,
    fingerprint,
)
from convbench.schema.protocol import Turns
from convbench.schema.task import Answer, Source
from convbench.store import Run
from convbench.store.jsonl import Appender, disk_error
from convbench.store.scratch import make_workspace

SHOWN = 12
"""Most names that a note lists."""


@dataclass(frozen=True)
class ImportResult:
    """An imported run with its counts and notes; without a run if it was a dry run."""

    run: Run | None
    conversations: int
    rewards: int
    """Conversations with a reward."""
    examples: int
    """Questions."""
    left_out: int
    """Records that gave no conversation."""
    facts: dict[str, str] = field(default_factory=dict)
    """What was found, by name."""
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
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    mark = fingerprint(_reward_judge())
    importer = Importer(plan, run_id, name, mark, ended)
    if dry:
        for _ in importer.records(source):
            pass
        importer.check(source)
        return _result(None, importer)
    _refuse_taken(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with make_workspace(target.parent, ".import-") as space:
            folder = space / "run"
            folder.mkdir()
            _write_records(folder, importer, source)
            importer.check(source)
            if plan.split_by == "time":
                _split_examples(folder / "examples.jsonl", importer.latest_groups())
            run = Run.write_manifest(folder, _manifest(source, name, run_id, importer, ended))
            run.store_judge(mark, _reward_judge(importer.seen.rewards))
            run.path.replace(target)
    except OSError as error:
        _refuse_taken(target)
        raise disk_error(target, error) from None
    return _result(Run.open(target), importer)


def _refuse_taken(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: already exists and is not empty; choose another with --run DIR")


def _write_records(folder: Path, importer: Importer, source: str) -> None:
    with ExitStack() as stack:
        examples, conversations, verdicts = (
            stack.enter_context(Appender(folder / f"{stem}.jsonl"))
            for stem in ("examples", "conversations", "verdicts")
        )
        for record in importer.records(source):
            if record.is_new:
                examples.write(_line(record.example, importer))
            conversations.write(_line(record.conversation, importer))
            if record.verdict is not None:
                verdicts.write(record.verdict.model_dump_json().encode())


def _line(record: BaseModel, importer: Importer) -> bytes:
    """Return a record as a line, without keys and, if asked for, without what tells who somebody
    is."""
    text = record.model_dump_json()
    return redacted(text, importer.seen.notes, pii=importer.plan.pii)


def _split_examples(path: Path, tested: set[str]) -> None:
    """Write the examples again, those of these groups in test and all others in train."""
    lines = path.read_bytes().splitlines()
    path.unlink()
    with Appender(path) as file:
        for line in lines:
            example = orjson.loads(line)
            example["split"] = "test" if example["group_id"] in tested else "train"
            file.write(orjson.dumps(example))


def _reward_judge(rewards: list[float] | None = None) -> JudgeSpec:
    """Return the judge of imported rewards, which takes them unchanged. Its fingerprint is that of
    the default scale, so that several logs can be trained on as one."""
    least, most = (min(0.0, *rewards), max(1.0, *rewards)) if rewards else (0.0, 10.0)
    return JudgeSpec(
        name="imported",
        title="rewards that came with imported conversations",
        kind="human",
        metrics=(Metric(name="overall", label="reward"),),
        lowest=least,
        highest=most,
        reward=Reward(metric="overall", scale=1.0),
    )


def _manifest(source: str, name: str, run_id: str, importer: Importer, created: str) -> RunManifest:
    seen = importer.seen
    file = Path(source.removeprefix("hf://")).name
    task = TaskSpec(
        name=name,
        title=f"conversations imported from {file}",
        source=Source(file=file),
        answer=Answer(kind="choice" if seen.with_choices == seen.conversations else "none"),
        protocol="imported",
        judge="imported",
    )
    protocol = _protocol(seen)
    samples = max(importer.samples.values())
    regular = all(len(values) == 1 for values in seen.temperatures.values())
    cast = {
        "assistant": ModelConfig(model="imported"),
        "teacher": ModelConfig(model="script"),
    }
    marks = {
        "task": fingerprint(task),
        "protocol": fingerprint(protocol),
        "cast": fingerprint({who: member.model for who, member in cast.items()}),
    }
    marks["specs"] = fingerprint(marks, importer.digest)
    return RunManifest(
        id=run_id,
        kind="import",
        created=created,
        version=__version__,
        task=task,
        protocol=protocol,
        mode="thinking" if seen.has_thinking else "standard",
        turns=protocol.turns.max,
        samples=samples,
        temperatures=tuple(min(seen.temperatures[s]) for s in range(samples))
        if regular
        else (1.0,),
        seed=0,
        cast=cast,
        source_revision=importer.digest,
        fingerprints=marks,
        extra={"imported": file},
    )


def _protocol(seen: Seen) -> ProtocolSpec:
    steps = [Step(id="say", speaker="teacher"), Step(id="reply", speaker="assistant")]
    speakers = {"assistant": Speaker(policy=True), "teacher": Speaker()}
    if seen.has_late_system:
        speakers["system"] = Speaker(role="system")
        steps.append(Step(id="note", speaker="system", say=""))
    return ProtocolSpec(
        name="imported",
        title="conversations held elsewhere, as they were logged",
        turns=Turns(default=seen.most_turns, min=1, max=seen.most_turns),
        speakers=speakers,
        steps=(Loop(loop=tuple(steps), times="turns"),),
    )


def _result(run: Run | None, importer: Importer) -> ImportResult:
    seen = importer.seen
    return ImportResult(
        run,
        seen.conversations,
        len(seen.rewards),
        len(importer.agreed),
        sum(seen.left_out.values()),
        dict(_facts(importer)),
        list(_notes(importer)),
    )


def _facts(importer: Importer) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of what was found."""
    seen = importer.seen
    yield "format", _listed(seen.formats)
    yield "conversations", f"{seen.conversations:,} ({_listed(seen.splits)})"
    yield "policy turns", f"{seen.policy_turns:,} with {seen.calls:,} calls of tools"
    mean = sum(seen.rewards) / len(seen.rewards) if seen.rewards else 0
    yield "rewards", f"{len(seen.rewards):,}, mean {mean:.6g}" if seen.rewards else "none"
    yield "questions", f"{len(importer.agreed):,} in {len(importer.splits):,} groups"
    if seen.models:
        yield "models", _listed(seen.models)


def _listed(counts: Counter[str]) -> str:
    shown = [f"{name} {count:,}" for name, count in counts.most_common(SHOWN)]
    more = len(counts) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _notes(importer: Importer) -> Iterator[str]:
    """Yield a line for each thing that is not as one may expect."""
    seen = importer.seen
    yield from seen.left_out_lines()
    for what, count in seen.notes.most_common():
        if count:
            yield f"{count:,} {what}"
    without = seen.conversations - len(seen.rewards) - seen.failed
    if seen.failed:
        yield f"{seen.failed} conversations failed in the program around the model, not trained on"
    if without:
        yield (
            f"{without} of {seen.conversations} conversations have no reward; name it: --map "
            "reward=FIELD, or --rewards FILE --key NAME; or score them: convbench judge --judge "
            "RUBRIC@MODEL"
        )
    if len(seen.models) > 1 and importer.plan.policy is None:
        yield f"several models spoke ({_listed(seen.models)}); --policy MODEL learns one of them"
    if len(seen.splits) == 1 and importer.plan.split_by is None:
        only = next(iter(seen.splits))
        yield f"all are in {only}; eval needs a test split: --split-by group, or --split-by time"
    if seen.hidden:
        yield f"hidden fields, for critics and judges, not the policy: {_listed(seen.hidden)}"
    if seen.metadata:
        yield f"stored as metadata, which no judge or trainer sees: {_listed(seen.metadata)}"
    if len(importer.agreed) == seen.conversations:
        yield "every question has one sample; `train swift` needs several (example_id or group)"
