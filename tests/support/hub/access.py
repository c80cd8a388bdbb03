"""Who may do what on the local Hub, with the Hub's own statuses, codes and words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from .store import Commit, File, Repo


@dataclass(frozen=True)
class Account:
    """The owner of a token."""

    user: str
    role: str = "write"
    """"read" or "write"."""
    orgs: tuple[str, ...] = ()
    """Organisations in whose name the user may write."""


@dataclass
class Store:
    """All that the local Hub holds."""

    accounts: dict[str, Account] = field(default_factory=dict)
    """Token -> account."""
    repos: dict[tuple[str, str], Repo] = field(default_factory=dict)
    """(type, id) -> repository."""
    collections: dict[str, Any] = field(default_factory=dict)
    """Slug -> collection."""


@dataclass(frozen=True)
class HubError(Exception):
    """An error as the Hub sends it: JSON body and the X-Error-* headers that clients read."""

    status: int
    message: str
    code: str | None = None
    commit: str | None = None

    def response(self) -> web.Response:
        """The HTTP response."""
        headers = {"X-Error-Message": self.message}
        if self.code:
            headers["X-Error-Code"] = self.code
        if self.commit:
            headers["X-Repo-Commit"] = self.commit
        body = json.dumps({"error": self.message}).encode()
        return web.Response(
            body=body, status=self.status, headers=headers, content_type="application/json"
        )


@dataclass(frozen=True)
class Ask:
    """A request with its path taken apart."""

    store: Store
    url: str
    """Of this server."""
    request: web.BaseRequest
    account: Account | None
    match: Mapping[str, str]
    """Named parts of the path, percent-decoded."""
    query: str

    @property
    def params(self) -> dict[str, str]:
        """The query's fields."""
        return dict(parse_qsl(self.query))

    async def json(self) -> dict[str, Any]:
        """The body. Raises HubError (400) when it is no JSON object."""
        try:
            body = json.loads(await self.request.content.read() or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise HubError(400, "Invalid JSON body")
        return body

    @property
    def type(self) -> str:
        """Repository type of the path."""
        return (self.match.get("kind") or "models").removesuffix("s")

    @property
    def repo_id(self) -> str:
        """Repository id of the path."""
        return f"{self.match['namespace']}/{self.match['name']}"

    def signed_in(self) -> Account:
        """The token's account. Raises HubError (401) without a token."""
        if self.account is None:
            raise HubError(401, "Invalid username or password.")
        return self.account

    def repo(self) -> Repo:
        """The path's repository, if it may be seen; 401 without a token, 404 with one."""
        repo = self.store.repos.get((self.type, self.repo_id))
        if repo is not None and (not repo.private or self._owns(repo.namespace)):
            return repo
        if self.account is None:
            raise HubError(401, "Invalid username or password.", "RepoNotFound")
        raise HubError(404, "Repository not found", "RepoNotFound")

    def writable(self) -> Repo:
        """The path's repository, if it may be changed. Raises HubError (401, 403, 404)."""
        repo = self.repo()
        self.may_write(repo.namespace)
        return repo

    def may_write(self, namespace: str) -> None:
        """Raises HubError (401, 403) unless the token may write in `namespace`."""
        account = self.signed_in()
        if account.role != "write":
            raise HubError(403, "Forbidden: you must use a write token to upload to a repository.")
        if not self._owns(namespace):
            raise HubError(403, f"Authorization error: no write access to {namespace}")

    def open_files(self, repo: Repo) -> None:
        """Raises HubError (401, 403) when the repository is gated for this token."""
        if not repo.gated or self._owns(repo.namespace):
            return
        where = f"Access to {repo.type} {repo.id} is restricted"
        if self.account is None:
            raise HubError(401, f"{where}. You must be authenticated.", "GatedRepo")
        if self.account.user not in repo.granted:
            raise HubError(403, f"{where} and you are not in the authorized list.", "GatedRepo")

    def commit(self, repo: Repo) -> Commit:
        """The commit of the path's revision. Raises HubError (404, RevisionNotFound)."""
        revision = self.match.get("revision") or "main"
        commit = repo.find(revision)
        if commit is None:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    def file(self, commit: Commit) -> File:
        """The path's file. Raises HubError (404, EntryNotFound)."""
        file = commit.files.get(self.match["path"])
        if file is None:
            raise HubError(404, "Entry not found", "EntryNotFound", commit.sha)
        return file

    def _owns(self, namespace: str) -> bool:
        account = self.account
        return account is not None and namespace in (account.user, *account.orgs)
