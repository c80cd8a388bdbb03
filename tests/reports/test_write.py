"""The formats of a report: numbers are written once, text is escaped."""

import csv
import io
import json
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser

import pytest
from rich.console import Console

from convbench.reports.document import Column, Difference, Document, Part, Row, Table
from convbench.reports.write import (
    render_html,
    render_latex,
    render_markdown,
    render_terminal,
    render_text,
)
from convbench.stats.estimates import estimate
from tests.helpers.cli import convbench
from tests.helpers.reported import beside, right_on
from tests.helpers.runs import make, questions

ODD = "50% of <b>A&B</b> _x_ #1 $2 {y} ~z ^w \\input{/etc/passwd} |c| https://a.example/?q=1"


@cache
def mean():
    return estimate(["a", "b", "c"], [1.0, 0.0, 1.0])


@cache
def gain():
    return Difference(estimate(["a", "b", "c"], [0.3, 0.5, 0.4]), 0.0123)


def document(text=ODD, pictures=()):
    columns = (
        Column("policy", "Policy", text=True),
        Column("correct", "Accuracy", "Acc.", 4, best=True),
        Column("gain", "Gain", digits=3),
        Column("n", "n"),
    )
    low = estimate(["a", "b", "c"], [1.0, 0.0, 0.0])
    rows = (
        Row((text, mean(), gain(), 3)),
        Row(("Base", low, None, 1200)),
        Row(("Base", low, None, 1), True),
    )
    table = Table("results", f"Results {text}", columns, rows, (f"Note {text}",))
    return Document(text, (Part(text, (f"Answer {text}",), (table,), pictures),))


@pytest.mark.parametrize(
    ("write", "wanted"),
    [
        (
            render_markdown,
            (
                "| Base | <u>0.3333</u> ±0.3333 | - | 1,200 |",
                "**0.6667** ±0.3333 | +.400\\* \\[+.152, +.648\\] | 3 |",
                "&lt;b&gt;A&amp;B&lt;/b&gt; \\_x\\_ \\#1",
                "`https://a.example/?q=1`",
                "*Base* | *0.3333 ±0.3333*",  # what a paper prints
            ),
        ),
        (
            render_latex,
            (
                "\\textbackslash{}input\\{/etc/passwd\\}",
                "50\\% of \\textless{}b\\textgreater{}A\\&B",
                "\\textbf{0.6667} $\\pm$0.3333",
                "\\underline{0.3333}",
                "\\textit{Base}",
            ),
        ),
    ],
)
def test_text_is_escaped_and_the_best_marked(write, wanted):
    text = write(document())
    assert [part for part in wanted if part not in text] == []


def test_html_is_one_page_that_asks_for_nothing():
    text = render_html(document())

    class Tags(HTMLParser):
        def __init__(self):
            super().__init__()
            self.found, self.links = set(), []

        def handle_starttag(self, tag, attrs):
            self.found.add(tag)
            self.links += [v for k, v in attrs if k in ("src", "href") and not v.startswith("#")]

    seen = Tags()
    seen.feed(text)
    assert not seen.found & {"script", "iframe", "img", "link", "object", "input"}
    assert seen.links == []
    assert "default-src 'none'" in text
    assert "<b>A&" not in text
    assert "<b>0.6667</b> <small>±0.3333</small>" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx,textcomp}"
    head += "\\usepackage[T1]{fontenc}"
    text = f"{head}\\begin{{document}}{render_latex(document())}\\end{{document}}"
    (tmp_path / "x.tex").write_text(text)
    words = ["pdflatex", "-interaction=nonstopmode", "x.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_json_and_csv_have_every_digit():
    data = json.loads(render_text(document(), "json"))
    row = data["parts"][0]["tables"][0]["rows"][0]
    assert (row["correct"], row["correct_n"], row["correct_groups"]) == (2 / 3, 3, 3)
    assert row["gain_holm"] == 0.0123
    assert row["gain_p"] == gain().estimate.p
    assert row["correct_low"] == mean().interval[0]
    assert row["printed"] is False
    lines = list(csv.DictReader(io.StringIO(render_text(document(), "csv"))))
    first = next(line for line in lines if line["column"] == "correct")
    assert float(first["value"]) == 2 / 3
    assert float(first["error"]) == mean().error
    assert first["row"] == ODD
    assert first["p"] == ""
    printed = next(line for line in lines if line["column"] == "gain")
    assert (float(printed["low"]), float(printed["high"])) == gain().estimate.interval


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    console = Console(width=width, record=True, color_system=None, force_terminal=False)
    with console.capture() as drawn:
        for item in render_terminal(document("SWiFt"), console):
            console.print(item)
    text = drawn.get()
    assert max(map(len, text.splitlines())) <= width
    assert "0.6667*" in text
    assert "0.3333+" in text
    assert text.count("SWiFt") >= 3


@pytest.mark.parametrize("write", [render_html, render_markdown, render_latex])
def test_nothing_in_a_document_steers_what_shows_it(write):
    text = write(document("a\x00b\x1b[31mred\u202etxt.exe\x9b\x7f"))
    assert "red" in text
    assert not set(text) & set("\x00\x1b\u202e\x9b\x7f")


@pytest.fixture
def here(tmp_path):
    run = make(tmp_path / "run", questions(4), right_on(0), overall=lambda q, k: 4.0 + k)
    beside(run, "echo", lambda q, k: "?", model="local:echo", overall=lambda q, k: 3.0)
    return tmp_path


def test_report_prints_tables_and_what_to_type_next(here):
    done = convbench(here, "report", "run")
    assert done.code == 0, done.err
    assert "demo · thinking · reasoning, n = 3" in done.out
    assert "echo: accuracy -.250" in done.out
    assert "unread 0.0 % → 100.0 %" in done.out
    assert "next: convbench report run --plots" in done.out


def test_formats_go_to_stdout_alone_and_files_where_asked(here):
    done = convbench(here, "report", "run", "--format", "markdown", "--se", "naive")
    assert done.out.startswith("# convbench report\n")
    assert "naive standard error" in done.out
    assert "next:" not in done.out
    found = json.loads(convbench(here, "report", "run", "--format", "json").out)
    again = json.loads(convbench(here, "report", "run", "--json").out)["result"]
    assert found["parts"] == again["parts"]
    assert convbench(here, "report", "run", "--format", "html").out.startswith("<!doctype html>")
    done = convbench(here, "report", "run", "--format", "latex", "--out", "new/out")
    assert done.code == 0
    assert "\\begin{tabular}" in (here / "new" / "out" / "report.tex").read_text()


def test_mistakes_are_one_line(here):
    assert "found no run here" in convbench(here, "report").error
    assert "found verdicts of rules" in convbench(here, "report", "run", "--judge", "x").error
    (here / "file").write_text("")
    assert "cannot be written" in convbench(here, "report", "run", "--out", "file/x").error
