"""The calls behind each turn: what was asked, what was tried again, what came back.

The request is made once more from the record, as the run made it; the journal's hash of model,
sampling and messages says whether it is the very same. Bytes on the wire are there only where the
run kept them.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import orjson

from convbench.engine.exchange import Exchange, exchanges, place
from convbench.engine.journal import call_hash, plain
from convbench.engine.wire_file import NAME, kept
from convbench.rollout.asked import Asked, asked
from convbench.view.index import Index

SAME = "Made again from the record; the journal's hash of model, sampling and messages is the same."
OTHER = (
    "Made again from the record; the journal's hash is another: the record was edited, or another "
    "version of convbench asked."
)
UNKNOWN = "The messages before this call; the journal says nothing of what was sent beside them."


def calls(index: Index, conversation_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return by turn its calls, in order: key, request, reply, lost attempts; what was sent and
    came back as the text of JSON."""
    run, conversation, _ = index.conversation(conversation_id)
    requests = {one.key: one for one in asked(run.manifest, conversation)}
    found: dict[str, list[dict[str, Any]]] = {}
    wires = {
        name: records
        for path in run.files(NAME)
        for name, records in kept(path, conversation.key).items()
    }
    told = (exchanges(path, conversation.key) for path in run.files(run.calls_file.name))
    for one in chain.from_iterable(told):
        turn = place(one.key)
        if turn is not None:
            found.setdefault(str(turn), []).append(
                _told(one, requests.get(one.key), wires.get(one.key, []))
            )
    return found


def _told(one: Exchange, request: Asked | None, wire: list[dict[str, Any]]) -> dict[str, Any]:
    sent = [each | {name: _exact(each.get(name)) for name in ("request", "reply")} for each in wire]
    told = {"key": one.key, "lost": one.lost, "wire": sent, "reply": _exact(one.reply)}
    if request is None:
        return told | {"request": None, "proof": UNKNOWN}
    hashed = call_hash(request.model, request.sampling, request.messages)
    same = one.reply is not None and one.reply.get("hash") == hashed
    body = {"model": request.model, **request.sampling.model_dump(exclude_defaults=True),
            "messages": request.messages}  # fmt: skip
    return told | {
        "request": _exact(body),
        "proof": SAME if same else OTHER,
    }


def _exact(value: Any) -> str | None:
    """Return JSON as text to be read: a browser that parsed it would round a seed's last digits."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2).decode()
