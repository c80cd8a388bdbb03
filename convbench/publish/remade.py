"""A published folder made again from the records in it, and compared file by file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench import __version__
from convbench.errors import HubError
from convbench.formats.check import check_names, check_run
from convbench.hub.repo import Remote, fetch
from convbench.publish.folder import write_set
from convbench.publish.traces import FIRST, name_by_id
from convbench.store.folder_seal import FILE, check_folder, names_in

RUN = "run"
LARGEST = 16 << 30
"""Bytes of one file of a set that is downloaded to be verified."""


def verify_set(folder: Path) -> tuple[int, list[str]]:
    """Return (files compared, what is wrong): every file against its digest, then the card, the
    tables, specs and traces against what the records in `run/` give.

    Nothing is made of records that are not as they were. Raises RunError without a seal.
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
    """Whether two tables hold equal rows, written by whatever version of the library."""
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
    """Return the first line that differs, of a text."""
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
    """Copy a whole repository into a folder, its names and sizes checked. Raises HubError."""
    check_names(remote.repo, remote.files)
    for name, size in remote.files.items():
        if size > LARGEST:
            raise HubError(
                f"{remote.repo}: {name} has {size:,} bytes; expected at most {LARGEST:,}"
            )
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(fetch(remote, name).read_bytes())
