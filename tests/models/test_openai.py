"""The client of OpenAI-compatible servers: what it does with connections, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from convbench.errors import BrokenReply, FatalModelError, Unreachable
from convbench.models import open_model
from convbench.models.openai import REPLY_BYTES, HttpClient, wire_messages
from convbench.schema import ImagePart, Message, Reasoning, TextPart, ToolCall

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[socket.socket], None]


@contextmanager
def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Have `talk` speak on each connection, in a thread; yield the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            talk(tls.wrap_socket(connection, server_side=True) if tls else connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def requests(connection: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Yield head and body of the requests of a connection."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = connection.recv(1 << 16)
            if not more:
                return
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        sizes = [line for line in lines if line.startswith(b"content-length:")]
        length = int(sizes[0].partition(b":")[2]) if sizes else 0
        while len(data) < length:
            data += connection.recv(1 << 16)
        body, data = data[:length], data[length:]
        yield head, body


def answering(heads: list[bytes], said: bytes = OK) -> Talk:
    """Return a server that answers all requests alike and notes their heads."""

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            heads.append(head)
            connection.sendall(said)

    return talk


def ask(base: str, *bodies: bytes, headers: dict[str, str] | None = None) -> list[bytes]:
    """Send each body, one after the other; return what came."""

    async def main() -> list[bytes]:
        server = HttpClient("m", base, headers or {})
        try:
            return [(await server.send("POST", f"{base}/x", body))[1] for body in bodies]
        finally:
            await server.aclose()

    return asyncio.run(main())


def test_send_shares_a_connection() -> None:
    connections: list[list[bytes]] = []

    def talk(connection: socket.socket) -> None:
        connections.append([])
        for _, body in requests(connection):
            connections[-1].append(body)
            connection.sendall(OK)

    with serving(talk) as port:
        assert ask(f"http://127.0.0.1:{port}", b"one", b"two") == [b"ok"] * 2
    assert connections == [[b"one", b"two"]]


def test_send_sends_a_request_once_though_its_connection_is_lost() -> None:
    """The server may have billed it."""
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for _, body in requests(connection):
            seen.append(body)
            if body == b"two":
                return
            connection.sendall(OK)

    with serving(talk) as port, pytest.raises(BrokenReply, match="connection lost"):
        ask(f"http://127.0.0.1:{port}", b"one", b"two")
    assert seen == [b"one", b"two"]


@pytest.mark.parametrize(
    "said",
    [
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_send_takes_what_is_no_answer_for_a_lost_connection(said: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(said)

    with serving(talk) as port, pytest.raises(BrokenReply, match="m: connection lost"):
        ask(f"http://127.0.0.1:{port}", b"one")


def test_send_follows_no_redirect() -> None:
    heads: list[bytes] = []
    moved = b"HTTP/1.1 307 No\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"

    async def main(base: str) -> int:
        server = HttpClient("m", base, {"Authorization": "Bearer sk-1"})
        status = (await server.send("POST", f"{base}/x", b"one"))[0]
        await server.aclose()
        return status

    with serving(answering(heads, moved)) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == 307
    assert len(heads) == 1


def test_send_reads_a_compressed_body_and_none_that_is_too_long() -> None:
    def sent(data: bytes) -> list[bytes]:
        packed = gzip.compress(data)
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        with serving(answering([], head.encode() + packed)) as port:
            return ask(f"http://127.0.0.1:{port}", b"one")

    assert sent(b"yes " * 1000) == [b"yes " * 1000]
    with pytest.raises(BrokenReply, match="longer than 8 MiB"):
        sent(b"\0" * (REPLY_BYTES + 1))


def test_send_says_where_nobody_listens() -> None:
    with socket.socket() as taken:  # bound, so that no other process comes to listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=f"cannot connect to http://127.0.0.1:{port}"):
            ask(f"http://127.0.0.1:{port}", b"one")


@pytest.mark.parametrize("key", ["sk-1\r\nX-Evil: 1", "sk-\u00e9", "sk-\x1b[1m"])
def test_open_model_refuses_a_key_of_several_lines_or_other_signs(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(FatalModelError, match="expected one line of ASCII") as caught:
        open_model("openai/gpt-4o-mini")
    assert "sk-" not in str(caught.value)


def tls_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> ssl.SSLContext:
    """Return a server's TLS for 127.0.0.1, of an authority that is known or not."""
    authority = trustme.CA()
    (authority if known else trustme.CA()).cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setattr(
        "aiohttp.connector._SSL_CONTEXT_VERIFIED",
        ssl.create_default_context(cafile=str(tmp_path / "ca.pem")),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_send_speaks_tls_with_a_known_authority_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    with serving(answering(heads), tls_for(tmp_path, monkeypatch, known=True)) as port:
        assert ask(f"https://127.0.0.1:{port}", b"one") == [b"ok"]
    with (
        serving(answering(heads), tls_for(tmp_path, monkeypatch, known=False)) as port,
        pytest.raises(FatalModelError, match="certificate of https://127"),
    ):
        ask(f"https://127.0.0.1:{port}", b"one", headers={"Authorization": "Bearer sk-1"})
    assert len(heads) == 1


def test_send_uses_the_proxy_of_the_environment_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that we started ourselves is called directly, whatever `no_proxy` says."""
    heads: list[bytes] = []
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(answering(heads)) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert ask("http://model.example/v1", b"one") == [b"ok"]
        assert ask(f"http://127.0.0.1:{port}/v1", b"one") == [b"ok"]
    lines = [head.split(b"\r\n")[0] for head in heads]
    assert lines == [b"POST http://model.example/v1/x HTTP/1.1", b"POST /v1/x HTTP/1.1"]


def test_a_proxy_on_the_way_to_tls_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    no = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(answering(heads, no)) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(Unreachable, match=r"cannot connect to https://model\.example.*407"):
            ask("https://model.example/v1", b"one", headers={"Authorization": "Bearer sk-1"})
    assert heads[0].startswith(b"CONNECT model.example:443")
    assert b"sk-1" not in heads[0]


def test_send_works_in_a_second_loop_and_opens_one_session_in_each() -> None:
    server: HttpClient | None = None

    async def main(base: str) -> list[bytes]:
        nonlocal server
        server = server or HttpClient("m", base, {})
        sends = (server.send("POST", f"{base}/x", b"one") for _ in range(8))
        replies = await asyncio.gather(*sends)
        assert len(server._sessions) <= 2
        return [raw for _, raw, _ in replies]

    with serving(answering([])) as port:
        for _ in range(2):
            assert asyncio.run(main(f"http://127.0.0.1:{port}")) == [b"ok"] * 8
        assert server is not None
        asyncio.run(server.aclose())
    assert not server._sessions


def test_send_that_is_cancelled_leaves_no_connection_busy() -> None:
    hung = threading.Event()

    def talk(connection: socket.socket) -> None:
        for _, body in requests(connection):
            if body == b"hang":
                hung.set()
                return
            connection.sendall(OK)

    async def main(base: str) -> bytes:
        server = HttpClient("m", base, {})
        lost = asyncio.ensure_future(server.send("POST", f"{base}/x", b"hang"))
        await asyncio.to_thread(hung.wait, 30)
        lost.cancel()
        raw = (await server.send("POST", f"{base}/x", b"one"))[1]
        await server.aclose()
        return raw

    with serving(talk) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == b"ok"


def test_wire_messages_write_the_chat_apis_form(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"png")
    call = ToolCall(id="c1", name="now", arguments="{}")
    messages: list[Message] = [
        {"role": "system", "content": "Judge.", "stable": 0},
        {"role": "user", "content": "Rules. Text.", "stable": 6},
        {"role": "assistant", "content": "", "tool_calls": (call,),
         "reasoning": Reasoning(text="so", via="reasoning")},
        {"role": "tool", "content": "7", "tool_call_id": "c1", "name": "now"},
        {"role": "user", "content": (TextPart(text="see"), ImagePart(file="a.png"))},
    ]  # fmt: skip
    sent = wire_messages(messages, tmp_path, marks=True)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert sent[1]["content"] == [
        {"type": "text", "text": "Rules.", **mark},
        {"type": "text", "text": " Text."},
    ]
    assert sent[2]["content"] is None
    assert sent[2]["reasoning"] == "so"
    assert sent[2]["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}
    assert sent[3] == {"role": "tool", "content": "7", "tool_call_id": "c1", "name": "now"}
    assert sent[4]["content"][1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert json.dumps(sent)
