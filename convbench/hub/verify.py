"""Verify runs, reports, checkpoints and published datasets: compare files with their digests, and
figures and files with those computed again from the records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.errors import ConvbenchError, HubError, MissingDependency, RunError
from convbench.formats.check import check_names, check_run
from convbench.hub.dataset import FIRST, name_by_id, write_dataset
from convbench.learn.checkpoint_seal import counts_again, unequal_counts, unequal_rates
from convbench.options.report import ReportOptions
from convbench.reports.document import Document
from convbench.reports.report import create_report
from convbench.reports.verification import (
    figure_differences,
    figures_of,
    misplaced_evaluations,
    options_of,
    unequal_pages,
)
from convbench.sources.repo import Remote, fetch_file, inspect_repo
from convbench.store import Run, find_run
from convbench.store.checkpoint import RECIPE, TRAINING
from convbench.store.folder_seal import FILE, check_folder, names_in
from convbench.store.seal import FILE as SEALS
from convbench.store.seal import check_seals, seal_run

RUN = "run"
LARGEST = 16 << 30
"""Most bytes of one file of a dataset that is downloaded to be verified."""


def verify_dataset(folder: Path) -> tuple[int, list[str]]:
    """Return (number of files compared, problems) of a published dataset's folder; no problem is an
    empty list.

    Every file is compared with its digest. Only if all agree, card, tables, specs and traces are
    compared with those computed from `run/`. Raise RunError without a seal.
    """
    sealed = check_folder(folder, refuse_extra=True)
    problems = list(sealed.problems)
    if problems:
        return sealed.files, problems
    try:
        sizes = {name: (folder / name).stat().st_size for name in names_in(folder)}
        check_names(str(folder), sizes)
        check_run(folder / RUN, str(folder))
    except HubError as error:
        return sealed.files, [*problems, str(error)]
    with tempfile.TemporaryDirectory(prefix="convbench-verify-") as space:
        again = Path(space) / "set"
        again.mkdir()
        judge = sealed.about.get("judge")
        write_dataset(folder / RUN, str(sealed.about.get("repo")), again, judge)
        if not (folder / FIRST).exists():
            name_by_id(again)
        problems += _compare_files(folder, again, str(sealed.about.get("version")))
    return sealed.files, problems


def _compare_files(folder: Path, again: Path, version: str) -> Iterator[str]:
    names = {name for name in names_in(folder) if not name.startswith(f"{RUN}/")}
    computed = set(names_in(again))
    for name in sorted(computed - names):
        yield f"{name}: is missing; the records produce it"
    for name in sorted(names - computed - {FILE, ".gitattributes"}):
        yield f"{name}: the records do not produce this file"
    by = "" if version == __version__ else f" (it was written by convbench {version})"
    for name in sorted(computed & names):
        published_file, computed_file = folder / name, again / name
        if published_file.read_bytes() != computed_file.read_bytes() and not _same_rows(
            published_file, computed_file
        ):
            where = _first_difference(published_file, computed_file)
            yield f"{name}: {where}differs from what the records give{by}"


def _same_rows(path: Path, other_path: Path) -> bool:
    """Return True if two parquet files hold equal tables, whatever library version wrote them."""
    if path.suffix != ".parquet":
        return False
    import pyarrow
    import pyarrow.parquet

    try:
        first: Any = pyarrow.parquet.read_table(path)
        second: Any = pyarrow.parquet.read_table(other_path)
    except (pyarrow.ArrowException, OSError, ValueError):
        return False
    return bool(first.equals(second))


def _first_difference(file: Path, other_file: Path) -> str:
    """Return the number of the first line that differs, as `line N `; "" if they are not text."""
    if file.suffix == ".parquet":
        return ""
    try:
        first, second = (
            path.read_text(encoding="utf-8").splitlines() for path in (file, other_file)
        )
    except UnicodeDecodeError:
        return ""
    pairs = enumerate(zip(first, second, strict=False), 1)
    number = next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)) + 1)
    return f"line {number} "


def download_dataset(remote: Remote, folder: Path) -> None:
    """Download all files of a repository into a folder, after checking their names and sizes.
    Raises HubError."""
    check_names(remote.repo, remote.files)
    for name, size in remote.files.items():
        if size > LARGEST:
            raise HubError(
                f"{remote.repo}: {name} has {size:,} bytes; expected at most {LARGEST:,}"
            )
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(fetch_file(remote, name).read_bytes())


@dataclass
class VerificationItem:
    """The result for one run, report, checkpoint, dataset or model."""

    what: str
    """Its kind (run, report, checkpoint, set or model) and path."""
    summary: str
    """What was compared, in words."""
    problems: list[str] = field(default_factory=list)
    """What was changed, or differs from what the records give."""


@dataclass
class Verification:
    """The results for all that was verified."""

    target: str
    checked: list[VerificationItem] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Return all problems as `KIND PATH: PROBLEM`, in the order of the check; empty if there
        are none."""
        return [f"{item.what}: {text}" for item in self.checked for text in item.problems]


