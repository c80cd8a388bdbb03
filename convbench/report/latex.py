"""A report's tables as LaTeX, for `booktabs`: best bold, second underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.report.document import Cell, Document, Table, slug

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": r"$-$", "·": r"$\cdot$", "<": r"$<$", ">": r"$>$", "→": r"$\to$",
    "≥": r"$\ge$", "≤": r"$\le$", "ρ": r"$\rho$", "\n": " ",
}  # fmt: skip


_SIGN = re.compile(r"(?<![\w.])([+-])(?=[\d.])")


def latex(document: Document) -> str:
    """Return every table as a float that stands alone; pictures as `\\includegraphics` of the
    PNG, in comments, for who wants them."""
    lines = ["% \\usepackage{booktabs,graphicx}", f"% {_escaped(document.title)}", ""]
    for part in document.parts:
        lines.append(f"% {_escaped(part.title)}")
        for table in part.tables:
            lines += [*_table(table, part.title), ""]
        for picture in part.pictures:
            lines.append(f"% \\includegraphics[width=\\linewidth]{{{picture.name}.png}}")
    return "\n".join(lines).rstrip() + "\n"


def _table(table: Table, where: str) -> Iterator[str]:
    marks = " Best in bold, second underlined." if table.ranked else ""
    yield "\\begin{table}[t]"
    yield "\\setlength{\\belowcaptionskip}{4pt}"
    yield f"\\caption{{{_escaped(where)}. {_escaped(table.caption)}.{marks}}}"
    yield f"\\label{{tab:{slug(where)}-{table.label}}}"
    yield "\\centering\\small"
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    kinds = "".join("r" if column.numeric else "l" for column in table.columns)
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
    yield "\\end{table}"


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


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text).replace("--", "-{}-")
