"""The formats, hostile text in them, and the command as a user types it."""

import io
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from rich.console import Console

from convbench.commands import _output
from convbench.reports.document import (
    Cell,
    Column,
    Document,
    ReportPart,
    SideBySide,
    Table,
    Transcript,
)
from convbench.reports.latex import LONGEST_TABLE, render_latex
from convbench.reports.terminal import render_terminal
from convbench.reports.writers import render_html, render_markdown
from tests.helpers.cli import convbench
from tests.helpers.runs import make, questions

HOSTILE = "</table><script>alert(1)</script> | & 50% $x_1$ \\input{x} [bold]"
DOCUMENT = Document(
    "A & B",
    (
        ReportPart(
            "arc · thinking",
            tables=(
                Table(
                    "Results",
                    (Column("Method", "Method", False), Column("Accuracy", "Acc."),
                     Column("R Overall", "R")),
                    (
                        (Cell("SWiFt"), Cell("0.8000", "0.0236", 1), Cell("-")),
                        (Cell("  paper", quiet=True), Cell("0.7993", "0.0236", quiet=True),
                         Cell("7.19", "0.14", quiet=True)),
                        (Cell(HOSTILE), Cell("0.5000", None, 2), Cell("+1.00")),
                    ),
                    ("A note of 5%.",),
                    "results",
                ),
            ),
        ),
    ),
)  # fmt: skip


def test_markdown():
    text = render_markdown(DOCUMENT)
    assert "| SWiFt | **0.8000 ± 0.0236** | - |" in text
    assert "| *paper* | *0.7993 ± 0.0236* | *7.19 ± 0.14* |" in text
    assert "<u>0.5000</u>" in text
    assert "|:---|---:|---:|" in text
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}


def test_latex():
    text = render_latex(DOCUMENT)
    assert r"SWiFt & \textbf{0.8000 $\pm$ 0.0236} & - \\" in text
    assert r"\quad \textit{paper} & \textit{0.7993 $\pm$ 0.0236}" in text
    assert r"\underline{0.5000} & $+$1.00 \\" in text
    assert r"\input" not in text
    said = text.replace(r"\hskip0pt{}", "")  # where a long word may be broken
    assert r"50\% \$x\_1\$ \textbackslash{}input\{x\}" in said
    assert r"\label{tab:arc-thinking-results}" in text
    body = text[text.index("\\begin{table*}") :]
    assert body.count("{") - body.count(r"\{") == body.count("}") - body.count(r"\}")
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {2}


PAGE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{array,booktabs,graphicx}
\begin{document}
\input{report}
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles_with_the_packages_it_names(tmp_path):
    (tmp_path / "report.tex").write_text(render_latex(DOCUMENT))
    (tmp_path / "page.tex").write_text(PAGE)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:]
    assert "Overfull" not in done.stdout


def wide_table(columns=8, rows=4):
    """A table as a report's: a method and many measures with errors, and why."""
    heads = [Column(f"R Measure {n}", f"R M{n}") for n in range(columns)]
    cells = [
        (Cell(f"Method {row}"), *(Cell(f"0.{row}{n}37", error="0.0236") for n in range(columns)))
        for row in range(rows)
    ]
    why = Column("Why", "Why", numeric=False)
    columns = (Column("Policy", "Policy", numeric=False), *heads, why)
    words = "a long reason that is given in words and takes more than one line of any column"
    return Table("Results", columns, tuple((*row, Cell(words)) for row in cells), label="wide")


def test_a_table_is_split_and_stacked_where_the_page_is_narrow():
    made = Document("Report", (ReportPart("arc", tables=(wide_table(),)),))
    wide = render_latex(made)
    assert wide.count("\\begin{tabular}") == 2
    assert "\\begin{table*}" in wide
    narrow = render_latex(replace(made, columns="one"))
    assert "table*" not in narrow
    assert narrow.count("\\begin{tabular}") == 3
    assert "R M3" in narrow
    assert narrow.count("Method 2 & ") == 3  # each part says whose row it is
    assert narrow.count("\\scriptsize $\\pm$ 0.0236") == 8 * 4
    for text in (wide, narrow):
        assert all(text.count(f"0.{row}{n}37") == 1 for row in range(4) for n in range(8))
        assert text.count("a long reason") == 4


