"""Publish a checkpoint as a model repository: weights, tokenizer, recipe, training log, and the
results of its evaluation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from convbench.errors import RunError
from convbench.hub.benchmark import RESULTS, results_yaml
from convbench.hub.card import mean_text
from convbench.hub.checkpoint_card import EvaluationResults, MeasureRow, is_hub_id, model_card
from convbench.hub.dataset import refuse_foreign_folder, replace_folder, single_judge
from convbench.hub.repo import UploadResult, check_name, upload_folder
from convbench.hub.safety import TEXT, refuse_secrets
from convbench.models.weights_path import folder_of
from convbench.reports.comparable import differences, question_differences
from convbench.reports.frame import Setting, read_settings
from convbench.reports.policies import Policy
from convbench.stats.estimates import Estimate
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.portable import portable_values
from convbench.store.run import Run
from convbench.store.scratch import make_workspace
from convbench.store.shape import read_object


def results_of(run: Run, checkpoint: Path, judge: str | None = None) -> EvaluationResults | None:
    """Return the results of a checkpoint's evaluation in this run: accuracy and a judge's reward,
    with paired differences to the run's own policy.

    The judge is `judge`, else the one that trained the checkpoint, else the only one. Differences
    are left out, with a note, if the two are not comparable. None if it was not evaluated or the
    evaluation has no conversations. Raise RunError for a judge without verdicts, or several of
    which none is chosen.
    """
    child = _find_evaluation(run, checkpoint)
    if child is None:
        return None
    split = child.manifest.split
    settings = read_settings([run, child], split, allow=True, skip_empty=True)
    found = [
        (s, policy) for s in settings for policy in s.policies if policy.run.path == child.path
    ]
    if not found:
        return None
    setting, ours = found[0]
    rows = setting.rows_of(ours)
    chosen = single_judge(child, list(ours.judges), judge or _reward_judge(checkpoint, ours))
    failed = int(rows["failed"].sum())
    notes = [f"Failed conversations: {failed}."] if failed else []
    base = setting.base_of(ours)
    unlike = ["Base has no conversations about these questions"]
    if base is not None:
        unlike = differences(base, ours) + question_differences(base.run, ours.run, split)
    if unlike:
        notes.append(f"Not set against Base: {'; '.join(unlike[:3])}.")
        base = None
    columns = [("accuracy", "Accuracy", "correct", 4)]
    columns += [("reward", "Reward", f"{chosen}/reward", 3)] if chosen else []
    means = {key: setting.mean(ours, column) for key, _, column, _ in columns}
    return EvaluationResults(
        split,
        child.manifest.protocol.name,
        len(rows),
        rows["group"].nunique(),
        chosen,
        tuple(
            _measure_row(setting, ours, base, head, column, digits)
            for key, head, column, digits in columns
            if means[key] is not None
        ),
        tuple(notes),
        {key: mean.mean for key, mean in means.items() if mean is not None},
    )


def _find_evaluation(run: Run, checkpoint: Path) -> Run | None:
    """Return the child run that evaluates this checkpoint, preferably the one with its name; None
    if there is none."""
    name = checkpoint.resolve().name
    children = [
        child
        for child in run.child_runs()
        if folder_of(child.manifest.checkpoint or "").name == name
    ]
    children.sort(key=lambda child: (child.path.name != name, child.path.name))
    return children[0] if children else None


def _reward_judge(checkpoint: Path, ours: Policy) -> str | None:
    """Return the judge whose reward trained the checkpoint, if it judged the evaluation too."""
    name = Checkpoint(checkpoint).training.get("judge")
    return name if name in ours.judges else None


def _measure_row(
    setting: Setting, ours: Policy, base: Policy | None, head: str, column: str, digits: int
) -> MeasureRow:
    before = setting.mean(base, column) if base else None
    change = setting.difference(ours, base, column) if base else None
    return MeasureRow(
        head,
        mean_text(before, digits) if before else None,
        mean_text(setting.mean(ours, column), digits),
        _change_text(change, digits) if change else None,
    )


def _change_text(difference: Estimate, digits: int) -> str:
    text = f"{difference.mean:+.{digits}f}"
    if difference.interval is None:
        return f"{text} ({difference.n} pairs)"
    low, high = (f"{end:+.{digits}f}" for end in difference.interval)
    return f"{text} ({low} to {high}; {difference.n} pairs)"


MODEL_FILES = re.compile(
    r"(adapter_)?model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
    r"|((generation_|adapter_|tokenizer_|processor_|preprocessor_)?config|tokenizer|vocab"
    r"|special_tokens_map|added_tokens|chat_template)\.json|(vocab|merges)\.txt"
    r"|(tokenizer|spiece|sentencepiece\.bpe)\.model|chat_template\.jinja"
)
"""Pattern of a model's files. Nothing else is published: no optimizer states, saved epochs, logs or
arguments."""
LISTS = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
"""Files of tokens, in which a text that looks like a path is a token."""
WHERE = (RECIPE, TRAINING)


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A published checkpoint, or the folder that a dry run wrote."""

    folder: Path
    files: Mapping[str, int]
    """Size in bytes by path."""
    notes: tuple[str, ...]
    uploaded: UploadResult | None
    """None on a dry run, which keeps the folder."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the finished checkpoint in a folder.

    Raise RunError if recipe, `training.json`, configuration or weights are missing, or if it is an
    adapter of a model that is not on the Hub.
    """
    if not folder.is_dir():
        raise RunError(f"--checkpoint {folder}: found no such folder")
    if not all((folder / name).is_file() for name in WHERE):
        raise RunError(
            f"--checkpoint {folder}: found no {' and '.join(WHERE)}; expected a finished "
            "checkpoint of `convbench train` (RUN/checkpoints/NAME)"
        )
    checkpoint = Checkpoint(folder)
    if not (checkpoint.recipe and checkpoint.training):
        raise RunError(f"--checkpoint {folder}: found nothing in {' or '.join(WHERE)}")
    _check_weights(checkpoint)
    return checkpoint


