"""A report as LaTeX, for `booktabs`: best bold, second underlined. Tables to paste, or a whole
document for pdflatex. What others wrote is text: no command, and no character that stops it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from unicodedata import category, normalize

from convbench.report.document import Cell, Document, Part, SideBySide, Table, slug

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
LONGEST_CELL = 60
"""Characters of a cell from which on its column is a paragraph."""
LONGEST_TABLE = 36
"""Rows of a table that a page holds."""
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,graphicx,float}
\setlength{\parindent}{0pt}\setlength{\parskip}{4pt}
\setlength{\emergencystretch}{4em}
\begin{document}
"""


_SIGN = re.compile(r"(?<![\w.])([+-])(?=[\d.])")


def latex(document: Document) -> str:
    """Return every table as a float that stands alone; pictures as `\\includegraphics` of the
    PNG, in comments, for who wants them. A document that stands alone is one that `pdflatex` turns
    into a PDF, the PNG pictures beside it."""
    if document.alone:
        return _whole(document)
    lines = ["% \\usepackage{booktabs,graphicx}", f"% {_escaped(document.title)}", ""]
    for part in document.parts:
        lines.append(f"% {_escaped(part.title)}")
        for table in part.tables:
            lines += [*_table(table, part.title), ""]
        for picture in part.pictures:
            lines.append(f"% \\includegraphics[width=\\linewidth]{{{picture.name}.png}}")
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
            yield from (*_tabular(shown), "\\end{table}")
    for picture in part.pictures:
        yield "\\begin{figure}[H]\\centering"
        yield (
            "\\includegraphics[width=\\linewidth,height=0.8\\textheight,keepaspectratio]"
            f"{{{picture.name}.png}}"
        )
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\small {_prose(picture.caption)}}}"
        yield "\\end{figure}"
    for talk in part.talks:
        yield from _beside(talk)
    yield from (f"{{\\footnotesize {_prose(note)}\\par}}" for note in part.notes)


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


def _table(table: Table, where: str) -> Iterator[str]:
    yield "\\begin{table}[t]"
    yield "\\setlength{\\belowcaptionskip}{4pt}"
    yield f"\\caption{{{_escaped(where)}. {_caption(table)}}}"
    yield f"\\label{{tab:{slug(where)}-{table.label}}}"
    yield "\\centering\\small"
    yield from (*_tabular(table), "\\end{table}")


def _caption(table: Table) -> str:
    return f"{_escaped(table.caption)}." + (
        " Best in bold, second underlined." if table.ranked else ""
    )


def _tabular(table: Table) -> Iterator[str]:
    """Yield a table no wider than the line, and its footnotes."""
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    kinds = "".join(_kind(table, place) for place in range(len(table.columns)))
    yield f"\\begin{{tabular}}{{{kinds}}}"
    yield "\\toprule"
    yield " & ".join(_escaped(column.head) for column in table.columns) + " \\\\"
    yield "\\midrule"
    for row in table.rows:
        cells = (_cell(c, k.numeric) for c, k in zip(row, table.columns, strict=True))
        yield " & ".join(cells) + " \\\\"
    yield from ("\\bottomrule", "\\end{tabular}}")
    if table.notes:
        notes = _escaped(" ".join(table.notes))
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {notes}}}"


def _kind(table: Table, place: int) -> str:
    """Return a column's kind: long text is set as a paragraph."""
    if table.columns[place].numeric:
        return "r"
    longest = max((len(row[place].text) for row in table.rows), default=0)
    return "p{0.55\\linewidth}" if longest > LONGEST_CELL else "l"


def _cell(cell: Cell, numeric: bool) -> str:
    indent = "\\quad " if cell.text.startswith("  ") else ""
    text = _escaped(cell.text.strip())
    if numeric:
        text = _SIGN.sub(r"$\1$", text)
    if cell.error is not None:
        text += f" $\\pm$ {cell.error}"
    if cell.quiet:
        return f"{indent}\\textit{{{text}}}"
    return {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(cell.rank, text)


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