def test_a_document_s_long_table_goes_on_over_pages_and_ends_with_its_notes():
    table = replace(
        wide_table(columns=1, rows=2 * LONGEST_TABLE + 1), notes=("A note at its end.",)
    )
    document = Document("Report", (ReportPart("arc", tables=(table,)),), is_standalone=True)
    pages = render_latex(document).split("\\begin{table}")[1:]
    rows = [re.findall(r"Method (\d+)", page) for page in pages]
    assert [len(numbers) for numbers in rows] == [LONGEST_TABLE, LONGEST_TABLE, 1]
    assert [int(number) for numbers in rows for number in numbers] == list(range(len(table.rows)))
    assert ["Continued." in page for page in pages] == [False, True, True]
    assert ["A note at its end." in page for page in pages] == [False, False, True]


def test_each_part_of_a_split_table_says_which_row_is_whose():
    """By temperature the method alone does not: the temperature stands in every part too."""
    plain = wide_table(rows=4)
    heats = [Cell(text) for text in ("0.3", "0.7", "0.3", "0.7")]
    whose = [Cell(text) for text in ("SWiFt", "SWiFt", "Base", "Base")]
    rows = tuple((who, heat, *row[1:]) for who, heat, row in zip(whose, heats, plain.rows,
                                                                 strict=True))  # fmt: skip
    columns = (plain.columns[0], Column("T", "T"), *plain.columns[1:])
    table = replace(plain, columns=columns, rows=rows)
    text = render_latex(Document("Report", (ReportPart("arc", tables=(table,)),), columns="one"))
    parts = text.count("\\begin{tabular}")
    assert parts >= 3
    assert [
        text.count(f"{who} & {heat} & ") for who in ("SWiFt", "Base") for heat in (0.3, 0.7)
    ] == [parts] * 4
    assert text.count("Policy & T & ") == parts


TWO_COLUMNS = PAGE.replace("{article}", "[twocolumn,10pt]{article}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("columns", ["one", "two"])
def test_split_tables_are_set_in_their_own_size(tmp_path, columns):
    """In a real page of two columns: none is scaled down, and no line is overfull."""
    made = Document(
        "Report", (ReportPart("arc", tables=(wide_table(), wide_table(3))),), columns=columns
    )
    told = "\\ifdim\\width>\\linewidth\\typeout{SCALED}\\linewidth"
    text = render_latex(made).replace("\\ifdim\\width>\\linewidth\\linewidth", told)
    assert "SCALED" in text
    (tmp_path / "report.tex").write_text(text)
    (tmp_path / "page.tex").write_text(TWO_COLUMNS)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:]
    assert "Overfull" not in done.stdout
    assert "SCALED" not in done.stdout
    pages = re.search(r"Output written on page.pdf \((\d+) page", done.stdout)
    assert int(pages[1]) >= 1


class Page(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data")]


def test_html_is_one_file_that_asks_for_nothing():
    text = render_html(DOCUMENT)
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("table") == 1
    assert page.tags.count("td") == 9
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in text
    assert "<b>0.8000</b>" in text
    assert "<u>0.5000</u>" in text
    assert "&lt;script&gt;" in text


def printed(width, **more):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), **more)  # noqa: SIM115
    for item in render_terminal(DOCUMENT, console):
        console.print(item)
    return console.export_text()


