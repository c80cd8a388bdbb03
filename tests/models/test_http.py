"""What a call's HTTP client does with connections, and does not: real sockets, on this machine."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme

from convbench.errors import FatalModelError
from convbench.models import http
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.http import BadStatus, HttpClient
from convbench.net.body import BadBody

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
        server = HttpClient("m", base, headers or {})
        try:
            method = {True: "GET", False: "POST"}
            return [
                (await server.send_request(method[one is None], f"{base}/x", one))[1]
                for one in bodies
            ]
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


def test_no_question_is_sent_twice_unasked_either() -> None:
    """GET too, which aiohttp would send again by itself."""
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            seen.append(head.split(b" HTTP")[0])
            if len(seen) == 2:
                return
            connection.sendall(OK)

    with serving(talk) as port, pytest.raises(BrokenReply, match="connection lost"):
        ask(f"http://127.0.0.1:{port}", None, None)
    assert seen == [b"GET /x"] * 2


def test_no_file_is_asked_for_twice_unasked() -> None:
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            seen.append(head)
            if len(seen) == 2:
                return
            connection.sendall(OK)

    async def main(base: str) -> None:
        server = HttpClient("m", base, {})
        try:
            await server.send_request("GET", f"{base}/x")
            with pytest.raises(BrokenReply, match="connection lost"):
                await anext(server.iter_lines(f"{base}/f", 1 << 30))
        finally:
            await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))
    assert len(seen) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [b"one", None])
def test_no_redirect_is_followed(status: int, body: bytes | None) -> None:
    seen: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            seen.append(head)
            moved = f"HTTP/1.1 {status} No\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(moved.encode())

    with serving(talk) as port, pytest.raises(FatalModelError, match="redirects to"):
        ask(f"http://127.0.0.1:{port}", body)
    assert len(seen) == 1


def test_a_long_header_is_read() -> None:
    """Policies of what a page may load are longer than 8 KiB here and there."""

    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        long = b"X-Long: " + b"x" * (http.FIELD_BYTES - 100) + b"\r\n"
        connection.sendall(OK.replace(b"Content-Length", long + b"Content-Length"))

    with serving(talk) as port:
        assert ask(f"http://127.0.0.1:{port}", b"one") == [b"ok"]


def test_what_a_server_answers_before_it_has_read_all() -> None:
    answered = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 413 No\r\nContent-Length: 4\r\n\r\nlong")
        answered.wait(60)  # nobody reads on

    async def main(base: str) -> tuple[int, bytes]:
        server = HttpClient("m", base, {})
        try:
            return (await server.send_request("POST", f"{base}/x", b"x" * (32 << 20)))[:2]
        finally:
            answered.set()
            await server.aclose()

    with serving(talk) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == (413, b"long")


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


@pytest.mark.parametrize("key", ["sk-\u00e9", "sk-\udcff", "sk-\x1b[1m", "sk-\0"])
def test_a_key_of_other_signs_is_no_header(key: str) -> None:
    with pytest.raises(FatalModelError, match="expected one line of ASCII") as caught:
        ask("http://127.0.0.1:1", b"one", headers={"Authorization": f"Bearer {key}"})
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("key", [None, "sk-1"])
def test_a_user_in_the_address_comes_after_a_key(key: str | None) -> None:
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            heads.append(head)
            connection.sendall(OK)

    with serving(talk) as port:
        base = f"http://me:secret@127.0.0.1:{port}/v1"
        assert ask(base, b"one", headers={"Authorization": f"Bearer {key}"} if key else {})
    said = b"Bearer sk-1" if key else b"Basic " + base64.b64encode(b"me:secret")
    assert b"Authorization: " + said in heads[0].split(b"\r\n")
    assert heads[0].startswith(b"POST /v1/x HTTP")


def secure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> ssl.SSLContext:
    """Return a server's TLS with a certificate for `name`, of an authority that is known."""
    authority = trustme.CA()
    trusted = authority if known else trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    http._tls_context.cache_clear()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def _afresh() -> Iterator[None]:
    yield
    http._tls_context.cache_clear()


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


