"""Upload a folder to the Hub in one commit, read a repository, and list repositories in a
collection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import orjson

from convbench.errors import HubError
from convbench.util.hub import first_line, quiet_clients, translate_errors

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

Kind = Literal["dataset", "model"]
COMMIT_TRIES = 4
"""Tries of a commit that fails because of the Hub or the network."""
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubled for each further one."""
PARENT_CHANGED = 412
"""The Hub's status for a commit whose parent is not the newest any more."""
EMPTY_REPO_FILES = frozenset({".gitattributes", "README.md"})
"""Files of an empty repository; it may be filled."""


@dataclass(frozen=True)
class UploadResult:
    """Result of an upload."""

    repo: str
    url: str
    commit: str
    created: bool
    """Whether the repository is new."""
    changed: bool
    """Whether there is a new commit; False if the repository held the same content already."""


def check_name(repo: str, kind: Kind = "dataset") -> None:
    """Raise HubError for an invalid repository name; else return None. The Hub is not asked."""
    with translate_errors(f"{kind} {repo!r}"):
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        validate_repo_id(repo)


def upload_folder(
    repo: str,
    folder: Path,
    *,
    kind: Kind = "dataset",
    private: bool = False,
    mark: str = "run/run.json",
    message: str = "Publish with convbench",
) -> UploadResult:
    """Make the repository hold exactly the folder's files, in one commit; return its URL and that
    commit.

    It is created if it is missing; `.gitattributes` stays. Without any difference there is no new
    commit (`changed` is False). An error leaves the files as they were. Raise HubError for a
    repository that holds something else (the `id` in its `mark` file differs from the folder's), is
    public despite `private`, or changed meanwhile, and for errors of the Hub.
    """
    what = f"{kind} {repo}"
    with quiet_clients(), translate_errors(what, writing=True):
        from huggingface_hub import HfApi

        api = HfApi()
        api.whoami()
        files = _repo_files(api, repo, kind)
        if files is not None:
            _check_owner(api, repo, kind, files, folder, mark)
        full = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True).repo_id
        remote = api.repo_info(full, repo_type=kind)
        if private:
            _refuse_public(what, "repository", remote.private)
        old = _repo_files(api, full, kind, remote.sha) or ()
        _check_owner(api, full, kind, old, folder, mark, remote.sha)
        info = _commit_folder(api, full, kind, folder, old, message, remote.sha)
    return UploadResult(
        full, _repo_url(api, kind, full), info.oid, files is None, info.oid != remote.sha
    )


def _refuse_public(what: str, kind: str, is_private: bool | None) -> None:
    """Raise HubError unless it is private, which the user asked for."""
    if not is_private:
        raise HubError(
            f"{what}: found a public {kind}; expected a private one (--private); make it "
            "private on the Hub, or choose another name"
        )


def check_upload(
    repo: str, folder: Path, *, private: bool = False, mark: str = "run/run.json"
) -> None:
    """Raise HubError if `upload_folder` would be refused, as the dataset repository and the
    folder's card are now; else return None. Nothing is written.

    A repository that does not exist passes: whether it may be created shows when it is.
    """
    what = f"dataset {repo}"
    with quiet_clients(), translate_errors(what, writing=True):
        from huggingface_hub import HfApi, get_session
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        api = HfApi()
        card = {"content": (folder / "README.md").read_text("utf-8"), "repoType": "dataset"}
        reply = get_session().post(f"{api.endpoint}/api/validate-yaml", json=card)
        if reply.status_code == 400:
            problem = first_line(reply.json()["errors"][0]["message"])
            raise HubError(f"{what}: the Hub refuses its card: {problem}")
        hf_raise_for_status(reply)
        files = _repo_files(api, repo, "dataset")
        if files is not None:
            _check_owner(api, repo, "dataset", files, folder, mark)
            if private:
                _refuse_public(what, "repository", api.dataset_info(repo).private)


def own_namespaces() -> tuple[str, ...]:
    """Return the namespaces of this token's user: the own name, then those of organisations. Raises
    HubError without a valid token."""
    with quiet_clients(), translate_errors("the Hub"):
        from huggingface_hub import HfApi

        user = HfApi().whoami()
    return (str(user["name"]), *(str(group["name"]) for group in user.get("orgs", ())))


