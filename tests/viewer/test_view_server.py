"""Who gets an answer from the viewer's server, and what people's scores become."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import RunError
from convbench.judges.scoring_form import default_rubric
from convbench.store import Run
from convbench.viewer.labels import labels_file
from convbench.viewer.server import open_socket
from tests.helpers import stages
from tests.helpers.viewer_runs import world
from tests.helpers.viewing import TOKEN, Viewer, viewing

INSIDE = ("/", "/assets/main.js", "/api/overview", "/api/list", "/reports/0/x.svg")


@pytest.mark.parametrize("path", INSIDE)
def test_without_key_nothing_is_answered(viewer: Viewer, path: str) -> None:
    for cookie in ("", f"convbench_{viewer.port}=wrong", f"convbench_1={TOKEN}"):
        response, body = viewer.ask(path, Cookie=cookie)
        assert response.status == 403
        assert b"conversation" not in body
    assert viewer.ask(path + "?token=wrong", cookie=False)[0].status == 403


def test_key_in_the_address_becomes_a_strict_cookie(viewer: Viewer) -> None:
    response, _ = viewer.ask(f"/?token={TOKEN}", cookie=False)
    assert response.status == 200
    cookie = response.headers["Set-Cookie"]
    assert f"convbench_{viewer.port}={TOKEN}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    # Only the page itself takes a key from its address.
    assert viewer.ask(f"/api/list?token={TOKEN}", cookie=False)[0].status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil:80",
     "0.0.0.0:{port}"],
)  # fmt: skip
def test_foreign_host_is_refused_though_it_has_the_key(viewer: Viewer, host: str) -> None:
    """DNS rebinding: another site's name that leads to this machine."""
    assert viewer.ask("/api/list", Host=host.format(port=viewer.port))[0].status == 421


