"""Which function answers which request of the local Hub."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from aiohttp import web

from . import collections, files, listings, refs, repos
from .access import Ask, HubError

REPO = r"(?P<namespace>[^/]+)/(?P<name>[^/]+)"
API = rf"/api/(?P<kind>datasets|models|spaces)/{REPO}"
SITE = rf"/(?:(?P<kind>datasets|spaces)/)?{REPO}"
STORED = rf"/(?P<kind>datasets|models|spaces)/{REPO}"
REVISION = r"(?P<revision>[^/]+)"
OID = r"(?P<oid>[0-9a-f]{64})"

Handler = Callable[[Ask], Awaitable[web.Response]]
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", r"/api/whoami-v2", repos.whoami),
    ("POST", r"/api/validate-yaml", repos.validate_yaml),
    ("POST", r"/api/repos/create", repos.create_repo),
    ("DELETE", r"/api/repos/delete", repos.delete_repo),
    ("POST", r"/api/collections", collections.create_collection),
    ("GET", rf"/api/collections/{REPO}", collections.show_collection),
    ("POST", rf"/api/collections/{REPO}/items", collections.add_item),
    ("PUT", rf"{API}/settings", repos.settings),
    ("GET", rf"{API}/auth-check", repos.auth_check),
    ("GET", rf"{API}(?:/revision/{REVISION})?", listings.repo_info),
    ("GET", rf"{API}/tree/{REVISION}(?:/(?P<path>.+))?", listings.tree),
    ("POST", rf"{API}/paths-info/{REVISION}", listings.paths_info),
    ("GET", rf"{API}/commits/{REVISION}", listings.commits),
    ("GET", rf"{API}/refs", refs.refs),
    ("POST", rf"{API}/tag/{REVISION}", refs.create_tag),
    ("DELETE", rf"{API}/tag/{REVISION}", refs.delete_tag),
    ("POST", rf"{API}/branch/{REVISION}", refs.create_branch),
    ("POST", rf"{API}/preupload/{REVISION}", files.preupload),
    ("POST", rf"{API}/commit/{REVISION}", files.commit),
    ("POST", rf"{SITE}\.git/info/lfs/objects/batch", files.lfs_batch),
    ("PUT", rf"/_lfs{STORED}/{OID}", files.lfs_put),
    ("POST", rf"/_lfs{STORED}/{OID}/verify", files.lfs_verify),
    ("GET", rf"{SITE}/resolve/{REVISION}/(?P<path>.+)", files.resolve),
    ("GET", rf"/_cdn{STORED}/{REVISION}/{OID}", files.cdn),
)
_COMPILED = tuple((method, re.compile(pattern), handler) for method, pattern, handler in ROUTES)


def find(method: str, raw: str) -> tuple[Handler, dict[str, str]]:
    """The handler of a raw path, and the path's decoded parts. Raises HubError (404)."""
    wanted = "GET" if method == "HEAD" else method
    for known, pattern, handler in _COMPILED:
        found = pattern.fullmatch(raw) if known == wanted else None
        if found is not None:
            parts = {k: unquote(v) for k, v in found.groupdict().items() if v is not None}
            return handler, parts
    raise HubError(404, f"this local Hub has no {method} {raw}")
