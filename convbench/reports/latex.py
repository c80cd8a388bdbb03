"""A report as LaTeX for `booktabs`: best bold, second underlined, errors below their means if the
table is too wide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from unicodedata import category, normalize

from convbench.reports.document import Cell, Document, Picture, ReportPart, SideBySide, Table, slug


@dataclass(frozen=True, slots=True)
class ColumnBudget:
    """Width available to a table, in TeX points: of the line, of a character, and between two
    columns, at a type size."""

    line: float
    character: float
    between: float
    size: str
    short: bool
    """Whether to use the short column heads."""


COLUMN_BUDGETS = {
    "one": ColumnBudget(216, 4.6, 6, "\\footnotesize\\setlength{\\tabcolsep}{3pt}", short=True),
    "two": ColumnBudget(455, 4.9, 12, "\\small", short=False),
}
"""By a table's width in columns of a two-column page. Taken from the narrowest styles (a column of
7.6 cm) and counted for wide letters, so that a table is split a little early."""
KEY, TEXT = 0.3, 0.55
"""Shares of the line above which the first column, or any other text column, becomes a paragraph.
"""
MOST = 3
"""Most key columns that are repeated in each part of a split table."""
PIECE = 8
"""Characters of a word after which it may break in a paragraph cell."""
_SIGN = re.compile(r"(?<![\w.])([+-])(?=[\d.])")


def tabular_blocks(
    table: Table, budget: ColumnBudget, escape: Callable[[str], str]
) -> Iterator[str]:
    """Yield the lines of one LaTeX `tabular`, or of several if the columns do not fit in the line.

    Several repeat the first columns that tell the rows apart. Errors stand below their means if the
    table is too wide with them beside. Best is bold, second underlined. `escape` escapes text for
    LaTeX.
    """
    stacked = False
    widths = _column_widths(table, budget, stacked)
    if sum(widths) > budget.line:
        stacked = True
        widths = _column_widths(table, budget, stacked)
    keys = _key_count(table)
    for number, block in enumerate(_column_blocks(widths, budget.line, keys)):
        if number:
            yield "\\par\\medskip"
        yield from _tabular_lines(table, [*range(keys), *block], budget, stacked, escape)


def _key_count(table: Table) -> int:
    """Return how many first columns tell all rows apart, e.g. method and temperature; 1 if not even
    MOST columns do."""
    for number in range(1, min(MOST, len(table.columns) - 1) + 1):
        if len({tuple(c.text for c in row[:number]) for row in table.rows}) == len(table.rows):
            return number
    return 1


def _cell_text(cell: Cell, stacked: bool) -> str:
    return cell.text if stacked or cell.error is None else f"{cell.text} ± {cell.error}"


def _column_widths(table: Table, budget: ColumnBudget, stacked: bool) -> list[float]:
    """Return each column's width in points, including the gap to the next one."""
    out = []
    for index, column in enumerate(table.columns):
        head = column.short if budget.short else column.head
        texts = [head, *(_cell_text(row[index], stacked) for row in table.rows)]
        width = max(map(len, texts)) * budget.character
        most = width if column.numeric else budget.line * (TEXT if index else KEY)
        out.append(min(width, most) + budget.between)
    return out


def _column_blocks(widths: Sequence[float], line: float, keys: int) -> list[list[int]]:
    """Return the indices of the non-key columns of each table, as many as fit the line."""
    blocks: list[list[int]] = [[]]
    used = first = sum(widths[:keys])
    for index, width in enumerate(widths[keys:], keys):
        if blocks[-1] and used + width > line:
            blocks.append([])
            used = first
        blocks[-1].append(index)
        used += width
    return blocks


def _tabular_lines(
    table: Table,
    shown: Sequence[int],
    budget: ColumnBudget,
    stacked: bool,
    escape: Callable[[str], str],
) -> Iterator[str]:
    # Widths are counted, not measured, so a table that turns out wider is scaled down.
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{{''.join(_column_kind(table, index, budget) for index in shown)}}}"
    yield "\\toprule"
    columns = [table.columns[index] for index in shown]
    yield " & ".join(escape(c.short if budget.short else c.head) for c in columns) + " \\\\"
    yield "\\midrule"
    for row in table.rows:
        cells = [row[index] for index in shown]
        kinds = [_column_kind(table, index, budget) for index in shown]
        pairs = zip(cells, kinds, strict=True)
        yield " & ".join(_latex_cell(c, kind, stacked, escape) for c, kind in pairs) + " \\\\"
        if stacked and any(cell.error is not None for cell in cells):
            below = ("" if c.error is None else f"{{\\scriptsize $\\pm$ {c.error}}}" for c in cells)
            yield " & ".join(below) + " \\\\"
    yield from ("\\bottomrule", "\\end{tabular}}")


