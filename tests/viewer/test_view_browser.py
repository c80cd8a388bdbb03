"""The viewer as a person uses it, in a real headless browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from convbench.viewer import write_site
from convbench.viewer.library import index_runs
from tests.helpers import stages
from tests.helpers.viewer_runs import EVIL, HOSTILE, hostile, make, many, question, world
from tests.helpers.viewing import Looked, Viewer, running, viewing
from tests.support.exhaustive import first_of

RIGHT_ONE = "q3s0"
"""How the id of a conversation with siblings ends."""


def an_id(viewer: Viewer, end: str, policy: str = "local:base") -> str:
    """The conversation whose id ends so."""
    rows = viewer.json("/api/list?limit=100")["rows"]
    return next(
        r["conversation_id"]
        for r in rows
        if r["conversation_id"].endswith(end) and r["policy"] == policy
    )


def rows(page: Any) -> Any:
    """The rows of the list."""
    return page.locator("table.rows tbody tr")


def count_is(page: Any, number: int) -> None:
    """Wait until the list says so many."""
    page.locator(".count strong", has_text=re.compile(f"^{number}$")).wait_for()


def test_overview_shows_the_figures_and_leads_to_the_list(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page())
    assert page.title() == "Overview · convbench"
    assert "token" not in page.url
    figures = page.locator("main").inner_text()
    assert "20" in figures
    assert "local:base" in figures
    page.get_by_role("link", name="Unparsed").click()
    count_is(page, 1)
    assert page.url.endswith("#/list?result=unparsed")


def test_filters_search_and_condition_narrow_the_list(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page("#/list"))
    count_is(page, 20)
    page.get_by_label("wrong").check()
    count_is(page, 7)
    assert page.get_by_label("wrong").is_checked()
    page.get_by_role("searchbox").fill("number 5")
    count_is(page, 1)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Clear all").click()
    count_is(page, 20)
    page.get_by_label("Least reward").fill("0.5")
    page.keyboard.press("Enter")
    count_is(page, 12)
    page.get_by_role("button", name="Clear all").click()
    count_is(page, 20)
    page.get_by_label("SQL condition").fill("len(flags) > 0")
    page.keyboard.press("Enter")
    count_is(page, 1)
    page.get_by_label("SQL condition").fill("DROP TABLE conversations")
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("alert").filter(has_text="not valid SQL").wait_for()
    look.troubles.clear()  # the browser reports the 400 itself


def test_columns_sort_both_ways(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page("#/list"))
    head = page.get_by_role("columnheader", name="rules")
    head.get_by_role("button").click()
    page.locator("th[aria-sort=descending]").wait_for()
    assert rows(page).first.locator(".c-reward").first.inner_text() == "0.90"
    head.get_by_role("button").click()
    page.locator("th[aria-sort=ascending]").wait_for()
    assert rows(page).first.locator(".c-reward").first.inner_text() == "0.30"


def test_keyboard_walks_opens_and_returns(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page("#/list"))
    for key in "jjk":
        page.keyboard.press(key)
    second = rows(page).nth(0).get_attribute("data-id")
    assert page.evaluate("document.activeElement.closest('tr').dataset.id") == second
    page.keyboard.press("Enter")
    page.locator(".talk-page").wait_for()
    assert second in page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda url: second not in url)
    page.locator(".talk-page .id").wait_for()
    page.keyboard.press("u")
    count_is(page, 20)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("Keyboard").wait_for()


def test_conversation_folds_thinking_and_shows_prompt_and_reference(
    look: Looked, viewer: Viewer
) -> None:
    """A deep link opens it; what is hidden is in the page only once somebody asks."""
    page = look.open(viewer.page("#/c/" + an_id(viewer, RIGHT_ONE)))
    assert page.get_by_role("heading", level=1).inner_text().endswith("number 3 pull?")
    thought = page.locator("details.think", has_text="Magnets pull iron.")
    assert not thought.locator(".said").is_visible()
    page.keyboard.press("t")
    assert thought.locator(".said").is_visible()
    assert "the hidden hint" not in page.content()
    page.get_by_role("button", name="Show the reference").click()
    assert "the hidden hint" in page.locator(".reference").inner_text()
    page.get_by_role("button", name="Prompt").last.click()
    prompt = page.locator(".prompt:visible")
    prompt.get_by_text("You are a careful student.").wait_for()
    assert prompt.locator("dt").all_inner_texts() == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    verdicts = page.locator(".verdict")
    assert verdicts.count() == 2
    assert "strict" in verdicts.nth(1).inner_text()
    assert "no score" in verdicts.nth(1).inner_text()
    assert "rules finds this worth 8." in verdicts.nth(0).inner_text()


def test_a_score_of_two_digits_stands_in_one_line(look: Looked, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": messages, "reward": 0.24}))
    done = stages.import_logs(log, tmp_path / "run")
    with viewing(done.path) as viewer:
        talk = next(iter(done.conversations()))
        page = look.open(viewer.page(f"#/c/{talk.conversation_id}"))
        score = page.locator(".scores .headline .num")
        assert score.inner_text() == "0.24"
        lines = score.evaluate(
            "e => { const r = document.createRange(); r.selectNodeContents(e);"
            " return new Set([...r.getClientRects()].map((one) => one.top)).size }"
        )
        assert lines == 1


def test_compare_sets_policies_and_judges_side_by_side(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page("#/c/" + an_id(viewer, RIGHT_ONE)))
    page.keyboard.press("c")
    columns = page.locator(".column")
    columns.nth(2).wait_for()
    said = [columns.nth(k).inner_text() for k in range(columns.count())]
    assert ["tuned" in text for text in said] == [False, False, True]
    assert "strict" in said[0]
    columns.nth(0).locator("summary", has_text="Why").click()
    columns.nth(0).get_by_text("rules finds this worth 8.").wait_for()
    page.locator(".picker summary").click()
    page.locator(".picker input").first.uncheck()
    page.get_by_text("2 of 3 answers shown").wait_for()


def test_score_is_kept_blind_until_then_and_agreement_follows(look: Looked, tmp_path: Path) -> None:
    world(tmp_path / "run")
    with viewing(tmp_path / "run") as viewer:
        page = look.open(viewer.page("#/c/" + an_id(viewer, "q0s0")))
        page.keyboard.press("s")
        assert page.locator(".verdict").count() == 0
        page.get_by_label("Your name").fill("ada")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("alert").filter(has_text="Give Overall").wait_for()
        page.get_by_role("group", name="Overall").get_by_text("7", exact=True).click()
        page.get_by_label("Note").fill("good <b>\u2028")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("convbench judge --judge human:").wait_for()
        assert page.locator(".verdict").count() == 2
        assert page.locator(".given").inner_text().startswith("ada")
        agreed = page.locator(".agreement tbody tr")
        assert [agreed.nth(k).inner_text().split("\t")[0] for k in range(2)] == ["rules", "strict"]
        page.reload()
        page.get_by_role("button", name="Change my score").wait_for()
        page.keyboard.press("c")
        page.locator(".column th", has_text="ada").wait_for()


@pytest.mark.parametrize("end", ["q7s0", "q7s1"])
def test_hostile_words_stay_words(look: Looked, viewer: Viewer, end: str) -> None:
    """In the list, the conversation, the prompt, the reference and the comparison."""
    name = an_id(viewer, end)
    for at in ("#/list?q=onerror", f"#/c/{name}", f"#/compare/{name}"):
        page = look.open(viewer.page(at))
        for button in ("Show the reference", "Prompt"):
            for one in page.get_by_role("button", name=button).all():
                one.click()
        page.locator("main", has_text="<script>window.pwned=1</script>").wait_for()
        assert page.evaluate("window.pwned") is None
        assert "\u202e" not in page.locator("main").inner_text()
        assert page.locator("main script, main svg[onload], main [onerror]").count() == 0
    assert "<svg onload=window.pwned=4>{{7*7}}" in page.locator("h1").inner_text()


def test_hostile_names_stay_names(look: Looked, tmp_path: Path) -> None:
    """Of ids, judges, policies, flags, files, people, wherever a page shows one."""
    run = hostile(tmp_path / EVIL.replace("/", "_"))
    run.reports_folder.mkdir()
    (run.reports_folder / f"x{EVIL.replace('/', '_')}.svg").write_text("<svg/>")
    with viewing(run.path) as viewer:
        page = look.open(viewer.page())
        assert EVIL in page.locator("main").inner_text()
        look.open(viewer.page("#/list"))
        count_is(page, 2)
        rows(page).first.locator("a").click()
        page.locator(".talk-page").wait_for()
        page.keyboard.press("s")
        page.get_by_label("Your name").fill(EVIL)
        page.get_by_role("group", name="Overall").get_by_text("7", exact=True).click()
        page.get_by_label("Note").fill(EVIL)
        page.get_by_role("button", name="Save").click()
        page.get_by_text("convbench judge --judge").wait_for()
        for button in page.get_by_role("button", name="Prompt").all():
            button.click()
        page.locator(".prompt:visible", has_text="You are a careful student.").last.wait_for()
        shown = page.locator("main").inner_text()
        page.keyboard.press("c")
        page.locator(".column").nth(1).wait_for()
        page.locator(".picker summary").click()
        shown += page.locator("main").inner_text()
        assert shown.count(EVIL) > 20
        inside = "main script, main iframe, main [onerror], main [onload], main a[href^=java]"
        assert page.locator(inside).count() == 0
        assert page.evaluate("window.pwned") is None
        assert [url for url in look.asked if not url.startswith(viewer.address)] == []


def test_nothing_is_asked_of_other_machines(look: Looked, viewer: Viewer) -> None:
    name = an_id(viewer, "q7s0")
    for at in ("", "#/list", f"#/c/{name}", f"#/compare/{name}"):
        look.open(viewer.page(at))
    assert look.asked
    assert [url for url in look.asked if not url.startswith(viewer.address)] == []


def test_without_the_key_there_is_only_a_hint(look: Looked, viewer: Viewer) -> None:
    answer = look.page.goto(viewer.address + "/")
    assert answer.status == 403
    assert "convbench view" in look.page.content()
    look.troubles.clear()  # the browser reports the 403 itself


READABLE = (Path(__file__).parent / "readable.js").read_text()


@pytest.mark.parametrize("scheme", first_of(["dark", "light"]))
def test_every_page_reads_well(look: Looked, viewer: Viewer, scheme: str) -> None:
    """Contrast of 4.5 to 1, a name for every control, no sideways scrolling, focus in order."""
    look.page.emulate_media(color_scheme=scheme)
    name = an_id(viewer, "q0s1")
    for at in ("", "#/list", "#/list?result=wrong", f"#/c/{name}", f"#/compare/{name}"):
        page = look.open(viewer.page(at))
        if "#/c/" in at:
            page.keyboard.press("s")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            found = page.evaluate(READABLE)
            assert found == {"pale": [], "nameless": [], "wider": 0}, (at, width)
    page = look.open(viewer.page("#/list"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert page.locator("header, nav, main, aside").count() >= 4


def test_theme_is_kept(look: Looked, viewer: Viewer) -> None:
    page = look.open(viewer.page("#/list"))
    before = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    page.keyboard.press("d")
    after = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert before != after
    page.reload()
    look.drawn()
    again = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    assert again == after


def test_pages_of_the_list(look: Looked, tmp_path: Path) -> None:
    examples = [question(n) for n in range(120)]
    make(tmp_path / "run", examples, [(n, 0, "The answer is B.", {}) for n in range(120)], {})
    with viewing(tmp_path / "run") as viewer:
        page = look.open(viewer.page("#/list"))
        page.get_by_text("1–50 of 120").wait_for()
        page.get_by_role("button", name="After").click()
        page.get_by_text("51–100 of 120").wait_for()
        page.keyboard.press("]")
        page.get_by_text("101–120 of 120").wait_for()
        assert rows(page).count() == 20
        page.keyboard.press("[")
        page.get_by_text("51–100 of 120").wait_for()
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        page.locator(".talk-page").wait_for()
        page.keyboard.press("k")  # over the edge of the page
        page.locator("h1", has_text="number 49").wait_for()
        page.go_back()
        page.locator("h1", has_text="number 50").wait_for()


def test_files_show_the_same_without_scoring_and_sql(
    look: Looked, folder: Path, tmp_path: Path
) -> None:
    write_site(index_runs([folder], lambda text: None), tmp_path / "site", lambda text: None)
    app = web.Application()
    app.add_routes([web.static("/", tmp_path / "site")])
    with running(lambda port: app) as port:
        at = f"http://127.0.0.1:{port}/index.html"
        page = look.open(at + "#/list?result=wrong")
        count_is(page, 7)
        page.get_by_role("searchbox").fill('"number 5"')
        count_is(page, 1)
        assert page.locator("textarea").count() == 0
        rows(page).first.click()
        page.locator(".talk-page").wait_for()
        assert page.get_by_role("button", name="Score").count() == 0
        page.get_by_role("button", name="Prompt").first.click()
        page.get_by_text("You are a careful student.").wait_for()
        page.keyboard.press("c")
        page.locator(".column").nth(1).wait_for()
        look.open(at + "#/list?q=onerror")
        count_is(page, 2)
        assert page.evaluate("window.pwned") is None
        assert HOSTILE[:20] in page.locator("table.rows").inner_text()


def test_files_opened_from_the_disk_say_what_they_need(
    look: Looked, folder: Path, tmp_path: Path
) -> None:
    """A browser gives a page that is itself a file no other file: it must be served."""
    write_site(index_runs([folder], lambda text: None), tmp_path / "site", lambda text: None)
    look.page.goto((tmp_path / "site" / "index.html").as_uri())
    hint = look.page.get_by_text("Opened as a file, this page cannot read its data.")
    hint.wait_for()
    assert "python -m http.server" in hint.inner_text()
    look.troubles.clear()  # the browser reports what it refused


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_hundred_thousand_conversations(look: Looked, tmp_path: Path) -> None:
    """First page, search, filter, order, last page, one conversation, all of them whole: after the
    first conversations, which are shown until all are read."""
    many(tmp_path / "run", 100_000)
    with viewing(tmp_path / "run") as viewer:
        page = look.open(viewer.page("#/list"))
        page.locator("#live").get_by_text("Only the first 200 conversations").wait_for()
        page.locator(".count strong", has_text="100,000").wait_for(timeout=600_000)
        assert rows(page).count() == 50
        page.get_by_role("searchbox").fill('"unit 4711 "')
        count_is(page, 0)
        page.get_by_role("searchbox").fill('"unit 99999"')
        count_is(page, 1)
        rows(page).first.click()
        page.locator(".id", has_text="c00099999").wait_for()
        page.keyboard.press("u")
        page.get_by_role("button", name="Clear all").click()
        page.get_by_label("correct").check()
        page.locator(".count strong", has_text="33,334").wait_for()
        look.open(viewer.page("#/list?sort=words&offset=99950"))
        page.get_by_text("99,951–100,000 of 100,000").wait_for()
