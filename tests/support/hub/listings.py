"""What the local Hub tells of a repository: its commits, folders and files."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from ..serve import json_reply
from .access import Ask, HubError
from .card import front_matter
from .store import Commit, File, Repo, object_id

PAGE = 1000
"""Entries of a listing's page; the next one is in the Link header."""


async def repo_info(ask: Ask) -> web.Response:
    """`GET /api/{kind}/{repo}[/revision/{revision}]`."""
    repo = ask.repo()
    commit = ask.commit(repo)
    first = list(repo.history(commit))[-1]
    readme = commit.files.get("README.md", File(b"")).data.decode(errors="replace")
    blobs = ask.params.get("blobs", "").lower() == "true"
    return json_reply(
        {
            "_id": object_id(repo.id),
            "id": repo.id,
            "author": repo.namespace,
            "sha": commit.sha,
            "createdAt": first.date,
            "lastModified": commit.date,
            "private": repo.private,
            "gated": "auto" if repo.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "cardData": front_matter(readme),
            "siblings": [_sibling(p, f, blobs) for p, f in sorted(commit.files.items())],
        }
    )


def _sibling(path: str, file: File, blobs: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"rfilename": path}
    if blobs:
        out |= {"size": len(file.data), "blobId": file.blob}
        if file.lfs:
            size = len(file.data)
            pointer = len(file.pointer)
            out["lfs"] = {"size": size, "sha256": file.sha256, "pointerSize": pointer}
    return out


async def tree(ask: Ask) -> web.Response:
    """`GET /api/{kind}/{repo}/tree/{revision}[/{folder}]?recursive=&expand=&cursor=`."""
    repo = ask.repo()
    commit = ask.commit(repo)
    folder = ask.match.get("path") or ""
    if folder and folder not in commit.folders():
        raise HubError(404, f"{folder} does not exist", "EntryNotFound", commit.sha)
    prefix = f"{folder}/" if folder else ""
    recursive = ask.params.get("recursive", "").lower() == "true"
    paths = [
        path
        for path in sorted({*commit.files, *commit.folders()})
        if path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])
    ]
    start = int(ask.params.get("cursor", 0))
    page = [_entry(repo, commit, p, ask.params.get("expand")) for p in paths[start : start + PAGE]]
    headers = {}
    if start + PAGE < len(paths):
        query = f"recursive={recursive}&cursor={start + PAGE}"
        here = ask.request.raw_path.partition("?")[0]
        headers["Link"] = f'<{ask.url}{here}?{query}>; rel="next"'
    return json_reply(page, headers=headers)


async def paths_info(ask: Ask) -> web.Response:
    """`POST /api/{kind}/{repo}/paths-info/{revision}` (a form); unknown paths are left out."""
    repo = ask.repo()
    commit = ask.commit(repo)
    form = parse_qs((await ask.request.content.read()).decode())
    known = {*commit.files, *commit.folders()}
    expand = form.get("expand", [""])[0]
    return json_reply(
        [_entry(repo, commit, p, expand) for p in form.get("paths", []) if p in known]
    )


def _entry(repo: Repo, commit: Commit, path: str, expand: str | None) -> dict[str, Any]:
    file = commit.files.get(path)
    if file is None:
        out: dict[str, Any] = {"type": "directory", "oid": object_id(commit.sha + path), "size": 0}
    else:
        out = {"type": "file", "oid": file.blob, "size": len(file.data)}
        if file.lfs:
            pointer = len(file.pointer)
            out["lfs"] = {"oid": file.sha256, "size": len(file.data), "pointerSize": pointer}
    if (expand or "").lower() == "true":
        last = _last_change(repo, commit, path)
        out["lastCommit"] = {"id": last.sha, "title": last.title, "date": last.date}
    return out | {"path": path}


def _last_change(repo: Repo, commit: Commit, path: str) -> Commit:
    last = commit
    for older in repo.history(commit):
        if older.files.get(path) != commit.files.get(path):
            break
        last = older
    return last


async def commits(ask: Ask) -> web.Response:
    """`GET /api/{kind}/{repo}/commits/{revision}`, newest first."""
    repo = ask.repo()
    return json_reply(
        [
            {
                "id": commit.sha,
                "title": commit.title,
                "message": commit.message,
                "authors": [{"user": commit.author}],
                "date": commit.date,
            }
            for commit in repo.history(ask.commit(repo))
        ]
    )
