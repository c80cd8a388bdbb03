"""Untrusted text in Markdown: reports and cards show what models, files and servers say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from convbench.util.printable import make_printable

LINK = re.compile(r"(?i)((?:[a-z][a-z0-9+.-]{0,30}://|www\.)[^\s|`]+)")
"""Text that Markdown renderers turn into a link by themselves, unless it is code."""


def markdown_citations(sources: Sequence[str], bibtex: str) -> str:
    """Return the Markdown section with what to cite: which spec follows which paper, and BibTeX."""
    listed = "".join(f"- {inline_text(source)}\n" for source in sources)
    body = fence_code(make_printable(bibtex), "bibtex")
    return "\n".join(["## Citation", "", *([listed] if listed else []), body])


def fence_code(text: str, language: str) -> str:
    """Return text as a Markdown code block, with a fence longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def inline_text(text: object) -> str:
    """Return untrusted text as one line in which nothing is read as markup, link or picture."""
    line = " ".join(make_printable(str(text)).split())
    return "".join(
        inline_code(part) if LINK.fullmatch(part) else _escape_markdown(part)
        for part in LINK.split(line)
    )


def _escape_markdown(text: str) -> str:
    out = "".join("\\" + c if c in "\\`*_|[]#" else c for c in text)
    return out.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def inline_code(text: object) -> str:
    """Return untrusted text as an inline code span; `-` if it is empty."""
    out = " ".join(make_printable(str(text)).split())
    longest = max(map(len, re.findall("`+", out)), default=0)
    fence, gap = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{gap}{out}{gap}{fence}" if out else "-"
