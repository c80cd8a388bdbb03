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
from convbench.hub.repo import Remote, fetch, look
from convbench.learn.sealed import counts_again, unequal_counts, unequal_rates
from convbench.options.report import ReportOptions
from convbench.publish.folder import write_set
from convbench.publish.traces import FIRST, name_by_id
from convbench.report.document import Document
from convbench.report.evaluated import misplaced_evaluations
from convbench.report.report import report
from convbench.report.sealed import differences, figures_of, options_of, unequal_pages
from convbench.store import Run, find_run
from convbench.store.checkpoint import RECIPE, TRAINING
from convbench.store.folder_seal import FILE, check_folder, names_in
from convbench.store.seal import FILE as SEALS
from convbench.store.seal import check_seals, seal

RUN = "run"
LARGEST = 16 << 30
"""Most bytes of one file of a dataset that is downloaded to be verified."""


def verify_set(folder: Path) -> tuple[int, list[str]]:
    """Return (number of files compared, problems) of a published dataset's folder. Every file is
    compared with its digest, then card, tables, specs and traces with those computed from `run/`.

    Nothing is computed from records that were changed. Raises RunError without a seal.
    """
    sealed = check_folder(folder, whole=True)
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
        write_set(folder / RUN, str(sealed.about.get("repo")), again, judge)
        if not (folder / FIRST).exists():
            name_by_id(again)
        problems += _compared(folder, again, str(sealed.about.get("version")))
    return sealed.files, problems


def _compared(folder: Path, again: Path, version: str) -> Iterator[str]:
    names = {name for name in names_in(folder) if not name.startswith(f"{RUN}/")}
    made = set(names_in(again))
    for name in sorted(made - names):
        yield f"{name}: is gone; the records give it"
    for name in sorted(names - made - {FILE, ".gitattributes"}):
        yield f"{name}: the records give no such file"
    by = "" if version == __version__ else f" (it was written by convbench {version})"
    for name in sorted(made & names):
        one, two = folder / name, again / name
        if one.read_bytes() != two.read_bytes() and not _same_rows(one, two):
            yield f"{name}: {_where(one, two)}differs from what the records give{by}"


def _same_rows(one: Path, two: Path) -> bool:
    """Return True if two parquet files hold equal tables, whatever library version wrote them."""
    if one.suffix != ".parquet":
        return False
    import pyarrow
    import pyarrow.parquet

    try:
        first: Any = pyarrow.parquet.read_table(one)
        second: Any = pyarrow.parquet.read_table(two)
    except (pyarrow.ArrowException, OSError, ValueError):
        return False
    return bool(first.equals(second))


def _where(one: Path, two: Path) -> str:
    """Return the number of the first line that differs, as `line N `; "" if they are not text."""
    if one.suffix == ".parquet":
        return ""
    try:
        first, second = (path.read_text(encoding="utf-8").splitlines() for path in (one, two))
    except UnicodeDecodeError:
        return ""
    pairs = enumerate(zip(first, second, strict=False), 1)
    number = next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)) + 1)
    return f"line {number} "


def download(remote: Remote, folder: Path) -> None:
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
        to.write_bytes(fetch(remote, name).read_bytes())


@dataclass
class Verified:
    """The result for one run, report, checkpoint, dataset or model."""

    what: str
    """Its kind (run, report, checkpoint, set or model) and path."""
    found: str
    """What was compared, in words."""
    problems: list[str] = field(default_factory=list)
    """What was changed, or differs from what the records give."""


@dataclass
class Verification:
    """The results for all that was verified."""

    target: str
    checked: list[Verified] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Return all problems, each with its kind and path."""
        return [f"{one.what}: {text}" for one in self.checked for text in one.problems]


def verify(
    target: str | None = None, revision: str | None = None, *, seal_anew: bool = False
) -> Verification:
    """Verify `target`, by default the newest run: a run with its evaluations, reports, checkpoints
    and published folder; one of these alone; or a dataset on the Hub. Calls no model.

    Raises RunError if it is none of them, HubError if it cannot be downloaded.
    """
    place = find_run(None).path if target is None else Path(target)
    result = Verification(str(place))
    if seal_anew:
        _seal_anew(place)
    if place.is_dir():
        result.checked += _folder(place)
    elif target is not None and target.count("/") == 1 and not place.exists():
        result.checked.append(_remote(target, revision))
    else:
        raise RunError(
            f"{target}: found no such folder; expected a run, checkpoint, report or published set "
            "here, or OWNER/NAME on the Hub"
        )
    return result


def _folder(place: Path) -> Iterator[Verified]:
    if (place / "run.json").is_file():
        yield from _run(place)
    elif (place / TRAINING).is_file() and (place / RECIPE).is_file():
        yield _checkpoint(place)
        if (place / "publish" / FILE).is_file():
            yield _model(place / "publish")
    elif (place / "run" / "run.json").is_file():
        yield _set(place)
    elif (place / FILE).is_file():
        yield _report(place)
    else:
        raise RunError(
            f"{place}: found no run.json, {TRAINING} or {FILE}; expected a run, checkpoint, "
            "report or published set"
        )


def _seal_anew(place: Path) -> None:
    if not (place / "run.json").is_file():
        raise RunError(f"--seal {place}: found no run.json; expected a run")
    run = Run.open(place)
    with run.lock():
        (place / SEALS).unlink(missing_ok=True)
        seal(place)


def _run(place: Path) -> Iterator[Verified]:
    """Verify a run's records, then the reports, checkpoints and published folder in it."""
    run = Run.open(place)
    records = {one.path: _records(one) for one in (run, *_cells(run))}
    for child, text in misplaced_evaluations(run):
        records[child.path].problems.append(text)
    yield from records.values()
    if any(one.problems for one in records.values()):
        return  # what was computed from other records cannot be compared
    for file in sorted(place.glob(f"reports/**/{FILE}")):
        yield _report(file.parent)
    for file in sorted(run.checkpoints.glob(f"*/{TRAINING}")):
        yield from _folder(file.parent)
    if (place / "publish" / FILE).is_file():
        yield _set(place / "publish")