def test_terminal_wide_narrow_and_piped():
    wide = printed(200)
    assert "0.8000* ± 0.0236" in wide
    assert "0.5000+" in wide
    assert HOSTILE in wide  # not read as markup
    narrow = printed(40)
    assert "±0.0236" in narrow
    assert "Acc." in narrow
    assert max(map(len, narrow.splitlines())) <= 40
    styled = printed(200, force_terminal=True)
    assert "0.8000 ± 0.0236" in styled  # bold says it there


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_head_is_cut_where_the_terminal_is_narrow(width, monkeypatch):
    """Columns that do not fit stand below, behind the same first one."""
    means = dict.fromkeys(("accuracy", "reasoning", "comprehensiveness", "pedagogical", "overall"))
    judge = SimpleNamespace(
        judge="rubric-as-printed", scored=1480, failed=20, means=dict.fromkeys(means, 9.25),
        reward=SimpleNamespace(mean=0.925),
    )  # fmt: skip
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    monkeypatch.setattr(_output, "out", console)
    _output.print_means(SimpleNamespace(judges=[judge]))
    lines = console.file.getvalue().splitlines()
    heads = " ".join(line for line in lines if line.startswith("judge")).split()
    assert [head for head in heads if head != "judge"] == [
        "scored", "failed", "accuracy", "reas.", "compr.", "pedag.", "overall", "reward",
    ]  # fmt: skip
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("rubric-as-printed") for line in lines) == heads.count("judge")
    assert (heads.count("judge") > 1) == (width < 80)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A run built, judged and with a child, by the commands themselves."""
    folder = tmp_path_factory.mktemp("report")
    for command in (
        "build demo --model scripted:policy --quiet",
        "judge --judge rules --quiet",
        "eval scripted:echo --name echo --quiet",
    ):
        done = convbench(folder, *command.split())
        assert done.code == 0, done.out + done.err
    return folder


def test_the_command_end_to_end(here):
    done = convbench(here, "report")
    assert done.code == 0, done.err
    assert "demo · thinking · reasoning, n = 3, judge rules" in done.out
    assert "24 conversations of Base about 8 groups" in " ".join(done.out.split())
    rows = [line.split() for line in done.out.splitlines()]
    # Counts: 8 test questions, 3 samples; an echo has no answer that can be read.
    assert ["echo", "24", "0", "0", "24", "24", "0", "24", "0", "0"] in rows
    assert "next: convbench report --plots" in done.out


def test_formats_go_to_stdout_alone_and_files_where_asked(here, tmp_path):
    done = convbench(here, "report", "--format", "markdown", "--se", "naive", "--paper")
    assert done.out.startswith("# convbench report\n")
    assert "naive standard error" in done.out
    assert "The paper has no table for demo" in done.out
    assert "next:" not in done.out
    done = convbench(here, "report", "--format", "html")
    assert done.out.startswith("<!doctype html>")
    done = convbench(here, "report", "--format", "latex", "--out", str(tmp_path / "new" / "out"))
    assert done.code == 0
    assert "report.tex" in done.err
    assert "\\begin{tabular}" in (tmp_path / "new" / "out" / "report.tex").read_text()


def test_mistakes_are_one_line(here, tmp_path):
    assert "found no run here" in convbench(tmp_path, "report").error
    assert "found verdicts of rules" in convbench(here, "report", "--judge", "gpt-4o").error
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "x")
    assert "cannot be written" in convbench(here, "report", "--out", folder).error


def test_an_incomparable_run_is_refused_on_the_command_line(tmp_path):
    base = make(tmp_path / "run", questions(2), lambda q, k: "A")
    make(
        base.evals_folder / "x",
        questions(2),
        lambda q, k: "A",
        parent=base.manifest.id,
        split="test",
        teacher="openai/other",
    )
    assert "cast.teacher.model" in convbench(tmp_path, "report", "run").error
    done = convbench(tmp_path, "report", "run", "--allow-incomparable")
    assert done.code == 0
    assert "not comparable with Base" in done.out


@pytest.mark.parametrize("write", [render_html, render_markdown, render_latex])
def test_nothing_in_a_document_steers_what_shows_it(write):
    said = "a\x00b\x1b[31mred\u202etxt.exe\x9b\x7f"
    table = Table(said, (Column(said, said),), ((Cell(said),),), (said,), "t")
    talk = SideBySide(said, (said,), (Transcript(said, said, ((said, said),)),))
    text = write(Document(said, (ReportPart(said, (said,), (table,), (), (said,), (talk,)),)))
    assert "red" in text
    assert not set(text) & set("\x00\x1b\u202e\x9b\x7f")
