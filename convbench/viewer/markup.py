"""Convert Markdown that a model wrote into a tree of elements that cannot run or fetch anything.

The text is rendered (markdown-it-py, HTML in it is escaped), sanitised (nh3: a few tags, no
attribute but the first number of a list) and parsed into nested lists. The page creates elements
from those by name, so that no text ever becomes markup in a browser. A link or a picture becomes
text: its own, then its address.
"""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

TAGS = frozenset(
    {
        "p",
        "br",
        "hr",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "strong",
        "em",
        "s",
        "code",
        "pre",
        "blockquote",
        "ul",
        "ol",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
)
"""Elements that a tree may contain; the page has the same list."""
EMPTY = frozenset({"br", "hr"})
LONGEST = 40_000
"""Largest number of characters that are rendered; longer text stays as it is."""
DEEPEST = 40
"""Deepest nesting of elements."""

Tree = list[Any]
"""Texts, and elements as [tag, children]; a list that starts at 3 is ["ol", children, 3]."""


def markdown_tree(text: str) -> Tree | None:
    """Return the elements of a Markdown text as nested lists of texts and [tag, children]; an
    ordered list may have its first number third.

    None if the text has more than 40,000 characters or consists of plain paragraphs. HTML in it
    stays text; a link becomes its text and address.
    """
    if len(text) > LONGEST or not _has_markup(text):
        return None
    import nh3

    parser = _TreeParser()
    html = _make_renderer().render(text)
    parser.feed(nh3.clean(html, tags=set(TAGS), attributes={"ol": {"start"}}, link_rel=None))
    parser.close()
    elements = parser.root
    if all(
        isinstance(element, list) and element[0] == "p" and _is_plain(element[1])
        for element in elements
    ):
        return None
    return elements


def _has_markup(text: str) -> bool:
    """Return True if a text contains a character with a meaning in Markdown."""
    return any(sign in text for sign in "*_`#>|~[]-+=\\&") or "1" in text


def _is_plain(children: Tree) -> bool:
    return all(isinstance(child, str) or child[0] == "br" for child in children)


@cache
def _make_renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False, "breaks": True})
    renderer.enable(["table", "strikethrough"])
    renderer.add_render_rule("link_open", _render_nothing)
    renderer.add_render_rule("link_close", _render_nothing)
    renderer.add_render_rule("image", _render_nothing)
    renderer.core.ruler.push("addresses", _add_addresses)
    return renderer


def _render_nothing(*_: Any) -> str:
    return ""


def _add_addresses(state: Any) -> None:
    """Add the address of every link and picture to the text after it."""
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = _with_addresses(token.children)


def _with_addresses(tokens: list[Token]) -> list[Token]:
    from markdown_it.token import Token

    def text_token(text: str) -> Token:
        return Token("text", "", 0, content=text)

    out: list[Token] = []
    address, since = "", 0
    for token in tokens:
        if token.type == "image":
            out.append(text_token(f"[picture: {token.content} ({token.attrs.get('src', '')})]"))
        elif token.type == "link_open":
            address, since = str(token.attrs.get("href", "")), len(out)
        elif token.type == "link_close":
            link_text = "".join(inner.content for inner in out[since:])
            out += (
                [text_token(f" ({address})")]
                if address not in ("", link_text, f"mailto:{link_text}")
                else []
            )
        else:
            out.append(token)
    return out


class _TreeParser(HTMLParser):
    """Parses sanitised HTML into nested lists; tags that are not allowed are dropped again."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: Tree = []
        self._open: list[tuple[str, Tree]] = [("", self.root)]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in TAGS or len(self._open) > DEEPEST:
            return
        children: Tree = []
        start = dict(attrs).get("start") or ""
        number = [int(start)] if tag == "ol" and start.isdecimal() and len(start) < 10 else []
        self._open[-1][1].append([tag, children, *number])
        if tag not in EMPTY:
            self._open.append((tag, children))

    def handle_endtag(self, tag: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth][0] == tag:
                del self._open[depth:]
                return

    def handle_data(self, data: str) -> None:
        inside = self._open[-1][0]
        if data.strip() or inside in ("p", "li", "code", "pre", "strong", "em", "td", "th"):
            self._open[-1][1].append(data)