def _cells(run: Run) -> Iterator[Run]:
    yield from run.children()
    for pattern in ("branches/run.json", "rounds/*/*/run.json"):
        for file in sorted(run.path.glob(pattern)):
            yield Run.open(file.parent)


def _records(run: Run) -> Verified:
    """Verify a run's records: compare them with their seals, and read every one."""
    made = Verified(f"run {run.path}", "")
    try:
        found = check_seals(run.path)
        talks = sum(1 for _ in run.conversations())
        verdicts = sum(1 for _ in run.verdicts())
        run.judge_specs()
    except ConvbenchError as error:
        made.problems.append(str(error))
        return made
    made.problems += found.problems
    made.found = (
        f"{talks:,} conversations, {verdicts:,} verdicts, {found.size:,} bytes in {found.files} "
        f"files; seal {found.head[:16] or 'none'}"
    )
    return made


def _report(folder: Path) -> Verified:
    """Verify a report: compare its files with their digests, its figures and pages with those
    computed from the records."""
    made = Verified(f"report {folder}", "")
    try:
        sealed = check_folder(folder)
        made.problems += sealed.problems
        made.found = f"{sealed.files} files"
        if made.problems:
            return made
        if sealed.kind != "report":
            made.problems.append(f"{FILE}: kind: found {sealed.kind!r}; expected report")
            return made
        options = options_of(sealed.about, folder)
        document, drawn = _made_again(options)
        again = figures_of(document)
        made.problems += differences(sealed.about.get("figures"), again)
        made.found += f", {sum(len(part['tables']) for part in again)} tables computed again"
        if drawn:
            made.problems += unequal_pages(document, folder, sealed.names)
        else:
            made.found += "; its pages hold pictures, and were not written again: no matplotlib"
    except ConvbenchError as error:
        made.problems.append(str(error))
    except (KeyError, TypeError, ValueError) as error:
        made.problems.append(f"{FILE}: is not a seal of a report ({type(error).__name__})")
    return made


def _made_again(options: ReportOptions) -> tuple[Document, bool]:
    """Return a report's document computed again, and whether it has its pictures."""
    try:
        return report(options).document, True
    except MissingDependency:
        return report(replace(options, plots=False)).document, False


@contextmanager
def _noting_errors(verified: Verified) -> Iterator[None]:
    """Record a ConvbenchError raised within the context as a problem."""
    try:
        yield
    except ConvbenchError as error:
        verified.problems.append(str(error))


def _checkpoint(folder: Path) -> Verified:
    """Verify a checkpoint: compare its files with their digests, and the counts of its training
    data with those of the records."""
    made = Verified(f"checkpoint {folder}", "")
    with _noting_errors(made):
        sealed = check_folder(folder)
        made.found, made.problems = f"{sealed.files} files", list(sealed.problems)
        if made.problems:
            return made
        again = counts_again(folder)
        if again is not None:
            made.problems += unequal_counts(folder, again)
        made.problems += unequal_rates(folder)
        counted = "its data was made by the learner" if again is None else "its data counted again"
        made.found = f"{sealed.files} files, {counted}"
    return made


def _set(folder: Path) -> Verified:
    made = Verified(f"set {folder}", "")
    with _noting_errors(made):
        files, made.problems = verify_set(folder)
        made.found = f"{files} files; card, tables and traces made again"
    return made


def _model(folder: Path) -> Verified:
    made = Verified(f"model {folder}", "")
    with _noting_errors(made):
        sealed = check_folder(folder, whole=True)
        made.found, made.problems = f"{sealed.files} files", list(sealed.problems)
    return made


def _remote(repo: str, revision: str | None) -> Verified:
    """Download a dataset and verify it. Raises HubError if it cannot be downloaded."""
    remote = look(repo, revision)
    if FILE not in remote.files:
        raise HubError(
            f"dataset {repo}: found no {FILE}; expected a set published by this version of "
            "convbench or a later one"
        )
    with tempfile.TemporaryDirectory(prefix="convbench-verify-") as space:
        place = Path(space) / "set"
        download(remote, place)
        made = _set(place)
    made.what = f"set {repo} at {remote.commit[:12]}"
    return made
