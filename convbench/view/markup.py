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


def tree(text: str) -> Tree | None:
    """Return the elements of a text, or None if it is too long or would look the same as text."""
    if len(text) > LONGEST or not _marked(text):
        return None
    import nh3

    parser = _Parser()
    html = _markdown().render(text)
    parser.feed(nh3.clean(html, tags=set(TAGS), attributes={"ol": {"start"}}, link_rel=None))
    parser.close()
    found = parser.root
    if all(isinstance(one, list) and one[0] == "p" and _plain(one[1]) for one in found):
        return None
    return found


def _marked(text: str) -> bool:
    """Return True if a text contains a character with a meaning in Markdown."""
    return any(sign in text for sign in "*_`#>|~[]-+=\\&") or "1" in text


def _plain(children: Tree) -> bool:
    return all(isinstance(one, str) or one[0] == "br" for one in children)


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark", {"html": False, "breaks": True})
    found.enable(["table", "strikethrough"])
    found.add_render_rule("link_open", _nothing)
    found.add_render_rule("link_close", _nothing)
    found.add_render_rule("image", _nothing)
    found.core.ruler.push("addresses", _addresses)
    return found


def _nothing(*_: Any) -> str:
    return ""


def _addresses(state: Any) -> None:
    """Add the address of every link and picture to the text after it."""
    for token in state.tokens:
        if token.type == "inline" and token.children:
            token.children = _told(token.children)


def _told(tokens: list[Token]) -> list[Token]:
    from markdown_it.token import Token

    def words(text: str) -> Token:
        return Token("text", "", 0, content=text)

    out: list[Token] = []
    address, since = "", 0
    for token in tokens:
        if token.type == "image":
            out.append(words(f"[picture: {token.content} ({token.attrs.get('src', '')})]"))
        elif token.type == "link_open":
            address, since = str(token.attrs.get("href", "")), len(out)
        elif token.type == "link_close":
            said = "".join(one.content for one in out[since:])
            out += [words(f" ({address})")] if address not in ("", said, f"mailto:{said}") else []
        else:
            out.append(token)
    return out


class _Parser(HTMLParser):
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
        for place in range(len(self._open) - 1, 0, -1):
            if self._open[place][0] == tag:
                del self._open[place:]
                return

    def handle_data(self, data: str) -> None:
        inside = self._open[-1][0]
        if data.strip() or inside in ("p", "li", "code", "pre", "strong", "em", "td", "th"):
            self._open[-1][1].append(data)
