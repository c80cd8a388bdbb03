"""The local Hub's accounts and repositories."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ..serve import json_reply
from .access import Account, Ask, HubError
from .card import card_errors, front_matter
from .store import new_repo, object_id


async def whoami(ask: Ask) -> web.Response:
    """`GET /api/whoami-v2`."""
    account = ask.signed_in()
    token = {"displayName": "local", "role": account.role}
    return json_reply(
        {
            "type": "user",
            "id": object_id(account.user),
            "name": account.user,
            "fullname": account.user,
            "orgs": [{"type": "org", "name": org, "roleInOrg": "write"} for org in account.orgs],
            "auth": {"type": "access_token", "accessToken": token},
        }
    )


async def validate_yaml(ask: Ask) -> web.Response:
    """`POST /api/validate-yaml`."""
    content = str((await ask.json()).get("content", ""))
    errors = [{"message": message} for message in card_errors(content)]
    warnings = []
    if not front_matter(content):
        warnings.append({"message": "empty or missing yaml metadata in repo card"})
    return json_reply({"errors": errors, "warnings": warnings}, 400 if errors else 200)


async def create_repo(ask: Ask) -> web.Response:
    """`POST /api/repos/create`: 409 for one's own existing name, 403 in others' namespaces."""
    account, body = ask.signed_in(), await ask.json()
    kind, repo_id = _named(account, body)
    namespace = repo_id.partition("/")[0]
    if account.role != "write" or namespace not in (account.user, *account.orgs):
        rights = f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"'
        raise HubError(403, rights)
    url = f"{ask.url}/{'' if kind == 'model' else kind + 's/'}{repo_id}"
    answer = {"url": url, "name": repo_id}
    if (kind, repo_id) in ask.store.repos:
        message = f"You already created this {kind} repo"
        return json_reply(answer | {"error": message}, 409, {"X-Error-Message": message})
    private = bool(body.get("private")) or body.get("visibility") == "private"
    repo = new_repo(kind, repo_id, private=private)
    ask.store.repos[kind, repo_id] = repo
    return json_reply(answer | {"id": object_id(repo_id)})


async def delete_repo(ask: Ask) -> web.Response:
    """`DELETE /api/repos/delete`."""
    account, body = ask.signed_in(), await ask.json()
    kind, repo_id = _named(account, body)
    ask.may_write(repo_id.partition("/")[0])
    if ask.store.repos.pop((kind, repo_id), None) is None:
        raise HubError(404, "Repository not found", "RepoNotFound")
    return json_reply({})


def _named(account: Account, body: dict[str, Any]) -> tuple[str, str]:
    namespace = body.get("organization") or account.user
    return str(body.get("type") or "model"), f"{namespace}/{body.get('name')}"


async def settings(ask: Ask) -> web.Response:
    """`PUT /api/{kind}/{repo}/settings`: visibility and gating."""
    repo, body = ask.writable(), await ask.json()
    if "private" in body or "visibility" in body:
        repo.private = bool(body.get("private")) or body.get("visibility") == "private"
    if "gated" in body:
        repo.gated = bool(body["gated"])
    return json_reply({"private": repo.private, "gated": repo.gated})


async def auth_check(ask: Ask) -> web.Response:
    """`GET /api/{kind}/{repo}/auth-check`."""
    ask.open_files(ask.repo())
    return json_reply({})
