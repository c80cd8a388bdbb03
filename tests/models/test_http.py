"""What a call's HTTP client does with connections, and does not: real sockets, on this machine."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from convbench.errors import FatalModelError
from convbench.models import http
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.http import BadStatus, Http

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def serving(
    talk: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None
) -> Iterator[int]:
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
        sizes = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ]
        length = int(sizes[0].partition(b":")[2]) if sizes else 0
        while len(data) < length:
            data += connection.recv(1 << 16)
        body, data = data[:length], data[length:]
        yield head, body


def ask(base: str, *bodies: bytes | None, headers: dict[str, str] | None = None) -> list[bytes]:
    """Ask once for each body, one after the other; return what came."""

    async def main() -> list[bytes]:
        server = Http("m", base, headers or {})
        try:
            method = {True: "GET", False: "POST"}
            return [(await server.ask(method[one is None], f"{base}/x", one))[1] for one in bodies]
        finally:
            await server.aclose()

    return asyncio.run(main())


def test_calls_share_a_connection() -> None:
    connections: list[list[bytes]] = []

    def talk(connection: socket.socket) -> None:
        mine: list[bytes] = []
        connections.append(mine)
        for _, body in requests(connection):
            mine.append(body)
            connection.sendall(OK)

    with serving(talk) as port:
        assert ask(f"http://127.0.0.1:{port}", b"one", b"two", None) == [b"ok"] * 3
    assert connections == [[b"one", b"two", b""]]


def test_no_request_is_sent_twice_unasked() -> None:
    """The connection is lost after the second request: the server may have billed it."""
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
        b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\nok",
        b"HTTP/1.1 2000 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n" + b"X-More: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-More: x\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_lost_connection(said: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(said)

    with serving(talk) as port, pytest.raises(BrokenReply, match="m: connection lost"):
        ask(f"http://127.0.0.1:{port}", b"one")


def test_an_answer_after_a_word_that_it_will_come() -> None:
    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: br\r\n\r\n" + OK)

    with serving(talk) as port:
        assert ask(f"http://127.0.0.1:{port}", b"one") == [b"ok"]


def test_nobody_listens() -> None:
    with socket.socket() as taken:  # bound, so that no other process comes to listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port}.*Connection refused"):
            ask(f"http://127.0.0.1:{port}", b"one")


@pytest.mark.parametrize("base", ["file:///etc", "gopher://127.0.0.1:1", "http://:1", "nothing"])
def test_another_kind_of_address_is_refused(base: str) -> None:
    with pytest.raises((FatalModelError, Unreachable), match="m: "):
        ask(base, b"one")


def test_a_key_of_two_lines_is_no_header() -> None:
    with pytest.raises(FatalModelError, match="line break") as caught:
        ask("http://127.0.0.1:1", b"one", headers={"Authorization": "Bearer sk-1\r\nX-Evil: 1"})
    assert "sk-1" not in str(caught.value)


def secure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> ssl.SSLContext:
    """Return a server's TLS with a certificate for `name`, of an authority that is known."""
    authority = trustme.CA()
    trusted = authority if known else trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    http._trusted.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def _afresh() -> Iterator[None]:
    yield
    http._trusted.cache_clear()


def answer(connection: socket.socket) -> None:
    for _ in requests(connection):
        connection.sendall(OK)


@pytest.mark.usefixtures("_afresh")
def test_a_certificate_of_a_known_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = secure(tmp_path, monkeypatch, "127.0.0.1", known=True)
    with serving(answer, tls) as port:
        assert ask(f"https://127.0.0.1:{port}", b"one", b"two") == [b"ok", b"ok"]