def _check_weights(checkpoint: Checkpoint) -> None:
    """Raise RunError if files are missing, or it is an adapter of a local model."""
    folder = checkpoint.folder
    kind = "adapter_model" if checkpoint.is_adapter else "model"
    index = folder / "model.safetensors.index.json"
    names = {f"{kind}.safetensors"}
    if index.is_file() and not checkpoint.is_adapter:
        placed = read_object(index).get("weight_map")
        names = set(map(str, placed.values())) if isinstance(placed, dict) and placed else names
    config = "adapter_config.json" if checkpoint.is_adapter else "config.json"
    lost = sorted(name for name in {config, *names} if not (folder / name).is_file())
    if lost:
        raise RunError(
            f"--checkpoint {folder}: found no {', '.join(lost)}; expected a checkpoint that "
            "transformers loads"
        )
    if checkpoint.is_adapter:
        base = read_object(folder / config).get("base_model_name_or_path")
        if not is_hub_id(base):
            raise RunError(
                f"--checkpoint {folder}: is an adapter of a local model, which readers do not "
                "have; train with --set lora.merge=true, or from a Hub id"
            )


def publish_checkpoint(
    checkpoint: Checkpoint,
    run: Run,
    repo: str,
    *,
    results: EvaluationResults | None = None,
    datasets: Sequence[str] = (),
    private: bool = False,
    dry_run: bool = False,
    folder: Path | None = None,
) -> PublishedCheckpoint:
    """Publish a checkpoint as model `repo` in one commit. Unchanged content makes no new commit.

    `run` is the run it was trained on, `datasets` are the repositories where that run was
    published, `results` its evaluation. A dry run writes `folder` (CHECKPOINT/publish) and sends
    nothing. Raises RunError (secrets or paths in the files, disk) or HubError.
    """
    check_name(repo, "model")
    target = folder or checkpoint.folder / "publish"
    if dry_run:
        refuse_foreign_folder(target, TRAINING)
    notes = _checkpoint_notes(checkpoint, run, results)
    with make_workspace(target.parent if dry_run else checkpoint.folder, ".publish-") as space:
        staging = space / "model"
        write_model_folder(checkpoint, run, repo, staging, results, datasets)
        files = {
            path.relative_to(staging).as_posix(): path.stat().st_size
            for path in sorted(staging.rglob("*"))
            if path.is_file()
        }
        if dry_run:
            replace_folder(staging, target)
            return PublishedCheckpoint(target, files, notes, None)
        done = upload_folder(repo, staging, kind="model", private=private, mark=TRAINING)
        return PublishedCheckpoint(checkpoint.folder, files, notes, done)