def verify_target(
    target: str | None = None, revision: str | None = None, *, seal_anew: bool = False
) -> Verification:
    """Verify `target`, by default the newest run: a run with its evaluations, reports, checkpoints
    and published folder; one of these alone; or a dataset on the Hub. Return the results.

    Problems are in the result, not raised. No model is called. With `seal_anew` the run's seals are
    first written anew. Raise RunError if it is none of them, HubError if it cannot be downloaded.
    """
    path = find_run(None).path if target is None else Path(target)
    result = Verification(str(path))
    if seal_anew:
        _seal_anew(path)
    if path.is_dir():
        result.checked += _verify_folder(path)
    elif target is not None and target.count("/") == 1 and not path.exists():
        result.checked.append(_verify_remote(target, revision))
    else:
        raise RunError(
            f"{target}: found no such folder; expected a run, checkpoint, report or published set "
            "here, or OWNER/NAME on the Hub"
        )
    return result


def _verify_folder(folder: Path) -> Iterator[VerificationItem]:
    if (folder / "run.json").is_file():
        yield from _verify_run(folder)
    elif (folder / TRAINING).is_file() and (folder / RECIPE).is_file():
        yield _verify_checkpoint(folder)
        if (folder / "publish" / FILE).is_file():
            yield _verify_model(folder / "publish")
    elif (folder / "run" / "run.json").is_file():
        yield _verify_dataset_folder(folder)
    elif (folder / FILE).is_file():
        yield _verify_report(folder)
    else:
        raise RunError(
            f"{folder}: found no run.json, {TRAINING} or {FILE}; expected a run, checkpoint, "
            "report or published set"
        )


def _seal_anew(folder: Path) -> None:
    if not (folder / "run.json").is_file():
        raise RunError(f"--seal {folder}: found no run.json; expected a run")
    run = Run.open(folder)
    with run.lock():
        (folder / SEALS).unlink(missing_ok=True)
        seal_run(folder)


def _verify_run(folder: Path) -> Iterator[VerificationItem]:
    """Verify a run's records, then the reports, checkpoints and published folder in it."""
    run = Run.open(folder)
    records = {item.path: _verify_records(item) for item in (run, *_inner_runs(run))}
    for child, text in misplaced_evaluations(run):
        records[child.path].problems.append(text)
    yield from records.values()
    if any(item.problems for item in records.values()):
        return  # what was computed from other records cannot be compared
    for file in sorted(folder.glob(f"reports/**/{FILE}")):
        yield _verify_report(file.parent)
    for file in sorted(run.checkpoints_folder.glob(f"*/{TRAINING}")):
        yield from _verify_folder(file.parent)
    if (folder / "publish" / FILE).is_file():
        yield _verify_dataset_folder(folder / "publish")


def _inner_runs(run: Run) -> Iterator[Run]:
    yield from run.child_runs()
    for pattern in ("branches/run.json", "rounds/*/*/run.json"):
        for file in sorted(run.path.glob(pattern)):
            yield Run.open(file.parent)