def update_collection(
    namespace: str, title: str, about: str, notes: Mapping[str, str], *, private: bool = False
) -> str:
    """Make the namespace's collection of this title hold these datasets; return its URL.

    It is created if it is missing, with the description `about`. `notes` has the datasets and what
    is written beside each. Other items stay. Raise HubError if it is public despite `private`, and
    for errors of the Hub.
    """
    what = f"collection {namespace}/{title}"
    with quiet_clients(), translate_errors(what, writing=True):
        from huggingface_hub import HfApi

        api = HfApi()
        collection = api.create_collection(
            title, namespace=namespace, description=about, private=private, exists_ok=True
        )
        if private:
            _refuse_public(what, "collection", collection.private)
        present = {item.item_id for item in collection.items}
        for repo, note in notes.items():
            if repo not in present:
                api.add_collection_item(collection.slug, repo, "dataset", note=note, exists_ok=True)
        return collection.url


def _repo_url(api: HfApi, kind: Kind, repo: str) -> str:
    return f"{api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"


def _repo_files(
    api: HfApi, repo: str, kind: Kind, revision: str | None = None
) -> tuple[str, ...] | None:
    """Return the files of a repository, or None if it does not exist."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        full = repo if "/" in repo else f"{api.whoami()['name']}/{repo}"
        return tuple(api.list_repo_files(full, repo_type=kind, revision=revision))
    except RepositoryNotFoundError:
        return None


def _check_owner(
    api: HfApi,
    repo: str,
    kind: Kind,
    files: Sequence[str],
    folder: Path,
    mark: str,
    revision: str | None = None,
) -> None:
    """Raise HubError if the repository holds anything else than this run."""
    if set(files) <= EMPTY_REPO_FILES:
        return
    local_id = _run_id(folder / mark)
    remote_id = None
    if mark in files:
        full = repo if "/" in repo else f"{api.whoami()['name']}/{repo}"
        file = api.hf_hub_download(full, mark, repo_type=kind, revision=revision)
        remote_id = _run_id(Path(file))
    if remote_id != local_id:
        raise HubError(
            f"{kind} {repo}: the name is taken: it holds "
            f"{f'run {remote_id}' if remote_id else 'something else'}, expected nothing or run "
            f"{local_id}; "
            "choose another name"
        )


def _run_id(file: Path) -> object:
    """Return the id in a mark file, or None if it cannot be read."""
    try:
        record = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError:
        return None
    return record.get("id") if isinstance(record, dict) else None


def _commit_folder(
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
    for attempt in range(COMMIT_TRIES):
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
            if status == PARENT_CHANGED:
                raise HubError(
                    f"{kind} {repo}: another commit was made in between, so nothing was written; "
                    "check what the repository holds, then run the command again or choose another "
                    "name"
                ) from None
            if status < 500 or attempt == COMMIT_TRIES - 1:
                raise
            time.sleep(FIRST_PAUSE * 2**attempt)
        gone = [name for name in gone if name in (_repo_files(api, repo, kind) or ())]
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Remote:
    """A repository at one commit."""

    repo: str
    commit: str
    files: dict[str, int]
    """Path to size in bytes."""


def inspect_repo(repo: str, revision: str | None = None) -> Remote:
    """Return a dataset's commit that `revision` (None: the main branch) resolves to, and the files
    in it.

    `files` maps each file's path in the repository to its size in bytes; an empty repository has
    none. Raise HubError if the dataset cannot be read.
    """
    with quiet_clients(), translate_errors(f"dataset {repo}"):
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        api = HfApi()
        commit = str(api.dataset_info(repo, revision=revision).sha)
        tree = api.list_repo_tree(repo, repo_type="dataset", revision=commit, recursive=True)
        files = {item.path: item.size for item in tree if isinstance(item, RepoFile)}
    return Remote(repo, commit, files)


def fetch_file(remote: Remote, name: str) -> Path:
    """Return the local path of a file of the dataset at its commit, downloaded unless it is in the
    cache.

    Raise HubError if there is no such file or the Hub cannot be reached.
    """
    with quiet_clients(), translate_errors(f"dataset {remote.repo}"):
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(remote.repo, name, repo_type="dataset", revision=remote.commit))
