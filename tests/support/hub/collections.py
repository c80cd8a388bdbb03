"""The local Hub's collections: lists of repositories with a note beside each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ..serve import json_reply
from .access import Ask, HubError
from .store import object_id

LONGEST_TITLE, LONGEST_ABOUT, LONGEST_NOTE = 59, 150, 500
"""Most characters that the Hub takes."""


@dataclass
class Collection:
    """A collection, with its items as the Hub sends them."""

    slug: str
    title: str
    about: str
    private: bool
    items: list[dict[str, Any]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """The user or organisation that owns it."""
        return self.slug.partition("/")[0]

    def reply(self) -> dict[str, Any]:
        """The JSON that describes it."""
        return {
            "slug": self.slug, "owner": {"name": self.namespace}, "title": self.title,
            "description": self.about,
            "private": self.private, "items": self.items, "position": 0, "theme": "blue",
            "upvotes": 0, "lastUpdated": "2026-01-01T00:00:00.000Z",
        }  # fmt: skip


async def create_collection(ask: Ask) -> web.Response:
    """`POST /api/collections`: 409 with the slug where one's own has this title."""
    body = await ask.json()
    title, namespace = str(body.get("title", "")), str(body.get("namespace", ""))
    about = str(body.get("description", ""))
    ask.may_write(namespace)
    if not 0 < len(title) <= LONGEST_TITLE or len(about) > LONGEST_ABOUT:
        raise HubError(400, "title or description is too long")
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    slug = f"{namespace}/{words}-{object_id(namespace + title)[:24]}"
    if slug in ask.store.collections:
        answer = {"error": "This collection already exists", "slug": slug}
        return json_reply(answer, 409, {"X-Error-Message": answer["error"]})
    ask.store.collections[slug] = Collection(slug, title, about, bool(body.get("private")))
    return json_reply(ask.store.collections[slug].reply())


async def show_collection(ask: Ask) -> web.Response:
    """`GET /api/collections/{slug}`."""
    return json_reply(_visible(ask).reply())


async def add_item(ask: Ask) -> web.Response:
    """`POST /api/collections/{slug}/items`: 404 for an unknown repository, 409 for one in it."""
    collection, body = _visible(ask), await ask.json()
    ask.may_write(collection.namespace)
    kind, name = str(body["item"]["type"]), str(body["item"]["id"])
    if (kind, name) not in ask.store.repos:
        raise HubError(404, f"{kind} {name} not found")
    if any((item["type"], item["id"]) == (kind, name) for item in collection.items):
        raise HubError(409, "The item is already in the collection")
    note = str(body.get("note") or "")
    if len(note) > LONGEST_NOTE:
        raise HubError(400, "note is too long")
    place = len(collection.items)
    item = {"_id": object_id(f"{collection.slug}{name}"), "id": name, "type": kind}
    collection.items.append(item | {"position": place, "note": {"text": note, "html": note}})
    return json_reply(collection.reply())


def _visible(ask: Ask) -> Collection:
    """The path's collection. Raises HubError (404) where there is none that may be seen."""
    collection: Collection | None = ask.store.collections.get(
        f"{ask.match['namespace']}/{ask.match['name']}"
    )
    if collection is not None and collection.private:
        ask.may_write(collection.namespace)
    if collection is None:
        raise HubError(404, "Collection not found")
    return collection
