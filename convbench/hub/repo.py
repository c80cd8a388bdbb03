"""Upload a folder to the Hub in one commit, and read what a repository holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import orjson

from convbench.errors import HubError
from convbench.hub.client import quietly, translating

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

Kind = Literal["dataset", "model"]
TRIES = 4
"""Tries of a commit that fails because of the Hub or the network."""
PAUSE = 1.0
"""Seconds before the second try; doubled for each further one."""
MOVED_ON = 412
"""The Hub's status for a commit whose parent is not the newest any more."""
BARE = frozenset({".gitattributes", "README.md"})
"""Files of an empty repository; it may be filled."""


@dataclass(frozen=True)
class Uploaded:
    """Result of an upload."""

    repo: str
    url: str
    commit: str
    created: bool
    """Whether the repository is new."""
    changed: bool
    """Whether there is a new commit; False if the repository held the same content already."""


def check_name(repo: str, kind: Kind = "dataset") -> None:
    """Raise HubError for an invalid repository name, before anything is written for it."""
    with translating(f"{kind} {repo!r}"):
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        validate_repo_id(repo)


def upload(
    repo: str,
    folder: Path,
    *,
    kind: Kind = "dataset",
    private: bool = False,
    mark: str = "run/run.json",
    message: str = "Publish with convbench",
) -> Uploaded:
    """Make the repository hold exactly the folder's files, in one commit.

    Files are sent first and the commit comes last: an error before it leaves the repository
    unchanged. A repository that holds something else is refused: its `mark` file must be that of
    the same run, in the very commit that this one follows. Raises HubError.
    """
    what = f"{kind} {repo}"
    with quietly(), translating(what, writing=True):
        from huggingface_hub import HfApi

        api = HfApi()
        api.whoami()
        found = _files(api, repo, kind)
        if found is not None:
            _same_owner(api, repo, kind, found, folder, mark)
        full = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True).repo_id
        there = api.repo_info(full, repo_type=kind)
        if private and not there.private:
            raise HubError(
                f"{what}: found a public repository; expected a private one (--private); make it "
                "private on the Hub, or choose another name"
            )
        old = _files(api, full, kind, there.sha) or ()
        _same_owner(api, full, kind, old, folder, mark, there.sha)
        info = _commit(api, full, kind, folder, old, message, there.sha)
    return Uploaded(full, _url(api, kind, full), info.oid, found is None, info.oid != there.sha)


def _url(api: HfApi, kind: Kind, repo: str) -> str:
    return f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"


def _files(
    api: HfApi, repo: str, kind: Kind, revision: str | None = None
) -> tuple[str, ...] | None:
    """Return the files of a repository, or None if it does not exist."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        full = repo if "/" in repo else f"{api.whoami()['name']}/{repo}"
        return tuple(api.list_repo_files(full, repo_type=kind, revision=revision))
    except RepositoryNotFoundError:
        return None


def _same_owner(
    api: HfApi,
    repo: str,
    kind: Kind,
    found: Sequence[str],
    folder: Path,
    mark: str,
    revision: str | None = None,
) -> None:
    """Raise HubError if the repository holds anything else than this run."""
    if set(found) <= BARE:
        return
    here = _id(folder / mark)
    there = None
    if mark in found:
        full = repo if "/" in repo else f"{api.whoami()['name']}/{repo}"
        file = api.hf_hub_download(full, mark, repo_type=kind, revision=revision)
        there = _id(Path(file))
    if there != here:
        raise HubError(
            f"{kind} {repo}: the name is taken: it holds "
            f"{f'run {there}' if there else 'something else'}, expected nothing or run {here}; "
            "choose another name"
        )


def _id(file: Path) -> object:
    """Return the id in a mark file, or None if it cannot be read."""
    try:
        found = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError:
        return None
    return found.get("id") if isinstance(found, dict) else None


def _commit(
    api: HfApi,
    repo: str,
    kind: Kind,
    folder: Path,
    old: Sequence[str],
    message: str,
    parent: str | None,
) -> CommitInfo:
    """Commit all files and deletions at once; try again after an error of the Hub's own.

    If a try's reply was lost, the next try finds no difference and makes no second commit. If
    another commit came in between, after `parent`, nothing is written. Raises HubError.
    """
    from httpx import TransportError
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.errors import HfHubHTTPError

    new = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix() for path in new}
    gone = [name for name in old if name not in names | {".gitattributes"}]
    for attempt in range(TRIES):
        operations = [
            CommitOperationAdd(path.relative_to(folder).as_posix(), str(path)) for path in new
        ] + [CommitOperationDelete(name) for name in gone]
        try:
            return api.create_commit(
                repo,
                operations,
                commit_message=message,
                repo_type=kind,
                num_threads=2,
                parent_commit=parent,
            )
        except (HfHubHTTPError, TransportError) as error:
            status = getattr(getattr(error, "response", None), "status_code", 500)
            if status == MOVED_ON:
                raise HubError(
                    f"{kind} {repo}: another commit came in between, so that nothing was written; "
                    "look at what it holds now, then give the command again or choose another name"
                ) from None
            if status < 500 or attempt == TRIES - 1:
                raise
            time.sleep(PAUSE * 2**attempt)
        gone = [name for name in gone if name in (_files(api, repo, kind) or ())]
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Remote:
    """A repository at one commit."""

    repo: str
    commit: str
    files: dict[str, int]
    """Path to size in bytes."""


def look(repo: str, revision: str | None = None) -> Remote:
    """Return the commit and the files of a dataset repository. Raises HubError."""
    with quietly(), translating(f"dataset {repo}"):
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        api = HfApi()
        commit = str(api.dataset_info(repo, revision=revision).sha)
        tree = api.list_repo_tree(repo, repo_type="dataset", revision=commit, recursive=True)
        files = {item.path: item.size for item in tree if isinstance(item, RepoFile)}
    return Remote(repo, commit, files)


def fetch(remote: Remote, name: str) -> Path:
    """Return a file of the repository, from the cache or the Hub. Raises HubError."""
    with quietly(), translating(f"dataset {remote.repo}"):
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(remote.repo, name, repo_type="dataset", revision=remote.commit))
