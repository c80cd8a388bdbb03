"""The local Hub's repositories: files, commits, branches and tags, all in memory."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath

GITATTRIBUTES = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"
_LFS_SUFFIXES = (
    ".7z .arrow .avro .bin .bz2 .gz .h5 .jpeg .jpg .mp4 .npy .npz .onnx .parquet .png .pt .pth"
    " .safetensors .tar .tgz .wav .webp .zip .zst"
)
LFS_SUFFIXES = frozenset(_LFS_SUFFIXES.split())
LFS_SIZE = 10 * 2**20
"""Bytes from which any file goes to LFS, as on the Hub."""


@dataclass(frozen=True)
class File:
    """One version of one file."""

    data: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        """Digest of the content: the LFS object's name."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pointer(self) -> bytes:
        """What git stores in place of an LFS file."""
        size = len(self.data)
        return (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {size}\n"
        ).encode()

    @cached_property
    def blob(self) -> str:
        """The git blob id, of the pointer for an LFS file."""
        content = self.pointer if self.lfs else self.data
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def etag(self) -> str:
        """What the Hub sends as ETag, and compares with an upload to find it unchanged."""
        return self.sha256 if self.lfs else self.blob


def object_id(text: str) -> str:
    """An id of the Hub's form that only depends on `text`."""
    return hashlib.sha1(text.encode()).hexdigest()


def file_for(path: str, data: bytes) -> File:
    """A file as the Hub would store it under `path`."""
    return File(data, lfs=goes_to_lfs(path, data[:512], len(data)))


def goes_to_lfs(path: str, sample: bytes, size: int) -> bool:
    """Whether the Hub stores a file in LFS: by its name, size, or binary content."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in LFS_SUFFIXES or size >= LFS_SIZE or b"\0" in sample


@dataclass(frozen=True)
class Commit:
    """One commit with its whole tree."""

    sha: str
    parent: str | None
    title: str
    message: str
    author: str
    files: Mapping[str, File]
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}.000Z")

    def folders(self) -> set[str]:
        """Every folder that holds a file, at any depth."""
        return {str(p) for path in self.files for p in list(PurePosixPath(path).parents)[:-1]}


@dataclass
class Repo:
    """A dataset or model repository."""

    type: str
    """"dataset", "model" or "space"."""
    id: str
    private: bool = False
    gated: bool = False
    granted: set[str] = field(default_factory=set)
    """Users with access to a gated repository, beside its owner."""
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Uploaded LFS content by sha256, committed or not."""

    @property
    def namespace(self) -> str:
        """The user or organisation that owns it."""
        return self.id.partition("/")[0]

    @property
    def head(self) -> Commit:
        """The newest commit of main."""
        return self.commits[self.branches["main"]]

    def find(self, revision: str) -> Commit | None:
        """The commit of a branch, tag, full ref or sha."""
        name = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        sha = self.branches.get(name) or self.tags.get(name) or name
        return self.commits.get(sha)

    def history(self, commit: Commit) -> Iterator[Commit]:
        """`commit` and its ancestors, newest first."""
        current: Commit | None = commit
        while current is not None:
            yield current
            current = self.commits.get(current.parent or "")

    def commit(
        self,
        files: Mapping[str, File],
        title: str,
        *,
        message: str = "",
        author: str = "system",
        branch: str = "main",
    ) -> Commit:
        """Make `files` the whole tree of a new commit on `branch`, with a new sha."""
        parent = self.branches.get(branch)
        commit = Commit(secrets.token_hex(20), parent, title, message, author, dict(files))
        self.commits[commit.sha] = commit
        self.branches[branch] = commit.sha
        self.objects |= {f.sha256: f.data for f in files.values() if f.lfs}
        return commit


def new_repo(kind: str, repo_id: str, *, private: bool = False) -> Repo:
    """A repository with the Hub's initial commit (`.gitattributes`)."""
    repo = Repo(kind, repo_id, private=private)
    repo.commit({".gitattributes": File(GITATTRIBUTES)}, "initial commit")
    return repo