def write_model_folder(
    checkpoint: Checkpoint,
    run: Run,
    repo: str,
    folder: Path,
    results: EvaluationResults | None,
    datasets: Sequence[str],
) -> None:
    """Write the model's repository into a new folder: model files, recipe, `training.json`,
    README.md, results if known, and a seal.

    Raise RunError if the folder exists, a file cannot be written, or secrets or local paths are
    found; the files then stay.
    """
    try:
        folder.mkdir(parents=True)
        for name in _model_file_names(checkpoint.folder):
            _copy_file(checkpoint.folder / name, folder / name)
        parts = [str(part.get("run")) for part in checkpoint.training.get("runs", [])]
        named = {"run": run.manifest.id, **({"runs": parts[1:]} if parts else {})}
        recipe = portable_values({**checkpoint.recipe, **named})
        training = portable_values({"id": checkpoint.id, **checkpoint.training})
        (folder / RECIPE).write_text(yaml.safe_dump(recipe, sort_keys=False))
        (folder / TRAINING).write_text(json.dumps(training, indent=1) + "\n")
        text = model_card(
            repo,
            run.manifest,
            run.judge_specs(),
            recipe,
            training,
            results=results,
            datasets=datasets,
            adapter=checkpoint.is_adapter,
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        scores = None if results is None else results_yaml(results, datasets)
        if scores is not None:
            (folder / RESULTS).parent.mkdir()
            (folder / RESULTS).write_text(scores, encoding="utf-8")
    except OSError as error:
        raise disk_error(folder, error) from None
    refuse_secrets(folder)
    _refuse_paths(folder, (checkpoint.folder, run.path, Path.home()))


def _model_file_names(folder: Path) -> list[str]:
    """Return the sorted names of the model's files in a folder."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    more = folder.glob("additional_chat_templates/*.jinja")
    own_names = [name for name in names if MODEL_FILES.fullmatch(name)]
    return sorted([*own_names, *(path.relative_to(folder).as_posix() for path in more)])


def _copy_file(source: Path, to: Path) -> None:
    """Copy a file: a JSON configuration without local paths, another as a hard link if possible."""
    to.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".json" and source.name not in LISTS:
        value = read_object(source)
        portable = portable_values(value)
        if portable != value:
            to.write_text(json.dumps(portable, indent=2, ensure_ascii=False) + "\n")
            return
    try:
        os.link(source.resolve(), to)
    except OSError:  # another disk, or a file system without hard links
        shutil.copyfile(source, to)


def _refuse_paths(folder: Path, paths: Sequence[Path]) -> None:
    """Raise RunError if text files of a folder contain one of these local paths."""
    texts = {f"{path.resolve()}/" for path in paths} - {"//"}
    leaking_files = [
        path.relative_to(folder).as_posix()
        for path in _text_files(folder)
        if _contains_any(path, texts)
    ]
    if leaking_files:
        raise RunError(
            f"found paths of this machine in {', '.join(leaking_files)}, so nothing is published; "
            "take them out, then publish again"
        )


def _text_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in TEXT and path.name not in LISTS:
            yield path


def _contains_any(path: Path, texts: set[str]) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(part in text for part in texts)


def _checkpoint_notes(
    checkpoint: Checkpoint, run: Run, results: EvaluationResults | None
) -> tuple[str, ...]:
    notes = []
    if results is None:
        notes.append(
            "the card has no results; evaluate first: "
            f"convbench eval {checkpoint.folder} --run {run.path}"
        )
    if run.manifest.task.licence.id == "unknown":
        notes.append(f"the licence of {run.manifest.task.name} is unknown; check its terms")
    return tuple(notes)
