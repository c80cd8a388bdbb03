"""The local Hub's files: preupload, LFS, commits and downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import PurePosixPath
from typing import Any

from aiohttp import web

from ..serve import json_reply
from .access import Ask, HubError
from .store import File, Repo, goes_to_lfs

RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


async def preupload(ask: Ask) -> web.Response:
    """`POST /api/{kind}/{repo}/preupload/{revision}`: which files go to LFS."""
    repo = ask.writable()
    commit = ask.commit(repo)
    answer = []
    for file in (await ask.json()).get("files", []):
        sample = base64.b64decode(file.get("sample", ""))
        lfs = goes_to_lfs(file["path"], sample, file["size"])
        there = commit.files.get(file["path"])
        answer.append(
            {
                "path": file["path"],
                "uploadMode": "lfs" if lfs else "regular",
                "shouldIgnore": False,
                "oid": there.etag if there else None,
            }
        )
    return json_reply({"files": answer})


async def lfs_batch(ask: Ask) -> web.Response:
    """`POST /{repo}.git/info/lfs/objects/batch`: where to upload what is not there yet."""
    repo = ask.writable()
    base = f"{ask.url}/_lfs/{repo.type}s/{repo.id}"
    objects: list[dict[str, Any]] = []
    for item in (await ask.json()).get("objects", []):
        row: dict[str, Any] = {"oid": item["oid"], "size": item["size"]}
        if item["oid"] not in repo.objects:
            row["actions"] = {
                "upload": {"href": f"{base}/{item['oid']}"},
                "verify": {"href": f"{base}/{item['oid']}/verify"},
            }
        objects.append(row)
    return json_reply({"transfer": "basic", "objects": objects})


async def lfs_put(ask: Ask) -> web.Response:
    """`PUT` of an LFS object, without credentials as at a storage bucket; checks the digest."""
    repo = _stored(ask)
    data = await ask.request.content.read()
    oid = ask.match["oid"]
    if hashlib.sha256(data).hexdigest() != oid:
        raise HubError(400, f"content does not have the sha256 {oid}")
    repo.objects[oid] = data
    return web.Response(headers={"ETag": f'"{oid}"'})


async def lfs_verify(ask: Ask) -> web.Response:
    """`POST` after an upload."""
    repo, body = ask.writable(), await ask.json()
    if len(repo.objects.get(ask.match["oid"], b"")) != body.get("size"):
        raise HubError(404, "LFS object was not uploaded")
    return json_reply({})


def _stored(ask: Ask) -> Repo:
    repo = ask.store.repos.get((ask.type, ask.repo_id))
    if repo is None:
        raise HubError(404, "Repository not found")
    return repo


async def commit(ask: Ask) -> web.Response:
    """`POST /api/{kind}/{repo}/commit/{branch}` (ndjson); 412 when the parent has moved on."""
    repo = ask.writable()
    branch = ask.match["revision"].removeprefix("refs/heads/")
    if branch not in repo.branches:
        raise HubError(404, f"Invalid rev id: {branch}", "RevisionNotFound")
    if ask.params.get("create_pr"):
        raise HubError(400, "pull requests are not supported by this local Hub")
    operations = [json.loads(line) for line in (await ask.request.content.read()).splitlines()]
    header: dict[str, Any] = next((op["value"] for op in operations if op["key"] == "header"), {})
    head = repo.branches[branch]
    if header.get("parentCommit") not in (None, head):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    files = dict(repo.commits[head].files)
    for operation in operations:
        _apply(repo, files, operation["key"], operation["value"])
    made = repo.commit(
        files,
        str(header.get("summary", "")),
        message=str(header.get("description", "")),
        author=ask.signed_in().user,
        branch=branch,
    )
    prefix = "" if repo.type == "model" else f"{repo.type}s/"
    url = f"{ask.url}/{prefix}{repo.id}/commit/{made.sha}"
    return json_reply({"success": True, "commitUrl": url, "commitOid": made.sha, "hookOutput": ""})


def _apply(repo: Repo, files: dict[str, File], key: str, value: dict[str, Any]) -> None:
    if key == "header":
        return
    path = str(value["path"])
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or ".git" in parts:
        raise HubError(400, f"Invalid path: {path}")
    if key == "file":
        files[path] = File(base64.b64decode(value["content"]))
    elif key == "lfsFile":
        if value["oid"] not in repo.objects:
            raise HubError(400, f"LFS pointer of {path} points to a file that does not exist")
        files[path] = File(repo.objects[value["oid"]], lfs=True)
    elif key == "deletedFile":
        if files.pop(path, None) is None:
            raise HubError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
    elif key == "deletedFolder":
        for inside in [name for name in files if name.startswith(path.rstrip("/") + "/")]:
            del files[inside]
    else:
        raise HubError(400, f"Unknown operation: {key}")


async def resolve(ask: Ask) -> web.Response:
    """`GET|HEAD /{repo}/resolve/{revision}/{path}`; LFS files redirect to `_cdn`."""
    repo = ask.repo()
    ask.open_files(repo)
    found = ask.commit(repo)
    file = ask.file(found)
    headers = {"X-Repo-Commit": found.sha, "Accept-Ranges": "bytes"}
    if not file.lfs:
        return _content(ask, file, headers | {"ETag": f'"{file.blob}"'})
    headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.data))}
    headers["Location"] = f"/_cdn/{repo.type}s/{repo.id}/{found.sha}/{file.sha256}"
    return web.Response(status=302, headers=headers)


async def cdn(ask: Ask) -> web.Response:
    """LFS content, without credentials as at a content network."""
    repo, oid = _stored(ask), ask.match["oid"]
    file = File(repo.objects.get(oid, b""), lfs=True)
    headers = {"X-Repo-Commit": ask.match["revision"], "Accept-Ranges": "bytes"}
    return _content(ask, file, headers | {"ETag": f'"{oid}"'})


def _content(ask: Ask, file: File, headers: dict[str, str]) -> web.Response:
    data, size = file.data, len(file.data)
    wanted = RANGE.match(ask.request.headers.get("Range", ""))
    if wanted is None or wanted.groups() == ("", ""):
        return web.Response(body=data, headers=headers, content_type="application/octet-stream")
    first, last = wanted.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= size:
        return web.Response(status=416, headers=headers | {"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return web.Response(
        body=data[start:stop], status=206, headers=headers, content_type="application/octet-stream"
    )
