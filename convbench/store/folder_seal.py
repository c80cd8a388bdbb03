"""Write and check `seal.json` of a folder: a digest of every file, and the inputs from which the
folder can be made again for comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from convbench.errors import RunError
from convbench.schema import canonical_json
from convbench.store.jsonl import disk_error, write_atomic
from convbench.store.seal import file_digest
from convbench.store.shape import read_bytes, read_object

FILE = "seal.json"
Kind = Literal["set", "model", "checkpoint", "report"]


@dataclass(frozen=True, slots=True)
class FolderSeal:
    """Contents of a `seal.json`, and how the folder differs from it."""

    kind: str
    about: Mapping[str, Any]
    """Inputs from which the folder was made."""
    problems: tuple[str, ...]
    """One line for each file that differs; empty if none does."""
    names: tuple[str, ...]
    """Files that it covers, as paths within the folder."""

    @property
    def files(self) -> int:
        """Return the number of files that it covers."""
        return len(self.names)


def seal_folder(folder: Path, kind: Kind, names: Iterable[str], about: Mapping[str, Any]) -> None:
    """Write `seal.json` for these files, paths within the folder, in place of an earlier seal.

    Its keys are `kind`, `about`, `files` (hex SHA-256 by path, sorted; the seal itself is left out)
    and `sha256` of the other three. Equal files give equal text. Raises RunError if a file cannot
    be read or the seal cannot be written.
    """
    try:
        files = {name: file_digest(folder / name) for name in sorted(set(names) - {FILE})}
    except OSError as error:
        raise disk_error(folder, error) from None
    content = {"kind": kind, "about": dict(about), "files": files}
    write_atomic(folder / FILE, _seal_text({**content, "sha256": _content_digest(content)}))


def names_in(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it and with `/`, in no fixed order.

    Hidden files, links to files and `seal.json` itself are included. A missing folder gives an
    empty list.
    """
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def check_folder(folder: Path, *, refuse_extra: bool = False) -> FolderSeal:
    """Compare a folder with its seal and return the seal, with one line in `problems` for each
    difference.

    Missing, changed and unreadable files and a changed `seal.json` are problems; with
    `refuse_extra` so is a file that the seal does not cover, except `.gitattributes`. Raises
    RunError if there is no seal or it cannot be parsed, never for a difference.
    """
    path = folder / FILE
    content = read_object(path)
    if not content:
        raise RunError(f"{path}: found no seal; expected one, as convbench writes it")
    same = read_bytes(path) in (
        _seal_text(content),
        _old_seal_text(content),
    )  # else somebody else wrote it
    recorded_digest = content.pop("sha256", None)
    files, about = content.get("files"), content.get("about")
    if not isinstance(files, dict) or not isinstance(about, dict):
        raise RunError(f"{path}: found no files or about; expected a seal")
    problems = (
        []
        if same and recorded_digest == _content_digest(content)
        else [f"{FILE}: changed since it was written"]
    )
    for name, digest in files.items():
        problems += _file_problems(folder, str(name), digest)
    if refuse_extra:
        known = {*files, FILE, ".gitattributes"}
        extra = sorted(set(names_in(folder)) - known)
        problems += [f"{name}: was added after the folder was sealed" for name in extra]
    return FolderSeal(str(content.get("kind")), about, tuple(problems), tuple(files))


def _file_problems(folder: Path, name: str, digest: object) -> list[str]:
    path = folder / name
    if ".." in Path(name).parts or Path(name).is_absolute() or path.is_symlink():
        return [f"{FILE}: found {name!r:.80}, which is no file of the folder"]
    if not path.is_file():
        return [f"{name}: is missing"]
    try:
        same = file_digest(path) == digest
    except OSError as error:
        return [f"{name}: cannot be read: {error.strerror or error}"]
    return [] if same else [f"{name}: changed since it was written"]


def _seal_text(value: Mapping[str, Any], *, ordered: bool = True) -> bytes:
    """Return the text of a seal. Keys are sorted, so that no two lines can be swapped."""
    return (json.dumps(value, indent=1, ensure_ascii=False, sort_keys=ordered) + "\n").encode()


def _old_seal_text(value: Mapping[str, Any]) -> bytes:
    """Return the text of a seal as earlier versions wrote it, `about` in its original order."""
    names = [name for name in ("kind", "about", "files", "sha256") if name in value]
    files = value.get("files")
    in_order = {"files": dict(sorted(files.items()))} if isinstance(files, dict) else {}
    return _seal_text({**{name: value[name] for name in names}, **in_order}, ordered=False)


def _content_digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(value)).encode()).hexdigest()