def answered(port: int, head: bytes) -> bytes:
    """Return what a server says to a request that is written by hand."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(head + b"\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: line.recv(65536), b""))


KEYED = f"?token={TOKEN}".encode()


@pytest.mark.parametrize(
    ("head", "status"),
    [(b"GET http://127.0.0.1/%s HTTP/1.1\r\nHost: evil.example", 421),
     (b"GET http://evil.example/%s HTTP/1.1\r\nHost: 127.0.0.1", 421),
     (b"GET http://127.0.0.1/%s HTTP/1.0\r\nX: no host", 421),
     (b"GET /%s HTTP/1.0\r\nX: no host", 421),
     (b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1:999999999", 421),
     (b"GET /%s HTTP/1.1\r\nHost: [::1", 421),
     (b"GET /assets/main.js HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: convbench_%s=\xff\xfe", 403),
     (b"GET http://127.0.0.1/%s HTTP/1.1\r\nHost: 127.0.0.1", 200)],
)  # fmt: skip
def test_an_absolute_target_is_held_to_the_same_rule(
    viewer: Viewer, head: bytes, status: int
) -> None:
    filled = head % (str(viewer.port).encode() if b"Cookie" in head else KEYED)
    said = answered(viewer.port, filled)
    assert said.startswith((f"HTTP/1.1 {status} ".encode(), f"HTTP/1.0 {status} ".encode())), said
    assert (b"Set-Cookie" in said) == (status == 200)


def test_forwarded_port_is_this_machine_still(viewer: Viewer) -> None:
    """As `ssh -L 9000:127.0.0.1:8642` gives."""
    here = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}
    assert viewer.ask("/api/list", **here)[0].status == 200


def test_foreign_origin_is_refused(viewer: Viewer) -> None:
    assert viewer.ask("/api/list", Origin="http://evil.example")[0].status == 403
    assert viewer.ask("/api/list", Origin="null")[0].status == 403
    assert viewer.ask("/api/list", Origin=viewer.address)[0].status == 200


def test_policy_allows_no_inline_script_and_no_other_place(viewer: Viewer) -> None:
    response, body = viewer.ask("/")
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert not re.search(rb"<script(?![^>]*\bsrc=)|\son\w+=|\bstyle=|https?://", body)


@pytest.mark.parametrize(
    "path",
    ["/assets/../server.py", "/assets/%2e%2e%2fserver.py", "/assets/.hidden", "/assets/nothing.js",
     "/media/0/..%2frun.json", "/media/9/x.png", "/reports/0/report.html", "/media/0/%2e%2e",
     "/reports/-1/x.svg", "/reports/0/..%2f..%2foutside.png", "/reports/0/linked.png"],
)  # fmt: skip
def test_no_other_file_can_be_had(viewer: Viewer, path: str) -> None:
    assert viewer.ask(path)[0].status == 404


@pytest.fixture(autouse=True, scope="module")
def traps(folder: Path) -> None:
    """An image outside the run, and a link to it from inside."""
    (folder.parent / "outside.png").write_bytes(b"private")
    (folder / "reports").mkdir()
    (folder / "reports" / "linked.png").symlink_to(folder.parent / "outside.png")


def test_only_images_are_served_and_they_run_nothing(viewer: Viewer, folder: Path) -> None:
    (folder / "reports" / "radar.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "reports" / "radar.png").write_bytes(b"png")
    (folder / "reports" / "report.html").write_text("<script>1</script>")
    response, _ = viewer.ask("/reports/0/radar.svg")
    assert response.headers["Content-Type"] == "image/svg+xml"
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert viewer.ask("/reports/0/report.html")[0].status == 404


def test_mistakes_are_one_line_of_json(viewer: Viewer) -> None:
    assert "no such conversation" in viewer.json("/api/talk/nope")["error"]
    assert "sort" in viewer.json("/api/list?sort=text")["error"]
    response, _ = viewer.ask("/api/list?sort=text")
    assert response.status == 400


def a_label(viewer: Viewer, **more: Any) -> dict[str, Any]:
    """A label of the first conversation."""
    name = viewer.json("/api/list?limit=1")["rows"][0]["conversation_id"]
    scores = {"overall": 7, "accuracy": 9}
    return {"conversation_id": name, "rater": "ada", "scores": scores, "note": ""} | more


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scores": {"accuracy": 3}}, "no overall"),
        ({"scores": {"overall": 11}}, "from 0 to 10"),
        ({"scores": {"overall": True}}, "from 0 to 10"),
        ({"scores": {"overall": 5, "charm": 5}}, "charm"),
        ({"rater": " "}, "rater"),
        ({"rater": "a\nb"}, "rater"),
        ({"note": "x" * 10_001}, "note"),
        ({"conversation_id": "nope"}, "no such conversation"),
    ],
)
def test_wrong_labels_are_refused(
    viewer: Viewer, folder: Path, more: dict[str, Any], said: str
) -> None:
    assert said in viewer.json("/api/score", "POST", a_label(viewer, **more))["error"]
    assert not labels_file(Run.open(folder)).exists()


def test_labels_need_json_from_this_page(viewer: Viewer, folder: Path) -> None:
    label = a_label(viewer)
    assert viewer.ask("/api/score", "POST", label, Content_Type="text/plain")[0].status == 415
    refused = viewer.ask(
        "/api/score", "POST", label, Content_Type="application/json", Origin="http://evil.example"
    )[0]
    assert refused.status == 403
    assert not labels_file(Run.open(folder)).exists()


def test_failed_conversations_are_not_scored(viewer: Viewer) -> None:
    name = viewer.json("/api/list?result=failed")["rows"][0]["conversation_id"]
    answer = viewer.json("/api/score", "POST", a_label(viewer, conversation_id=name))
    assert "only complete conversations" in answer["error"]


def test_labels_are_what_judge_human_reads(tmp_path: Path) -> None:
    """Two people, one who changes their mind and writes what a line reader might cut."""
    world(tmp_path / "run")
    with viewing(tmp_path / "run") as viewer:
        names = [row["conversation_id"] for row in viewer.json("/api/list?result=correct")["rows"]]
        for name, rater, overall in [
            (names[0], "ada", 1), (names[0], "ada", 6), (names[0], "bob", 8), (names[1], "ada", 9),
            (names[2], "ada", 4),
        ]:  # fmt: skip
            note = 'first\u2028second\nthird "x", <b>'
            label = a_label(viewer, conversation_id=name, rater=rater, scores={"overall": overall},
                            note=note)  # fmt: skip
            assert "error" not in viewer.json("/api/score", "POST", label)
        gone = a_label(viewer, conversation_id=names[2], scores={})
        assert "error" not in viewer.json("/api/score", "POST", gone)
        agreed = viewer.json("/api/agreement/0")
        assert agreed["labels"] == 3
        file = labels_file(Run.open(tmp_path / "run"))
        assert agreed["command"].startswith(f"convbench judge --judge human:{file} --run ")
        # rules gave both 8: people 7 and 9 differ from it by +1 and -1.
        rules = next(row for row in agreed["judges"] if row["judge"] == "rules")
        assert (rules["common"], rules["difference"], rules["equal"]) == (2, 0.0, 0.0)
        assert viewer.json("/api/agreement/0") == agreed
        again = a_label(viewer, conversation_id=names[1], rater="ada", scores={"overall": 8})
        assert "error" not in viewer.json("/api/score", "POST", again)
        rules = next(r for r in viewer.json("/api/agreement/0")["judges"] if r["judge"] == "rules")
        assert (rules["common"], rules["difference"], rules["equal"]) == (2, 0.5, 0.5)
        again["scores"]["overall"] = 9
        assert "error" not in viewer.json("/api/score", "POST", again)
        shown = viewer.json(f"/api/talk/{names[0]}")["labels"]
        assert {row["rater"]: row["overall"] for row in shown} == {"ada": 6, "bob": 8}
        assert shown[0]["note"] == note
    run = Run.open(tmp_path / "run")
    stages.judge(run.path, f"human:{labels_file(run)}")
    given = {v.conversation_id: v.reward for v in run.verdicts() if v.judge == "human:labels"}
    assert given == {names[0]: 0.7, names[1]: 0.9}


def test_rubric_of_people_is_the_one_that_is_read() -> None:
    spec = default_rubric()
    assert spec.reward.metric == "overall"
    assert all(metric.about for metric in spec.metrics)


def test_port_in_use_is_said_and_the_usual_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_socket(0)
    number = first.getsockname()[1]
    with pytest.raises(RunError, match=f"port {number}"):
        open_socket(number)
    other = open_socket(None, usual=number)
    assert other.getsockname()[1] != number
    assert other.getsockname()[0] == "127.0.0.1"
    first.close()
    other.close()

    def refuse(sock: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(1, "no ports here")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(RunError, match=r"port 0: cannot be used \(no ports here\)"):
        open_socket(None)


def test_browser_gets_the_key_through_a_private_file(tmp_path: Path) -> None:
    """No program has the key among its arguments; the file goes with the server."""
    note = tmp_path / "note"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {note}.new; mv {note}.new {note}\n')
    browser.chmod(0o755)
    code = (
        "import time\nfrom pathlib import Path\nfrom convbench.viewer.server import open_browser\n"
        "with open_browser('http://127.0.0.1:1/?token=SECRET', True):\n"
        f"    while not Path({str(note)!r}).exists(): time.sleep(0.02)\n"
        f"    page = Path({str(note)!r}).read_text().strip().removeprefix('file://')\n"
        "    print(oct(Path(page).parent.stat().st_mode & 0o777), Path(page).read_text())\n"
        "print(Path(page).exists())\n"
    )
    env = os.environ | {"DISPLAY": ":9", "BROWSER": f"{browser} %s"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=True,
    )
    assert "SECRET" not in note.read_text()
    assert done.stdout.startswith("0o700")
    assert "url=http://127.0.0.1:1/?token=SECRET" in done.stdout
    assert done.stdout.endswith("False\n")


def test_command_serves_until_it_is_interrupted(folder: Path) -> None:
    """The address with its key goes to stdout, the rest to stderr; Ctrl-C ends it well."""
    code = "from convbench.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "view", str(folder), "--port", "0", "--no-open"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{30,})\s*$", line)
    bad = answered(int(found[1]), b"GET / HTTP/9.9") if found else b""
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=60)
    assert found, (line, said)
    assert process.returncode == 0, said
    assert rest == ""
    assert found[2] not in said
    assert "20 conversations" in said
    assert b" 400 " in bad
    (told,) = (one for one in said.splitlines() if "request" in one)  # and no traceback
    assert "BadStatusLine: 400, message: Bad status line" in told
    assert "Traceback" not in said
