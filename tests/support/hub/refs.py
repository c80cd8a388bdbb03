"""The local Hub's branches and tags."""

from __future__ import annotations

from aiohttp import web

from ..serve import json_reply
from .access import Ask, HubError


async def refs(ask: Ask) -> web.Response:
    """`GET /api/{kind}/{repo}/refs`."""
    repo = ask.repo()

    def rows(names: dict[str, str], prefix: str) -> list[dict[str, str]]:
        return [
            {"name": name, "ref": f"{prefix}/{name}", "targetCommit": sha}
            for name, sha in names.items()
        ]

    return json_reply(
        {
            "branches": rows(repo.branches, "refs/heads"),
            "tags": rows(repo.tags, "refs/tags"),
            "converts": [],
            "pullRequests": [],
        }
    )


async def create_tag(ask: Ask) -> web.Response:
    """`POST /api/{kind}/{repo}/tag/{revision}`; 409 for an existing one."""
    repo = ask.writable()
    commit = ask.commit(repo)
    tag = str((await ask.json()).get("tag"))
    if tag in repo.tags:
        raise HubError(409, f"Tag reference exists already: {tag}")
    repo.tags[tag] = commit.sha
    return json_reply({})


async def delete_tag(ask: Ask) -> web.Response:
    """`DELETE /api/{kind}/{repo}/tag/{tag}`."""
    if ask.writable().tags.pop(ask.match["revision"], None) is None:
        raise HubError(404, "Tag not found", "RevisionNotFound")
    return json_reply({})


async def create_branch(ask: Ask) -> web.Response:
    """`POST /api/{kind}/{repo}/branch/{branch}`; 409 for an existing one."""
    repo = ask.writable()
    branch = ask.match["revision"]
    if branch in repo.branches:
        raise HubError(409, f"Reference already exists: {branch}")
    start = str((await ask.json()).get("startingPoint", "main"))
    commit = repo.find(start)
    if commit is None:
        raise HubError(404, f"Invalid rev id: {start}", "RevisionNotFound")
    repo.branches[branch] = commit.sha
    return json_reply({})
