"""Pages: rendered alike, reached by nobody, compared with what they should look like."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench import views
from convbench.judges.render import BLANK, black_page, page_similarity, random_pairs
from convbench.sandbox import tailwind
from convbench.sandbox.page import (
    first_html,
    html_of,
    one_photo,
    placeholder_png,
    size_of,
    visible_text,
)
from convbench.schema import Example
from convbench.store import Run
from tests.helpers import plug_frontend
from tests.helpers.cli import convbench
from tests.helpers.excerpts import Source
from tests.helpers.sandbox import OTHER, renders, shot

TASKS = "facebook__collaborative_agent_bench/frontend_tasks/test.parquet"
PLUGIN = Path(plug_frontend.__file__)


@pytest.mark.parametrize(
    ("url", "size"),
    [
        ("https://picsum.photos/id/48/1600/900", (1600, 900)),
        ("https://picsum.photos/300/200", (300, 200)),
        ("https://via.placeholder.com/150", (150, 150)),
        ("https://via.placeholder.com/300x120?text=x", (300, 120)),
        ("https://example.org/logo.png", (400, 300)),
        ("https://picsum.photos/9999/9999", (2000, 2000)),
    ],
)
def test_placeholders_have_the_size_that_is_asked_for(url: str, size: tuple[int, int]) -> None:
    assert size_of(url) == size


def test_what_counts_as_the_page() -> None:
    assert html_of("a <HTML lang=x>1</HTML> b <html>2</html > c") == "<html>2</html >"
    assert html_of("<html> cut") is None
    assert first_html("a <html lang=x>1</html> b <html>2</html>") == "<html lang=x>1</html>"
    assert first_html("<html> cut <body>1</body> <body>2</body>") == "<body>1</body>"
    assert first_html("<p>no page</p>") is None


def test_random_photos_become_one_in_their_size() -> None:
    """The released code's two rules for addresses; others stay."""
    page = (
        '<img src="https://source.unsplash.com/random/300x200/?city=a"><img '
        'src="https://picsum.photos/40/30"><img src="https://picsum.photos/id/7/5/6">'
        '<img src="https://example.org/logo.png">'
    )
    assert one_photo(page) == (
        '<img src="https://picsum.photos/id/48/300/200"><img '
        'src="https://picsum.photos/id/48/40/30"><img src="https://picsum.photos/id/7/5/6">'
        '<img src="https://example.org/logo.png">'
    )
    assert one_photo(one_photo(page)) == one_photo(page)


def test_random_pairs_are_drawn_from_the_run_and_never_the_task_itself() -> None:
    names = [f"e{i}" for i in range(20)]
    run = {name: Example(example_id=name, task="t", split="test", group_id=name, question="q",
                         hidden={"reference": name}) for name in names}  # fmt: skip

    def drawn(**args: int) -> dict[str, list[str]]:
        return {name: [p.example_id for p in random_pairs(run[name], run, args)] for name in names}

    found = drawn(pairs=5)
    assert all(len(set(pages)) == 5 and name not in pages for name, pages in found.items())
    assert len({page for pages in found.values() for page in pages}) == 6, "few are rendered"
    assert found == drawn(pairs=5) != drawn(pairs=5, seed=1)
    assert random_pairs(run["e0"], {"e0": run["e0"]}, {}) == []


@renders
def test_placeholders_are_the_same_each_time() -> None:
    from PIL import Image

    url = "https://picsum.photos/id/7/40/30"
    assert placeholder_png(url) == placeholder_png(url) != placeholder_png(url.replace("7", "8"))
    wide = placeholder_png("https://picsum.photos/id/7/80/60")
    with (
        Image.open(io.BytesIO(wide)) as large,
        Image.open(io.BytesIO(placeholder_png(url))) as small,
    ):
        assert (large.size, small.size) == ((80, 60), (40, 30))
        assert large.getpixel((0, 0)) == small.getpixel((0, 0)), "one photo, in two sizes"


PICTURE = (
    '<html><link href="https://cdn.jsdelivr.net/npm/tailwindcss@2.2.19/dist/tailwind.min.css" '
    'rel="stylesheet"><body class="bg-red-500"><h1 class="text-4xl">Big</h1>'
    '<img src="https://picsum.photos/id/1/300/200"></body></html>'
)