@pytest.mark.usefixtures("_afresh")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2])
def test_tls_is_1_2_or_newer(
    version: ssl.TLSVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that knows no newer one than 1.1 gets no request; one of 1.2 does. The first would
    be spoken to by a client that takes it."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            heads.append(head)
            connection.sendall(OK)

    tls = secure(tmp_path, monkeypatch, "127.0.0.1", known=True)
    tls.set_ciphers("ALL:@SECLEVEL=0")
    tls.minimum_version, tls.maximum_version = ssl.TLSVersion.TLSv1, version
    with serving(talk, tls) as port:
        if version is ssl.TLSVersion.TLSv1_2:
            assert ask(f"https://127.0.0.1:{port}", b"one") == [b"ok"]
            return
        with pytest.raises(Unreachable, match="cannot connect"):
            ask(f"https://127.0.0.1:{port}", b"one", headers={"Authorization": "Bearer sk-1"})
        assert heads == []
        http._tls_context().set_ciphers("ALL:@SECLEVEL=0")
        http._tls_context().minimum_version = ssl.TLSVersion.TLSv1
        assert ask(f"https://127.0.0.1:{port}", b"one") == [b"ok"]


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


def tunnel(heads: list[bytes]) -> Callable[[socket.socket], None]:
    """Return a proxy that connects to this machine, whatever host it is asked for."""

    def talk(connection: socket.socket) -> None:
        head = next(requests(connection))[0]
        heads.append(head)
        port = int(head.split()[1].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as other:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pour, args=(other, connection), daemon=True)
            back.start()
            pour(connection, other)
            back.join()

    return talk


def pour(source: socket.socket, into: socket.socket) -> None:
    """Hand on what comes, to its end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            into.sendall(data)
        into.shutdown(socket.SHUT_WR)


@pytest.mark.usefixtures("_afresh")
def test_tls_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes to the server alone, the proxy's password to the proxy alone; the certificate is
    the server's."""
    at_proxy: list[bytes] = []
    at_server: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, body in requests(connection):
            at_server.append(head + body)
            connection.sendall(OK)

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    tls = secure(tmp_path, monkeypatch, "model.example", known=True)
    with serving(talk, tls) as port, serving(tunnel(at_proxy)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy}")
        key = {"Authorization": "Bearer sk-1"}
        base = f"https://model.example:{port}/v1"
        assert ask(base, b"one", b"two", headers=key) == [b"ok", b"ok"]
        assert len(at_proxy) == 1
        with pytest.raises(FatalModelError, match=r"certificate of other\.example"):
            ask(f"https://other.example:{port}/v1", b"one", headers=key)
    basic = b"Basic " + base64.b64encode(b"me:secret")
    for head in at_proxy:
        assert b"Proxy-Authorization: " + basic in head.split(b"\r\n")
        assert b"sk-1" not in head
    assert [(b"Bearer sk-1" in said, said[-3:]) for said in at_server] == [
        (True, b"one"), (True, b"two"),
    ]  # fmt: skip
    assert basic not in b"".join(at_server)


def test_a_proxy_is_told_no_key_but_what_it_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way to `http` it hands on the request, key and all; the key is none of its own."""
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        for head, _ in requests(connection):
            heads.append(head)
            connection.sendall(OK)

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(talk) as port:
        for proxy in (f"127.0.0.1:{port}", f"http://me:secret@127.0.0.1:{port}"):
            monkeypatch.setenv("http_proxy", proxy)
            key = {"Authorization": "Bearer sk-1"}
            assert ask("http://model.example/v1", b"one", headers=key) == [b"ok"]
    without, with_user = [head.split(b"\r\n") for head in heads]
    assert b"Authorization: Bearer sk-1" in without
    assert not [line for line in without if line.lower().startswith(b"proxy-authorization")]
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"me:secret") in with_user


def test_another_kind_of_proxy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "socks5://me:secret@127.0.0.1:1")
    with pytest.raises(FatalModelError, match="https_proxy: found 'socks5://127") as caught:
        ask("https://model.example/v1", b"one")
    assert "secret" not in str(caught.value)


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
        server, count = HttpClient("m", base, {}), 0
        async for line in server.iter_lines(f"{base}/f", 1 << 30):
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
        server = HttpClient("m", base, {})
        lines = server.iter_lines(f"{base}/f", 1 << 30)
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
        server = HttpClient("m", base, {})
        with pytest.raises(BadStatus) as caught:
            await anext(server.iter_lines(f"{base}/f", 1 << 30))
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
        server = HttpClient("m", base, {})
        slow = [
            asyncio.ensure_future(server.send_request("POST", f"{base}/x", b"slow"))
            for _ in range(4)
        ]
        for _ in slow:
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        slow[0].cancel()
        slow[1].cancel()
        assert (await server.send_request("POST", f"{base}/x", b"quick"))[1] == b"ok"
        answers.set()
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in ended] == [True] * 2 + [
            False
        ] * 2
        await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


def test_a_large_request_is_not_held_once_it_was_answered() -> None:
    async def main(base: str) -> list[int]:
        server, held = HttpClient("m", base, {}), []
        for size in (10, 1 << 24, 1 << 24):
            body = b"x" * size
            before = sys.getrefcount(body)
            await server.send_request("POST", f"{base}/x", body)
            held.append(sys.getrefcount(body) - before)
        await server.aclose()
        return held

    with serving(answer) as port:
        assert asyncio.run(main(f"http://127.0.0.1:{port}")) == [0, 0, 0]


def test_no_connection_is_left() -> None:
    """Neither of calls that ended nor of those that were given up."""
    heard: list[bytes] = []
    ended: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        body = b""
        for _, body in requests(connection):
            heard.append(body)
            if body != b"never":
                connection.sendall(OK)
        ended.append(body)

    async def main(base: str) -> None:
        server = HttpClient("m", base, {})
        never = [
            asyncio.ensure_future(server.send_request("POST", f"{base}/x", b"never")) for _ in "abc"
        ]
        await asyncio.gather(*(server.send_request("POST", f"{base}/x", b"one") for _ in "ab"))
        await until(lambda: heard.count(b"never") == 3)
        for call in never:
            call.cancel()
        await asyncio.wait(never)
        await until(lambda: ended == [b"never"] * 3)
        await server.aclose()
        await until(lambda: sorted(ended) == [b"never"] * 3 + [b"one"] * 2)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, a minute at most."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_body_without_end_is_not_taken_on() -> None:
    """Its connection is closed at the limit, while the client goes on and the error is held."""
    ended: list[bool] = []

    def talk(connection: socket.socket) -> None:
        next(requests(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                connection.sendall(b" " * (1 << 20))
        except OSError:
            ended.append(True)

    async def main(base: str) -> None:
        server = HttpClient("m", base, {})
        with pytest.raises(BadBody, match="longer than 8 MiB") as caught:
            await server.send_request("POST", f"{base}/x", b"one")
        await until(lambda: bool(ended))
        assert not caught.value.stops_run
        await server.aclose()

    with serving(talk) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


def test_requests_of_several_kinds_keep_to_theirs() -> None:
    seen: list[tuple[bytes, bytes, bytes]] = []

    def talk(connection: socket.socket) -> None:
        for head, body in requests(connection):
            kinds = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Type")]
            seen.append((head.split(b" HTTP")[0], kinds[0], body))
            connection.sendall(OK)

    async def main(base: str) -> None:
        server = HttpClient("m", base, {})
        for _ in range(2):
            await server.send_request("POST", f"{base}/x", b"one")
            await server.send_request("GET", f"{base}/x")
            await server.send_request("POST", f"{base}/y", b"two", {"Content-Type": "text/plain"})
            await server.send_request("POST", f"{base}/y", b"")
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
        server = HttpClient("m", base, {})
        for _ in range(2):
            assert asyncio.run(server.send_request("POST", f"{base}/x", b"one"))[1] == b"ok"
        asyncio.run(server.aclose())
