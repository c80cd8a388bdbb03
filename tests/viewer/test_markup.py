"""Markdown that a model wrote: rendered, and unable to run or fetch anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench.viewer import write_site
from convbench.viewer.library import index_runs
from convbench.viewer.markup import TAGS, markdown_tree
from convbench.viewer.server import ASSETS
from tests.helpers.viewer_runs import make, question
from tests.helpers.viewing import Looked, running, viewing

ATTACKS = [
    "**x** <script>window.pwned=1</script>",
    "**x** <img src=x onerror=window.pwned=2> <svg onload=window.pwned=3>",
    "[go](javascript:window.pwned=4) **x**",
    "[go]( jAvAsCrIpT:window.pwned=5 ) [b](data:text/html,<script>window.pwned=6</script>) *x*",
    "![a](http://127.0.0.1:9/pixel.png) *x* <http://127.0.0.1:9/auto>",
    "![a][r] *x*\n\n[r]: http://127.0.0.1:9/x.png \"onerror=window.pwned=7\"",
    "```html\n<iframe srcdoc='<script>top.pwned=8</script>'></iframe>\n```",
    "```\" onmouseover=\"window.pwned=9\n**x**\n```",
    "| a | b |\n|-|-|\n| <style>*{background:url(//127.0.0.1:9/s)}</style> | `</code><script>` |",
    "<math><mi//xlink:href=\"data:x,<script>window.pwned=10</script>\"> **x**",
    "# <base href=http://127.0.0.1:9/> <meta http-equiv=refresh content=0;url=http://127.0.0.1:9/>",
    "&lt;script&gt;window.pwned=11&lt;/script&gt; **x**",
    "1. a\n2. <form action=http://127.0.0.1:9/><button>go</button></form>",
]  # fmt: skip


def tags(found: Any) -> Iterator[str]:
    """Every element of a tree."""
    for one in found:
        if isinstance(one, list):
            assert isinstance(one[0], str)
            assert len(one) == 2 or (one[0] == "ol" and isinstance(one[2], int))
            yield one[0]
            yield from tags(one[1])


def words(found: Any) -> str:
    """The text of a tree."""
    return "".join(one if isinstance(one, str) else words(one[1]) for one in found)


def test_what_models_write_is_rendered() -> None:
    assert markdown_tree(
        "# A\n\n**b** *c* `d` ~~e~~\n\n3. x\n4. y\n\n> q\n\n```py\na < b\n```"
    ) == [
        ["h1", ["A"]],
        ["p", [["strong", ["b"]], " ", ["em", ["c"]], " ", ["code", ["d"]], " ", ["s", ["e"]]]],
        ["ol", [["li", ["x"]], ["li", ["y"]]], 3],
        ["blockquote", [["p", ["q"]]]],
        ["pre", [["code", ["a < b\n"]]]],
    ]
    assert markdown_tree("| a |\n|-|\n| 1 |")[0][0] == "table"  # type: ignore[index]
    assert markdown_tree("no sign of it\nat all") is None
    said = words(markdown_tree("*x* [paper](https://example.org/p) ![plot](p.png)"))
    assert said == "x paper (https://example.org/p) [picture: plot (p.png)]"


@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_become_words(text: str) -> None:
    """Only the few elements, none with an attribute; what was markup is read as it was written."""
    found = markdown_tree(text)
    if found is not None:
        assert set(tags(found)) <= TAGS
        for sign in ("<script", "<img", "<iframe", "<style", "<form", "<base"):
            assert (sign in text.replace("&lt;", "<")) <= (sign in words(found))


@pytest.mark.parametrize(
    "text", ["> " * 9000 + "x", "*" * 39_000, "[" * 39_000, "**a" * 12_000, "- " * 15_000 + "x",
             "`" * 20_000 + "a", "|" * 30_000 + "\n|-|", "![" * 15_000, "a\n" * 15_000 + "1"]
)  # fmt: skip
def test_hostile_lengths_end_and_have_no_depth(text: str) -> None:
    found = markdown_tree(text)
    deep, now = 0, found or []
    while now:
        now = [child for one in now if isinstance(one, list) for child in one[1]]
        deep += 1
    assert deep <= 60
    assert markdown_tree("*" + "x" * 40_001) is None


def test_page_knows_the_same_elements() -> None:
    text = (ASSETS / "dom.js").read_text()
    listed = text.split("const MARKS = new Set(")[1].split('"')[1].split()
    assert set(listed) == TAGS


def test_attacks_do_nothing_in_a_browser(look: Looked, tmp_path: Path) -> None:
    """Served and as files, rendered and as written: nothing runs, nothing is asked for."""
    said = "\n\n".join([*ATTACKS, "# A heading"])
    run = make(tmp_path / "run", [question(0)], [(0, 0, said, {})], {})
    write_site(index_runs([run.path], lambda text: None), tmp_path / "site", lambda text: None)
    name = next(run.conversations()).conversation_id
    from aiohttp import web

    files = web.Application()
    files.add_routes([web.static("/", tmp_path / "site")])
    with viewing(run.path) as viewer, running(lambda port: files) as port:
        for address in (
            viewer.page(f"#/c/{name}"),
            f"http://127.0.0.1:{port}/index.html#/c/{name}",
        ):
            page = look.open(address)
            page.locator(".marked h1", has_text="A heading").wait_for()
            assert page.locator(".marked strong").count() >= 3
            inside = "main script, main img, main iframe, main style, main [onerror]"
            assert page.locator(inside).count() == 0
            assert page.locator(".marked a").count() == 0
            page.keyboard.press("m")
            page.locator(".turn.final .said:not(.marked)", has_text="# A heading").wait_for()
            assert page.locator(inside).count() == 0
            page.keyboard.press("m")
            page.locator(".marked h1").last.wait_for()
            assert page.evaluate("window.pwned") is None
        assert [url for url in look.asked if "127.0.0.1:9/" in url] == []