def _verify_records(run: Run) -> VerificationItem:
    """Verify a run's records: compare them with their seals, and read every one."""
    item = VerificationItem(f"run {run.path}", "")
    try:
        seals = check_seals(run.path)
        talks = sum(1 for _ in run.conversations())
        verdicts = sum(1 for _ in run.verdicts())
        run.judge_specs()
    except ConvbenchError as error:
        item.problems.append(str(error))
        return item
    item.problems += seals.problems
    item.summary = (
        f"{talks:,} conversations, {verdicts:,} verdicts, {seals.size:,} bytes in {seals.files} "
        f"files; seal {seals.head[:16] or 'none'}"
    )
    return item


def _verify_report(folder: Path) -> VerificationItem:
    """Verify a report: compare its files with their digests, its figures and pages with those
    computed from the records."""
    item = VerificationItem(f"report {folder}", "")
    try:
        sealed = check_folder(folder)
        item.problems += sealed.problems
        item.summary = f"{sealed.files} files"
        if item.problems:
            return item
        if sealed.kind != "report":
            item.problems.append(f"{FILE}: kind: found {sealed.kind!r}; expected report")
            return item
        options = options_of(sealed.about, folder)
        document, drawn = _compute_document(options)
        again = figures_of(document)
        item.problems += figure_differences(sealed.about.get("figures"), again)
        item.summary += f", {sum(len(part['tables']) for part in again)} tables recomputed"
        if drawn:
            item.problems += unequal_pages(document, folder, sealed.names)
        else:
            item.summary += "; its pages hold pictures, and were not written again: no matplotlib"
    except ConvbenchError as error:
        item.problems.append(str(error))
    except (KeyError, TypeError, ValueError) as error:
        item.problems.append(f"{FILE}: is not a seal of a report ({type(error).__name__})")
    return item


def _compute_document(options: ReportOptions) -> tuple[Document, bool]:
    """Return a report's document computed again, and whether it has its pictures."""
    try:
        return create_report(options).document, True
    except MissingDependency:
        return create_report(replace(options, plots=False)).document, False


@contextmanager
def _noting_errors(verified: VerificationItem) -> Iterator[None]:
    """Record a ConvbenchError raised within the context as a problem."""
    try:
        yield
    except ConvbenchError as error:
        verified.problems.append(str(error))


def _verify_checkpoint(folder: Path) -> VerificationItem:
    """Verify a checkpoint: compare its files with their digests, and the counts of its training
    data with those of the records."""
    item = VerificationItem(f"checkpoint {folder}", "")
    with _noting_errors(item):
        sealed = check_folder(folder)
        item.summary, item.problems = f"{sealed.files} files", list(sealed.problems)
        if item.problems:
            return item
        again = counts_again(folder)
        if again is not None:
            item.problems += unequal_counts(folder, again)
        item.problems += unequal_rates(folder)
        counted = "its data was made by the learner" if again is None else "its data counted again"
        item.summary = f"{sealed.files} files, {counted}"
    return item


def _verify_dataset_folder(folder: Path) -> VerificationItem:
    item = VerificationItem(f"set {folder}", "")
    with _noting_errors(item):
        files, item.problems = verify_dataset(folder)
        item.summary = f"{files} files; card, tables and traces recomputed"
    return item


def _verify_model(folder: Path) -> VerificationItem:
    item = VerificationItem(f"model {folder}", "")
    with _noting_errors(item):
        sealed = check_folder(folder, refuse_extra=True)
        item.summary, item.problems = f"{sealed.files} files", list(sealed.problems)
    return item


def _verify_remote(repo: str, revision: str | None) -> VerificationItem:
    """Download a dataset and verify it. Raises HubError if it cannot be downloaded."""
    remote = inspect_repo(repo, revision)
    if FILE not in remote.files:
        raise HubError(
            f"dataset {repo}: found no {FILE}; expected a set published by this version of "
            "convbench or a later one"
        )
    with tempfile.TemporaryDirectory(prefix="convbench-verify-") as space:
        folder = Path(space) / "set"
        download_dataset(remote, folder)
        item = _verify_dataset_folder(folder)
    item.what = f"set {repo} at {remote.commit[:12]}"
    return item
