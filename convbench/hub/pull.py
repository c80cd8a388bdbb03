"""Pull a published dataset: download it, check it, and only then add it to the runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from convbench.catalog.citations import collect_citations
from convbench.errors import RunError
from convbench.hub.dataset import RECORDS
from convbench.hub.pull_check import check_names, check_run
from convbench.hub.repo import Remote, fetch_file, inspect_repo
from convbench.store import Run, refuse_latest
from convbench.store.jsonl import Appender, disk_error, write_atomic
from convbench.store.portable import make_portable
from convbench.store.scratch import make_workspace
from convbench.util.printable import make_printable

CITATION = "CITATION.bib"
"""In the pulled run's folder: BibTeX of its task's set, of the papers behind its specs, and of
convbench."""


@dataclass(frozen=True)
class PulledRun:
    """A run restored from the Hub."""

    run: Run
    repo: str
    commit: str


def pull_dataset(repo: str, path: Path | None = None, revision: str | None = None) -> PulledRun:
    """Restore the run in a dataset repository into a new directory and return it.

    `path` is the directory (default: `runs/NAME-COMMIT`). The dataset's specs are treated as data:
    functions of other packages are refused, addresses and files dropped, and limits set to ours.
    Raises HubError (unreachable, refused, or not a sound run) or RunError (directory), and then
    leaves nothing behind.
    """
    remote = inspect_repo(repo, revision)
    target = path or _default_folder(remote)
    _refuse_taken(target)
    refuse_latest(target)
    names = check_names(repo, remote.files)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with make_workspace(target.parent, ".pull-") as space:
            staging = space / "run"
            _copy_files(remote, names, staging)
            manifest = check_run(staging, f"dataset {repo}")
            run = Run(staging, manifest)
            cited = collect_citations([manifest], run.judge_specs().values())
            (staging / CITATION).write_text(f"{make_printable(cited.bibtex)}\n", encoding="utf-8")
            _write_origin(run, f"{repo}@{remote.commit}")
            for name in RECORDS:
                if (staging / name).exists():
                    with Appender(staging / name):
                        pass  # closing compresses long files
            if target.exists():
                target.rmdir()
            staging.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
    return PulledRun(Run.open(target), repo, remote.commit)


def _write_origin(run: Run, origin: str) -> None:
    """Rewrite the manifest and judges with only the trusted parts of their specs, and record the
    origin, whatever they claim."""
    for fingerprint, spec in run.judge_specs().items():
        (run.path / "judges" / f"{fingerprint}.json").unlink()
        run.store_judge(fingerprint, make_portable(spec))
    manifest = make_portable(run.manifest).model_copy(update={"pulled_from": origin})
    write_atomic(run.path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")


def _default_folder(remote: Remote) -> Path:
    return Path("runs") / f"{remote.repo.rpartition('/')[2]}-{remote.commit[:8]}"


def _refuse_taken(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise RunError(f"{target}: already exists; choose another with --run DIR")


def _copy_files(remote: Remote, names: list[str], folder: Path) -> None:
    """Download the run's files into a folder. Their names must have been checked."""
    for name in names:
        to = folder / name.removeprefix("run/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fetch_file(remote, name), to)
