"""A model provider on 127.0.0.1: OpenAI's, Anthropic's and Google's chat APIs, with faults.

In process::

    with Provider(Plan(latency_s=0.5, faults={"429": 0.1})) as provider:
        litellm.completion("openai/any", api_base=provider.api_base, api_key="k", ...)
        provider.stats.calls; provider.change(faults={})

As a process: ``python -m tests.support.provider --latency 0.5 --fault 429=0.1 --state FILE``.

``GET /_stats[?requests=1]``, ``GET /_requests``, ``POST /_reset``, ``GET|POST /_config`` (JSON,
some fields of `Plan`) read and change it while it runs. Tokens are words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from .chat.billing import bill, charged
from .chat.caching import Ledger
from .chat.checks import check, check_beta, check_key, first_words, read_body, request_key
from .chat.dialects import Anthropic, Dialect, OpenAI, Refusal
from .chat.faults import IMMEDIATE, failed, rate_limited
from .chat.google import Google
from .chat.plan import BILLED, Plan
from .chat.replies import Call, Reply, fixed_reply, scripted_reply
from .chat.stats import Stats
from .chat.thinking import check_replay, with_thought
from .chat.tools import check_tools, with_calls
from .serve import LocalServer, add_process_options, json_reply, run_process

__all__ = ["Call", "Plan", "Provider", "Reply", "Stats", "fixed_reply", "scripted_reply"]

SAVE_EVERY_S = 0.5
OPENAI, ANTHROPIC, GOOGLE = OpenAI(), Anthropic(), Google()


class Provider(LocalServer):
    """The server. `reply` says what a model answers; `state` keeps the counters in a file."""

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        reply: Reply = scripted_reply,
        state: Path | None = None,
        port: int = 0,
    ) -> None:
        super().__init__(port=port)
        self.plan = plan or Plan()
        self.stats = Stats.load(state) if state else Stats()
        self.requests: deque[dict[str, Any]] = deque(maxlen=self.plan.keep_requests)
        self.ledger: Ledger | None = None
        """Where it bills by a cache: what that comes to."""
        self._reply = reply
        self._state = state

    @property
    def api_base(self) -> str:
        """What OpenAI clients call `base_url`."""
        return f"{self.url}/v1"

    def change(self, **changes: Any) -> None:
        """Replace fields of the plan while it runs. Raises ValueError for an unknown one."""
        self.plan = self.plan.changed(changes)
        self.requests = deque(self.requests, maxlen=self.plan.keep_requests)

    def reset(self) -> None:
        """Zero the counters; the next call is number 1."""
        self.stats = self.stats.fresh()
        self.requests.clear()

    async def background(self) -> None:
        """Save the counters now and then, and at the end."""
        if self._state is None:
            return
        try:
            while True:
                await asyncio.sleep(SAVE_EVERY_S)
                self.stats.save(self._state)
        finally:
            self.stats.save(self._state)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Route a request."""
        path, _, query = request.raw_path.partition("?")
        if path.endswith("/chat/completions"):
            return await self._complete(request, OPENAI)
        if path.endswith("/messages"):
            return await self._complete(request, ANTHROPIC)
        if path.endswith(":generateContent"):
            return await self._complete(request, GOOGLE)
        if path.startswith("/_"):
            return await self._control(request, path, query)
        if path in ("/v1/models", "/models"):
            rows = [{"id": m, "object": "model", "owned_by": "local"} for m in self._models()]
            return json_reply({"object": "list", "data": rows})
        if path == "/health":
            return json_reply({})
        return json_reply({"error": {"message": f"no route {path}"}}, 404)

    def _models(self) -> tuple[str, ...]:
        return ("scripted",) if self.plan.models is None else self.plan.models

    async def _control(self, request: web.BaseRequest, path: str, query: str) -> web.StreamResponse:
        if path == "/_stats":
            return json_reply(self.stats.summary(requests="requests" in query))
        if path == "/_requests":
            return json_reply(list(self.requests))
        if path == "/_reset" and request.method == "POST":
            self.reset()
            return json_reply(self.stats.summary())
        if path == "/_config":
            if request.method == "POST":
                try:
                    self.change(**json.loads(await request.content.read()))
                except (TypeError, ValueError) as error:
                    return json_reply({"error": str(error)}, 400)
            return json_reply(asdict(self.plan))
        return json_reply({"error": f"no route {request.method} {path}"}, 404)

    async def _complete(self, request: web.BaseRequest, dialect: Dialect) -> web.StreamResponse:
        number = self.stats.arrive()
        try:
            response = await self._admit(request, dialect, number)
        except Refusal as refusal:
            response = json_reply(dialect.error(refusal), refusal.status)
        except asyncio.CancelledError:
            self.stats.abandoned += 1
            raise
        lost = request.transport is None or request.transport.is_closing()
        self.stats.reply("lost" if lost else str(response.status))
        return response

    async def _admit(
        self, request: web.BaseRequest, dialect: Dialect, number: int
    ) -> web.StreamResponse:
        plan = self.plan
        said = read_body(await request.content.read())
        body = dialect.incoming(said, request.raw_path.partition("?")[0])
        self.requests.append(body)
        check_key(plan, request.headers)
        call = dialect.read(body)
        check(plan, call, body)
        check_beta(request.headers, [body])
        check_replay(plan.thinks, body)
        check_tools(body)
        key = request_key(call, body)
        self.stats.by_request[key] += 1
        if plan.max_in_flight is not None and self.stats.in_flight >= plan.max_in_flight:
            self.stats.faults["limiter"] += 1
            return rate_limited(plan, dialect, header=True)
        self.stats.enter()
        try:
            return await self._answer(request, dialect, call, body, number)
        finally:
            self.stats.in_flight -= 1

    async def _answer(
        self,
        request: web.BaseRequest,
        dialect: Dialect,
        call: Call,
        body: dict[str, Any],
        number: int,
    ) -> web.StreamResponse:
        key = request_key(call, body)
        plan, stats = self.plan, self.stats
        attempt = stats.by_request[key]
        fault = plan.fault(number, key, attempt, stats.faulted_by_request[key], call.text)
        if fault is not None:
            stats.faults[fault] += 1
            stats.faulted_by_request[key] += 1
        text = self._reply(call)
        sent = first_words(text, call.max_tokens)
        said = bill(fault, call, sent, plan.dense)
        if fault is None or fault in BILLED:
            stats.bill(said.prompt, said.reply)  # for the work, whoever waits for it
        delay = plan.latency(key, attempt)
        if delay and fault not in IMMEDIATE:
            await asyncio.sleep(delay)
        if fault in BILLED:
            return charged(fault, request, call, key, said)
        if fault is not None:
            return await failed(fault, request, plan, dialect, call, key)
        stats.answer(key, said.prompt, said.reply)
        cut = len(sent) < len(text)
        reply: Any = dialect.write(call, key, sent, said.prompt, said.reply, cut)
        if plan.message:
            reply["choices"][0]["message"].update(plan.message)
        reply = with_thought(plan.thinks, with_calls(body, reply))
        if self.ledger is not None:
            words = len(sent) // 4
            reply["usage"] = (
                self.ledger.openai(call.model, call.text, words)
                if dialect is OPENAI
                else self.ledger.anthropic(body, words)
            )
        return json_reply(dialect.outgoing(reply))


def main(arguments: list[str] | None = None) -> None:
    """Run as a process; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.provider")
    add_process_options(parser)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per call")
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=PROBABILITY")
    parser.add_argument("--max-in-flight", type=int, help="429 beyond this")
    parser.add_argument("--reply", help="always this text")
    parser.add_argument("--state", type=Path, help="keep the counters in this file")
    parser.add_argument("--plan", default="{}", help="JSON: any fields of Plan")
    options = parser.parse_args(arguments)
    changes: dict[str, Any] = {"latency_s": options.latency} if options.latency else {}
    if options.max_in_flight is not None:
        changes["max_in_flight"] = options.max_in_flight
    if options.fault:
        pairs = (fault.partition("=") for fault in options.fault)
        changes["faults"] = {kind: float(probability) for kind, _, probability in pairs}
    try:
        plan = Plan().changed(changes | json.loads(options.plan))
    except ValueError as error:
        parser.error(str(error))
    reply = scripted_reply if options.reply is None else fixed_reply(options.reply)
    run_process(Provider(plan, reply=reply, state=options.state, port=options.port), options)


if __name__ == "__main__":
    main()