@renders
def test_pages_render_alike_with_styles_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = tmp_path / "tailwind.css"
    sheet.write_text(".bg-red-500 { background: #ef4444 } .text-4xl { font-size: 2.25rem }")
    monkeypatch.setenv("CONVBENCH_TAILWIND", str(sheet))
    one = shot(PICTURE)
    assert one.png == shot(PICTURE).png
    assert (one.width, one.height) == (1280, 720)
    kinds = {box.kind: box for box in one.boxes}
    assert (kinds["image"].width, kinds["image"].height) == (300, 200)
    assert "text <h1> 'Big'" in visible_text(one.boxes)
    assert tailwind.read_sheet() == sheet.read_bytes()
    plain = shot(PICTURE.replace("<link", "<nolink"))
    assert page_similarity(one, plain)["colour"] < 0.5, "the style sheet colours the page"


@pytest.mark.exhaustive
@renders
def test_similarity_is_one_for_itself_and_less_for_others() -> None:
    one, blank = shot(PICTURE), shot(BLANK)
    assert page_similarity(one, one)["overall"] == pytest.approx(1)
    near = page_similarity(one, shot(PICTURE.replace("Big", "Bag")))["overall"]
    far = page_similarity(one, shot(OTHER))["overall"]
    assert 1 > near > far
    assert near > page_similarity(one, blank)["overall"]
    assert page_similarity(one, black_page())["overall"] < page_similarity(one, blank)["overall"]


@pytest.fixture
def port() -> Iterator[tuple[int, list[bytes]]]:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                heard.append(b"connected")
                connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


@renders
def test_a_page_reaches_nothing(port: tuple[int, list[bytes]], tmp_path: Path) -> None:
    here = f"127.0.0.1:{port[0]}"
    secret = tmp_path / "secret.html"
    secret.write_text("<h1>SENTINEL</h1>")
    page = f"""<html><head><link rel=preconnect href="http://{here}">
    <link rel=dns-prefetch href="//{here}"><link rel=stylesheet href="http://{here}/a.css">
    <link rel=prefetch href="http://{here}/p"><style>@import url(http://{here}/b.css);
    @font-face {{ font-family: x; src: url(http://{here}/f.woff) }} body {{ font-family: x;
    background: url(http://{here}/bg.png) }}</style>
    <script src="http://{here}/s.js"></script><script>fetch("http://{here}/");
    document.write("SCRIPT RAN"); new WebSocket("ws://{here}/"); location = "http://{here}/";
    </script></head><body><iframe src="file://{secret}"></iframe><iframe src="http://{here}/"></iframe>
    <img src="file://{secret}"><video src="http://{here}/v.mp4" autoplay></video>
    <object data="file://{secret}"></object><embed src="http://{here}/e">words</body></html>"""
    found = shot(page)
    words = visible_text(found.boxes)
    assert "SENTINEL" not in words
    assert "SCRIPT RAN" not in words
    away = '<html><head><meta http-equiv="refresh" content="0;url=http://%s/"></head><body>x</body></html>'
    shot(away % here)
    assert port[1] == []


@pytest.mark.exhaustive
@renders
def test_build_and_judge_on_whole_tasks(tmp_path: Path, hub_rows: Source) -> None:
    source = f"task.source.file={hub_rows.place / TASKS}"
    built = convbench(
        tmp_path, "build", "colbench-frontend", "--set", source, "--tasks", "2", "--samples", "1",
        "--temperatures", "1.0", "--model", "rule:plug_frontend:agent",
        "--teacher", "rule:plug_frontend:human", "--plugin", str(PLUGIN), "--run", "run",
    )  # fmt: skip
    assert built.code == 0, built.err
    done = convbench(tmp_path, "judge", "--run", "run")
    assert done.code == 0, done.err
    run = Run.open(tmp_path / "run")
    talks = list(run.conversations())
    assert len(talks) == 2
    for conversation in talks:
        assert conversation.failure is None
        assert [turn.speaker for turn in conversation.turns] == [
            "human", "assistant", "browser", "human", "assistant",
        ]  # fmt: skip
        asked = run.examples[conversation.example_id]
        made = run.manifest.protocol
        assert conversation.turns[3].content == "I see 2 pictures and 2 messages; make it green."
        for index in (1, 4):
            seen = views.messages_before(made, conversation, made.policy, index)
            assert all(isinstance(m["content"], str) for m in seen), "the agent sees no picture"
            assert asked.hidden["reference"][:60] not in str(seen)
        human = views.messages_before(made, conversation, "human", 3)
        assert "secret" not in str(human)
        assert "<html" not in str(human)
    for verdict in run.verdicts():
        assert verdict.failure is None, verdict
        assert 0 < verdict.scores["overall"] < 1
        assert 0 < verdict.scores["blank"] < 1
        assert verdict.reward == verdict.scores["overall"]
    assert len(list(run.media_folder.iterdir())) == 3, json.dumps(
        [p.name for p in run.media_folder.iterdir()]
    )
