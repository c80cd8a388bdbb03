"""What differs from day to day and machine to machine, taken out of a text or a folder of files."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import zstandard

WHOLE = 200
"""Lines up to which a text is kept as it is; of a longer one its beginning and a hash."""
HEAD = 40
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"), "⟨TIME⟩"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?\b"), "⟨DATE⟩"),
    (re.compile(r"datetime\.datetime\([^)]*\)"), "⟨TIME⟩"),
    (re.compile(r"\b\d{8}-\d{6}(?:-[0-9a-f]{8})?\b"), "⟨RUN⟩"),
    # the marks around a transcript come of ids that are new each time, and may be digits alone
    (re.compile(r"(?<=[\[-])[0-9a-f]{12}(?=[\]>])"), "⟨HEX⟩"),
    (re.compile(r"(?<![.\w])(?=\w*[a-f])(?=\w*\d)[0-9a-f]{12,64}\b"), "⟨HEX⟩"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|seconds?|minutes?)\b"), "⟨SPAN⟩"),
    (re.compile(r'(_s|seconds|_mtime|"pid"|"at"|"began")": ?[\d.e+-]+'), r'\1": ⟨SPAN⟩'),
    (re.compile(r"\b\d[\d.,]*/s · "), "⟨RATE⟩ · "),
    # DuckDB shows how far a slow query is where Python has no file to run, as a worker of xdist
    (re.compile(r"(?:\s*\d+% ▕[^▏\n]*▏[^\n]*)+\s*"), ""),
    (re.compile(r" · \d+:\d\d(?::\d\d)?$", re.MULTILINE), " · ⟨SPAN⟩"),
)
UNTOLD = re.compile(r"(^|/)(\.(\w+\.)?lock|seals\.jsonl|\.[^/]*\.tmp)$|\.(png|svg|pdf)$")
"""Files whose bytes follow from dates, processes, or the fonts of a machine."""


@dataclass(frozen=True)
class Masks:
    """What differs from place to place too: folders by what stands for them, and the version."""

    folders: dict[Path, str]
    version: str

    def of(self, text: str) -> str:
        """Return a text without dates, paths, ids, durations and the version."""
        for folder, mask in self.folders.items():
            text = text.replace(str(folder), mask)
        text = text.replace(self.version, "⟨VERSION⟩")
        for pattern, mask in MASKS:
            text = pattern.sub(mask, text)
        return text


def shortened(text: str) -> str:
    """Return a text of up to `WHOLE` lines as it is, of a longer one the head, its number of lines
    and a hash of all."""
    lines = text.splitlines()
    if len(lines) <= WHOLE:
        return "\n".join(line.rstrip() for line in lines)
    head = "\n".join(line.rstrip() for line in lines[:HEAD])
    return f"{head}\n⟨{len(lines)} lines, {digest(text)}⟩"


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def texts_of(path: Path) -> str:
    """Return what a file holds as text: rows of parquet as lines, compressed files unpacked."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        table = pq.read_table(io.BytesIO(data))
        return "\n".join([str(table.schema.names), *(str(row) for row in table.to_pylist())])
    if path.suffix == ".zst":
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        data = reader.read()
    return data.decode("utf-8", "replace")


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file below a folder, by its name there."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns)
    return found


def changed(before: dict[str, tuple[int, int]], folder: Path) -> list[str]:
    """Return the names of the files that are new or changed since `before`, in order."""
    return sorted(name for name, stamp in stamps(folder).items() if before.get(name) != stamp)


def written(names: list[str], folder: Path, masks: Masks) -> str:
    """Return a line for each of these files: name and hash."""
    lines = []
    for name in names:
        untold = UNTOLD.search(name)
        content = "⟨UNTOLD⟩" if untold else digest(masks.of(texts_of(folder / name)))
        lines.append(f"{masks.of(name)}  {content}")
    return "\n".join(sorted(lines))
