"""Pull a published dataset: download it, check it, and only then add it to the runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from convbench.errors import RunError
from convbench.formats.check import check_names, check_run
from convbench.hub.repo import Remote, fetch, look
from convbench.publish.folder import RECORDS
from convbench.store import Run, refuse_latest
from convbench.store.jsonl import Appender, disk_error, write_whole
from convbench.store.portable import portable
from convbench.store.scratch import workspace
from convbench.store.seal import seal


@dataclass(frozen=True)
class Pulled:
    """A run restored from the Hub."""

    run: Run
    repo: str
    commit: str


def pull(repo: str, path: Path | None = None, revision: str | None = None) -> Pulled:
    """Restore the run in a dataset repository into a new directory and return it.

    `path` is the directory (default: `runs/NAME-COMMIT`). The dataset's specs are treated as data:
    functions of other packages are refused, addresses and files dropped, and limits set to ours.
    Raises HubError (unreachable, refused, or not a sound run) or RunError (directory), and then
    leaves nothing behind.
    """
    remote = look(repo, revision)
    target = path or _default(remote)
    _refuse_taken(target)
    refuse_latest(target)
    names = check_names(repo, remote.files)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with workspace(target.parent, ".pull-") as space:
            place = space / "run"
            _download(remote, names, place)
            manifest = check_run(place, f"dataset {repo}")
            _mark(Run(place, manifest), f"{repo}@{remote.commit}")
            for name in RECORDS:
                if (place / name).exists():
                    with Appender(place / name):
                        pass  # closing compresses long files
            seal(place)
            if target.exists():
                target.rmdir()
            place.replace(target)
    except OSError as error:
        raise disk_error(target, error) from None
    return Pulled(Run.open(target), repo, remote.commit)


def _mark(run: Run, origin: str) -> None:
    """Rewrite the manifest and judges with only the trusted parts of their specs, and record the
    origin, whatever they claim."""
    for fingerprint, spec in run.judge_specs().items():
        (run.path / "judges" / f"{fingerprint}.json").unlink()
        run.keep_judge(fingerprint, portable(spec))
    manifest = portable(run.manifest).model_copy(update={"pulled_from": origin})
    write_whole(run.path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")


def _default(remote: Remote) -> Path:
    return Path("runs") / f"{remote.repo.rpartition('/')[2]}-{remote.commit[:8]}"


def _refuse_taken(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise RunError(f"{target}: there is something there already; name another with --run DIR")


def _download(remote: Remote, names: list[str], place: Path) -> None:
    """Download the run's files into a folder. Their names must have been checked."""
    for name in names:
        to = place / name.removeprefix("run/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fetch(remote, name), to)