@pytest.mark.usefixtures("_afresh")
@pytest.mark.parametrize(("name", "known"), [("127.0.0.1", False), ("example.org", True)])
def test_no_key_goes_to_a_stranger(
    name: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heard.extend(head for head, _ in requests(connection))

    tls = secure(tmp_path, monkeypatch, name, known)
    with serving(talk, tls) as port, pytest.raises(FatalModelError, match="certificate of 127"):
        ask(f"https://127.0.0.1:{port}", b"one", headers={"Authorization": "Bearer sk-1"})
    assert heard == []


def test_the_proxy_of_the_environment_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            heads.append(head.split(b"\r\n")[0])
            connection.sendall(OK)

    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(talk) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert ask("http://model.example/v1", b"one") == [b"ok"]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert ask(f"http://127.0.0.1:{port}/v1", b"one") == [b"ok"]
    assert heads == [b"POST http://model.example/v1/x HTTP/1.1", b"POST /v1/x HTTP/1.1"]


def test_a_proxy_on_the_way_to_tls_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heads.append(next(requests(connection))[0])
        connection.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(talk) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(Unreachable, match=r"cannot connect to https://model\.example.*407"):
            ask("https://model.example/v1", b"one", headers={"Authorization": "Bearer sk-1"})
    assert heads[0].startswith(b"CONNECT model.example:443")
    assert b"sk-1" not in heads[0]


def test_a_file_waits_for_its_reader() -> None:
    """Of 64 MB a reader takes one line: the server gets rid of no more than the bounds."""
    sent = [0]

    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1024):
            connection.sendall(b"x" * 65_535 + b"\n")
            sent[0] += 1 << 16

    async def main(base: str) -> int:
        server, count = Http("m", base, {}), 0
        async for line in server.lines(f"{base}/f", 1 << 30):
            assert len(line) == 65_535
            count += 1
            if count == 1:
                before = -1
                while sent[0] > before:  # until it stands still
                    before = sent[0]
                    await asyncio.sleep(0.2)
                assert before < 32 << 20
        await server.aclose()
        return count

    with serving(talk) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == 1024


def test_a_file_that_breaks_off_gives_its_lines_first() -> None:
    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\none\ntwo\nthr")

    async def main(base: str) -> list[bytes]:
        server = Http("m", base, {})
        lines = server.lines(f"{base}/f", 1 << 30)
        found = [await anext(lines), await anext(lines)]
        with pytest.raises(BrokenReply):
            await anext(lines)
        await server.aclose()
        return found

    with serving(talk) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == [b"one", b"two"]


def test_no_file() -> None:
    def talk(connection: socket.socket) -> None:
        for _ in requests(connection):
            connection.sendall(
                b"HTTP/1.1 404 No\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\ngone"
            )

    async def main(base: str) -> None:
        server = Http("m", base, {})
        with pytest.raises(BadStatus) as caught:
            await anext(server.lines(f"{base}/f", 1 << 30))
        assert (caught.value.status, caught.value.body) == (404, b"gone")
        assert caught.value.headers["retry-after"] == "7"
        await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


def test_a_call_that_is_given_up_leaves_the_others_alone() -> None:
    begun, answers = threading.Semaphore(0), threading.Event()

    def talk(connection: socket.socket) -> None:
        for _, body in requests(connection):
            if body == b"slow":
                begun.release()
                answers.wait(60)
            connection.sendall(OK)

    async def main(base: str) -> None:
        server = Http("m", base, {})
        slow = [asyncio.ensure_future(server.ask("POST", f"{base}/x", b"slow")) for _ in range(4)]
        for _ in slow:
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        slow[0].cancel()
        slow[1].cancel()
        assert (await server.ask("POST", f"{base}/x", b"quick"))[1] == b"ok"
        answers.set()
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in ended] == [True] * 2 + [
            False
        ] * 2
        await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


def test_a_large_request_is_not_held_once_it_was_answered() -> None:
    async def main(base: str) -> int:
        server = Http("m", base, {})
        for size in (10, 1 << 24, 1 << 24):
            await server.ask("POST", f"{base}/x", b"x" * size)
        held = sum(map(len, server._idle.values()))
        await server.aclose()
        return held

    with serving(answer) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == 0


def test_requests_of_several_kinds_keep_to_theirs() -> None:
    seen: list[tuple[bytes, bytes, bytes]] = []

    def talk(connection: socket.socket) -> None:
        for head, body in requests(connection):
            kinds = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Type")]
            seen.append((head.split(b" HTTP")[0], kinds[0], body))
            connection.sendall(OK)

    async def main(base: str) -> None:
        server = Http("m", base, {})
        for _ in range(2):
            await server.ask("POST", f"{base}/x", b"one")
            await server.ask("GET", f"{base}/x")
            await server.ask("POST", f"{base}/y", b"two", {"Content-Type": "text/plain"})
            await server.ask("POST", f"{base}/y", b"")
        await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))
    usual = b"Content-Type: application/json"
    assert seen == 2 * [
        (b"POST /x", usual, b"one"),
        (b"GET /x", usual, b""),
        (b"POST /y", b"Content-Type: text/plain", b"two"),
        (b"POST /y", usual, b""),
    ]


def test_one_client_in_one_loop_after_another() -> None:
    with serving(answer) as port:
        base = f"http://127.0.0.1:{port}"
        server = Http("m", base, {})
        for _ in range(2):
            assert asyncio.run(server.ask("POST", f"{base}/x", b"one"))[1] == b"ok"
