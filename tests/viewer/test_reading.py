"""Reading one conversation in a real browser: search inside, copy, settings, digits, columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.views import messages_before
from tests.helpers.viewer_runs import make, question, world
from tests.helpers.viewing import Looked, viewing

SAID = (
    "<thinking>First, **iron** is magnetic.</thinking> The *iron* answer: iron.\n\n"
    "```html\n<html><body><h1>Magnets</h1><script>fetch('http://127.0.0.1:9/')</script></body></html>"
    "\n```\n\nThe answer is B."
)

DRAWN = """async () => {
  while (!(document.querySelector('.page-picture img').naturalWidth > 100))
    await new Promise(requestAnimationFrame);
}"""


@pytest.mark.exhaustive
def test_one_conversation_is_searched_copied_and_read_by_settings(
    look: Looked, tmp_path: Path
) -> None:
    run = make(tmp_path / "run", [question(0)], [(0, 0, SAID, {})], {"rules": lambda k: 8.0})
    (record,) = run.conversations()
    with viewing(run.path) as viewer:
        look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = look.open(viewer.page(f"#/c/{record.conversation_id}?q=iron"))
        page.locator(".find .n", has_text="of").wait_for()  # what the list was searched for
        page.keyboard.press("/")
        page.keyboard.type("iron answer")
        page.keyboard.press("Enter")
        found = page.evaluate("[...CSS.highlights.get('found')].map(String)")
        assert "iron" in [one.lower() for one in found]
        page.get_by_label("Search in this conversation").fill('"iron is magnetic"')
        page.keyboard.press("Enter")  # across an element, in what was folded
        page.locator(".find .n", has_text="1 of 1").wait_for()
        assert page.locator("details.think").first.get_attribute("open") is not None
        page.keyboard.press("Escape")
        page.keyboard.press("y")
        page.get_by_role("button", name="Copied").wait_for()
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        wanted = messages_before(run.manifest.protocol, record, "assistant")
        assert copied == [{"role": m["role"], "content": m["content"]} for m in wanted]
        assert copied[-1] == {"role": "assistant", "content": SAID}
        # The page that was written, as pixels from a browser without a network.
        page.get_by_role("button", name="Show the page as a picture").click()
        image = page.locator(".page-picture img")
        image.wait_for()
        page.evaluate(DRAWN)
        assert viewer.ask(f"/pages/{record.conversation_id}/1")[0].status == 404
        # The reference at once, as a setting that stays.
        assert "the hidden hint" not in page.content()
        page.keyboard.press(",")
        page.get_by_label("Show the reference at once").check()
        page.locator(".reference", has_text="the hidden hint").wait_for()
        page.reload()
        page.locator(".reference", has_text="the hidden hint").wait_for()


def test_digits_score_and_columns_are_picked(look: Looked, tmp_path: Path) -> None:
    world(tmp_path / "run")
    with viewing(tmp_path / "run") as viewer:
        row = viewer.json("/api/list?result=correct")["rows"][0]
        page = look.open(viewer.page(f"#/c/{row['conversation_id']}"))
        page.keyboard.press("s")
        page.get_by_label("Your name").fill("ada")
        page.locator(".scale input").first.focus()
        scales = page.locator(".scale").count()
        for digit in "7" * (scales - 1):
            page.keyboard.press(digit)
        page.keyboard.type("10")
        page.get_by_role("button", name="Save").click()
        page.locator(".given").wait_for()
        (label,) = viewer.json(f"/api/talk/{row['conversation_id']}")["labels"]
        given = [value for value in label.values() if isinstance(value, int)]
        assert given == [7] * (scales - 1) + [10]
        look.open(viewer.page("#/list"))
        heads = page.locator("table.rows thead")
        assert "strict" in heads.inner_text()
        page.locator(".columns-picker summary").click()
        page.get_by_label("Reward strict").uncheck()
        page.get_by_label("Prompt tokens").check()
        page.locator("th", has_text="Tokens in").wait_for()
        page.reload()
        page.locator("th", has_text="Tokens in").wait_for()
        assert "strict" not in heads.inner_text()