def _column_kind(table: Table, index: int, budget: ColumnBudget) -> str:
    """Return a column's LaTeX type: `r` for numbers, `l` for text, a paragraph for long text."""
    if table.columns[index].numeric:
        return "r"
    longest = max((len(row[index].text) for row in table.rows), default=0)
    share = TEXT if index else KEY
    if longest * budget.character <= share * budget.line:
        return "l"
    return f">{{\\raggedright\\arraybackslash}}p{{{share}\\linewidth}}"


def _latex_cell(cell: Cell, kind: str, stacked: bool, escape: Callable[[str], str]) -> str:
    indent = "\\quad " if cell.text.startswith("  ") else ""
    words = cell.text.strip().split(" ")
    if kind in ("l", "r"):
        text = escape(" ".join(words))
    else:  # a paragraph, whose long words may break
        pieces = ([w[i : i + PIECE] for i in range(0, len(w), PIECE)] or [""] for w in words)
        text = " ".join("\\hskip0pt{}".join(map(escape, some)) for some in pieces)
    if kind == "r":
        text = _SIGN.sub(r"$\1$", text)
    if cell.error is not None and not stacked:
        text += f" $\\pm$ {cell.error}"
    if cell.quiet:
        return f"{indent}\\textit{{{text}}}"
    return {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(cell.rank, text)


SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "<": r"$<$",
    ">": r"$>$",
    "→": r"$\to$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "ρ": r"$\rho$",
    "\n": " ",
    "\t": " ",
    "`": r"\textasciigrave{}",
    "τ": r"$\tau$",
    "π": r"$\pi$",
    "γ": r"$\gamma$",
    "θ": r"$\theta$",
    "≈": r"$\approx$",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",  # after a row's end these would be arguments
    "√": r"$\surd$",
    "∞": r"$\infty$",
    "≠": r"$\ne$",
}
_PRINTED = frozenset("‘’“”–—…•†‡‚„‹›€™‰\u00a0")
_LACKING = frozenset("ĦħĸĿŀŉŦŧſ")
"""Letters of Latin Extended-A that T1 fonts lack."""
_LIGATURE = re.compile(r"(?<=[-,'<>])(?=[-,'])")
"""Position between two characters that TeX would join into one."""
LONGEST_WORD = 40
"""Characters after which a word may break, because lines of code or nonsense have no spaces."""
LONGEST_TABLE = 36
"""Rows of a table that fit on a page."""
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[a4paper,margin=1.6cm]{geometry}
\usepackage{array,booktabs,graphicx,float}
\setlength{\parindent}{0pt}\setlength{\parskip}{4pt}
\setlength{\emergencystretch}{4em}
\begin{document}
"""


def render_latex(document: Document) -> str:
    """Return the report as LaTeX.

    A standalone document compiles with `pdflatex`, given its PDF pictures in the same folder.
    Otherwise the result has every table as a float, one or two columns wide as the document says,
    and pictures as commented `includegraphics` lines; facts, notes of parts and conversations are
    left out.
    """
    if document.is_standalone:
        return _standalone_document(document)
    lines = ["% \\usepackage{array,booktabs,graphicx}", f"% {_escape_latex(document.title)}", ""]
    for part in document.parts:
        lines.append(f"% {_escape_latex(part.title)}")
        for table in part.tables:
            lines += [*_table_float(table, part.title, document.columns), ""]
        for picture in part.pictures:
            lines.append(f"% {_include_graphics(picture)}")
    return "\n".join(lines).rstrip() + "\n"


def _standalone_document(document: Document) -> str:
    lines = [
        PREAMBLE,
        f"\\begin{{center}}\\Large\\bfseries {_breakable_text(document.title)}\\end{{center}}",
    ]
    lines.append("\\tableofcontents\n\\clearpage")
    for part in document.parts:
        lines += _latex_part(part)
    return "\n".join([*lines, "\\end{document}", ""])


def _latex_part(part: ReportPart) -> Iterator[str]:
    title = _breakable_text(part.title)  # unnumbered: printed tables have numbers of their own
    yield f"\\section*{{{title}}}\\addcontentsline{{toc}}{{subsection}}{{{title}}}"
    yield from (f"{_breakable_text(fact)}\n" for fact in part.facts)
    for table in part.tables:
        for start in range(0, max(1, len(table.rows)), LONGEST_TABLE):
            rows = table.rows[start : start + LONGEST_TABLE]
            last = start + LONGEST_TABLE >= len(table.rows)
            shown = replace(table, rows=rows, notes=table.notes if last else ())
            caption = _table_caption(table) + (" Continued." if start else "")
            yield f"\\begin{{table}}[H]\n{{\\small\\bfseries {caption}\\par}}\\smallskip"
            yield from (*_table_body(shown, COLUMN_BUDGETS["two"]), "\\end{table}")
    for picture in part.pictures:
        yield "\\begin{figure}[H]\\centering"
        yield _include_graphics(picture)
        caption = _breakable_text(picture.caption)
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\small {caption}}}"
        yield "\\end{figure}"
    for talk in part.talks:
        yield from _latex_sides(talk)
    yield from (f"{{\\footnotesize {_breakable_text(note)}\\par}}" for note in part.notes)


def _include_graphics(picture: Picture) -> str:
    """Return the command that includes a picture in its own size, limited by the page height."""
    size = f"width={picture.size[0]:g}in,height=0.8\\textheight,keepaspectratio"
    return f"\\includegraphics[{size}]{{{picture.name}.pdf}}"


def _latex_sides(talk: SideBySide) -> Iterator[str]:
    yield f"\\subsection*{{{_breakable_text(talk.title)}}}"
    yield from (f"{{\\footnotesize {_breakable_text(fact)}\\par}}" for fact in talk.facts)
    for side in talk.sides:
        yield f"\\subsubsection*{{{_breakable_text(side.title)}}}"
        yield f"{{\\footnotesize {_breakable_text(side.facts)}\\par}}"
        yield "\\begin{quote}\\small"
        yield from (_latex_turn(who, text) for who, text in side.turns)
        yield "\\end{quote}"
        if side.justifications:
            yield "\\begin{quote}\\footnotesize"
            yield from (_latex_turn(what, words) for what, words in side.justifications)
            yield "\\end{quote}"
    for table in talk.tables:
        yield from ("\\begin{center}", *_table_body(table, COLUMN_BUDGETS["two"]), "\\end{center}")


def _latex_turn(who: str, text: str) -> str:
    lines = (_breakable_text(line) for line in text.splitlines() if line.strip())
    body = "\\par\n".join(lines)
    return f"\\textbf{{{_breakable_text(who)}}}\\quad {{}}{body}\\par\\smallskip"


def _table_float(table: Table, where: str, columns: Literal["one", "two"]) -> Iterator[str]:
    kind = "table" if columns == "one" else "table*"  # the same on a page of one column
    yield f"\\begin{{{kind}}}[t]"
    yield "\\setlength{\\belowcaptionskip}{4pt}"
    yield f"\\caption{{{_escape_latex(where)}. {_table_caption(table)}}}"
    yield f"\\label{{tab:{slug(where)}-{table.label}}}"
    yield "\\centering"
    yield from (*_table_body(table, COLUMN_BUDGETS[columns]), f"\\end{{{kind}}}")


def _table_caption(table: Table) -> str:
    return f"{_escape_latex(table.caption)}." + (
        " Best in bold, second underlined." if table.has_ranks else ""
    )


def _table_body(table: Table, budget: ColumnBudget) -> Iterator[str]:
    """Yield the lines of a table no wider than the line, and of its footnotes."""
    yield budget.size
    yield from tabular_blocks(table, budget, _escape_latex)
    if table.notes:
        notes = _escape_latex(" ".join(table.notes))
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {notes}}}"


def _breakable_text(text: str) -> str:
    """Return escaped text whose long words may break."""
    words = text.split(" ")
    size = LONGEST_WORD
    pieces = ([w[i : i + size] for i in range(0, len(w), size)] or [""] for w in words)
    return " ".join("\\hskip0pt{}".join(map(_escape_latex, some)) for some in pieces)


def _escape_latex(text: str) -> str:
    """Return text escaped for LaTeX."""
    return "".join(map(_escape_character, _LIGATURE.sub("\0", normalize("NFC", text))))


def _escape_character(c: str) -> str:
    """Return one character escaped for LaTeX: its code point if T1 fonts lack it, "" if it is a
    control character."""
    if c == "\0":
        return "{}"
    if c in SPECIAL:
        return SPECIAL[c]
    if " " <= c <= "~" or (("¡" <= c <= "ſ") and c not in _LACKING) or c in _PRINTED:
        return "" if c == "\u00ad" else c
    return "" if category(c) in ("Cc", "Cf", "Cs") else f"{{[}}U+{ord(c):04X}{{]}}"
