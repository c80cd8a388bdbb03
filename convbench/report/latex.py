"""A report as LaTeX, for `booktabs`: best bold, second underlined. Tables to paste, or a whole
document for pdflatex. What others wrote is text: no command, and no character that stops it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal
from unicodedata import category, normalize

from convbench.report.document import Document, Part, Picture, SideBySide, Table, slug
from convbench.report.tabular import ROOMS, Room, tabular

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": r"$-$", "·": r"$\cdot$", "<": r"$<$", ">": r"$>$", "→": r"$\to$",
    "≥": r"$\ge$", "≤": r"$\le$", "ρ": r"$\rho$", "\n": " ", "\t": " ", "`": r"\textasciigrave{}",
    "τ": r"$\tau$", "π": r"$\pi$", "γ": r"$\gamma$", "θ": r"$\theta$", "≈": r"$\approx$",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after a row's end these would be arguments
    "√": r"$\surd$", "∞": r"$\infty$", "≠": r"$\ne$",
}  # fmt: skip
_PRINTED = frozenset("‘’“”–—…•†‡‚„‹›€™‰\u00a0")
_LACKING = frozenset("ĦħĸĿŀŉŦŧſ")
"""Letters of Latin Extended-A that T1 fonts have not."""
_LIGATURE = re.compile(r"(?<=[-,'<>])(?=[-,'])")
"""Between two characters that would become one."""
LONGEST_WORD = 40
"""Characters after which a word may break: lines of code and of nonsense have no spaces."""
LONGEST_TABLE = 36
"""Rows of a table that a page holds."""
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[a4paper,margin=1.6cm]{geometry}
\usepackage{array,booktabs,graphicx,float}
\setlength{\parindent}{0pt}\setlength{\parskip}{4pt}
\setlength{\emergencystretch}{4em}
\begin{document}
"""


def latex(document: Document) -> str:
    """Return every table as a float that stands alone, one column of the page wide or two, as the
    document says; pictures as `\\includegraphics` in their own size, in comments, for who wants
    them. A document that stands alone is one that `pdflatex` turns into a PDF, the PDF pictures
    beside it."""
    if document.alone:
        return _whole(document)
    lines = ["% \\usepackage{array,booktabs,graphicx}", f"% {_escaped(document.title)}", ""]
    for part in document.parts:
        lines.append(f"% {_escaped(part.title)}")
        for table in part.tables:
            lines += [*_table(table, part.title, document.columns), ""]
        for picture in part.pictures:
            lines.append(f"% {_shown(picture)}")
    return "\n".join(lines).rstrip() + "\n"


def _whole(document: Document) -> str:
    lines = [
        PREAMBLE,
        f"\\begin{{center}}\\Large\\bfseries {_prose(document.title)}\\end{{center}}",
    ]
    lines.append("\\tableofcontents\n\\clearpage")
    for part in document.parts:
        lines += _part(part)
    return "\n".join([*lines, "\\end{document}", ""])


def _part(part: Part) -> Iterator[str]:
    title = _prose(part.title)  # unnumbered: printed tables have numbers of their own
    yield f"\\section*{{{title}}}\\addcontentsline{{toc}}{{subsection}}{{{title}}}"
    yield from (f"{_prose(fact)}\n" for fact in part.facts)
    for table in part.tables:
        for start in range(0, max(1, len(table.rows)), LONGEST_TABLE):
            rows = table.rows[start : start + LONGEST_TABLE]
            last = start + LONGEST_TABLE >= len(table.rows)
            shown = replace(table, rows=rows, notes=table.notes if last else ())
            caption = _caption(table) + (" Continued." if start else "")
            yield f"\\begin{{table}}[H]\n{{\\small\\bfseries {caption}\\par}}\\smallskip"
            yield from (*_tabular(shown, ROOMS["two"]), "\\end{table}")
    for picture in part.pictures:
        yield "\\begin{figure}[H]\\centering"
        yield _shown(picture)
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\small {_prose(picture.caption)}}}"
        yield "\\end{figure}"
    for talk in part.talks:
        yield from _beside(talk)
    yield from (f"{{\\footnotesize {_prose(note)}\\par}}" for note in part.notes)


def _shown(picture: Picture) -> str:
    """Return the command that shows a picture in its own size, if the page is as high."""
    size = f"width={picture.size[0]:g}in,height=0.8\\textheight,keepaspectratio"
    return f"\\includegraphics[{size}]{{{picture.name}.pdf}}"


def _beside(talk: SideBySide) -> Iterator[str]:
    yield f"\\subsection*{{{_prose(talk.title)}}}"
    yield from (f"{{\\footnotesize {_prose(fact)}\\par}}" for fact in talk.facts)
    for side in talk.sides:
        yield f"\\subsubsection*{{{_prose(side.title)}}}"
        yield f"{{\\footnotesize {_prose(side.facts)}\\par}}"
        yield "\\begin{quote}\\small"
        for who, said in side.turns:
            lines = (_prose(line) for line in said.splitlines() if line.strip())
            yield (
                f"\\textbf{{{_prose(who)}}}\\quad {{}}" + "\\par\n".join(lines) + "\\par\\smallskip"
            )
        yield "\\end{quote}"


def _table(table: Table, where: str, columns: Literal["one", "two"]) -> Iterator[str]:
    kind = "table" if columns == "one" else "table*"  # the same on a page of one column
    yield f"\\begin{{{kind}}}[t]"
    yield "\\setlength{\\belowcaptionskip}{4pt}"
    yield f"\\caption{{{_escaped(where)}. {_caption(table)}}}"
    yield f"\\label{{tab:{slug(where)}-{table.label}}}"
    yield "\\centering"
    yield from (*_tabular(table, ROOMS[columns]), f"\\end{{{kind}}}")


def _caption(table: Table) -> str:
    return f"{_escaped(table.caption)}." + (
        " Best in bold, second underlined." if table.ranked else ""
    )


def _tabular(table: Table, room: Room) -> Iterator[str]:
    """Yield a table no wider than the line, and its footnotes."""
    yield room.size
    yield from tabular(table, room, _escaped)
    if table.notes:
        notes = _escaped(" ".join(table.notes))
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {notes}}}"


def _prose(text: str) -> str:
    """Return text whose long words may break."""
    words = text.split(" ")
    size = LONGEST_WORD
    pieces = ([w[i : i + size] for i in range(0, len(w), size)] or [""] for w in words)
    return " ".join("\\hskip0pt{}".join(map(_escaped, some)) for some in pieces)


def _escaped(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(map(_character, _LIGATURE.sub("\0", normalize("NFC", text))))


def _character(c: str) -> str:
    """Return one character; one that T1 fonts lack as its code, a control character not at all."""
    if c == "\0":
        return "{}"
    if c in SPECIAL:
        return SPECIAL[c]
    if " " <= c <= "~" or (("¡" <= c <= "ſ") and c not in _LACKING) or c in _PRINTED:
        return "" if c == "\u00ad" else c
    return "" if category(c) in ("Cc", "Cf", "Cs") else f"{{[}}U+{ord(c):04X}{{]}}"
