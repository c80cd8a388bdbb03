"""The document of a whole experiment: every printed table beside ours, what is missing, gallery."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import orjson
import pytest

from convbench.errors import RunError
from convbench.options.report import ReportOptions
from convbench.reports.experiment.experiment_document import (
    experiment_document,
    is_experiment,
    read_experiment,
)
from convbench.reports.experiment.gallery import median_pair
from convbench.reports.experiment.steps import write_plan
from convbench.reports.published import paper_tables
from convbench.reports.report import experiment_report
from convbench.reports.writers import render_text, write_report
from tests.helpers import stages
from tests.helpers.cli import convbench
from tests.helpers.paper_set import cell_name, record, scores, write_cell, write_paper
from tests.helpers.report_tables import cells
from tests.helpers.runs import make, questions

ARC = ("arc", "thinking", "reasoning", 3)


def part_of(document, start):
    return next(part for part in document.parts if part.title.startswith(start))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All cells of the paper's set, and their document without pictures."""
    root = tmp_path_factory.mktemp("paper")
    write_paper(root, size=6)
    record(root, ("arc-thinking-seed0/build", "done", [], 5400.0))
    return experiment_document(read_experiment(root), "The paper", plots=False)


def test_each_of_the_21_tables_stands_beside_its_printed_neighbour(whole):
    for printed in paper_tables():
        part = part_of(whole, f"Table {printed.number}: ")
        assert part.title.startswith(f"Table {printed.number}: {printed.task} · {printed.mode}")
        table, lines = part.tables[0], [row[0].text for row in part.tables[0].rows]
        for method, numbers in printed.methods.items():
            name = f"ReFit ({method} rows)" if printed.by_size else method
            # Ours stands right above the printed line, whose numbers are as printed.
            assert lines.index(f"  {name}, printed") == lines.index(name) + 1
            cell = cells(table, f"  {name}, printed", "Accuracy")
            assert cell.text == f"{numbers['accuracy'].mean:.4f}"
            assert cell.error == f"{numbers['accuracy'].error:.4f}"
            overall = cells(table, f"  {name}, printed", "R Overall")
            assert overall.text == f"{numbers['r_overall'].mean:.2f}"
            assert cells(table, name, "Accuracy").error is not None
        (fact,) = part.facts
        judge = "claude-opus" if printed.number == 19 else "rules"
        assert fact == f"Clustered errors; judge {judge}."
    assert "21 of 21 printed tables are compared with our results" in whole.parts[0].facts[1]
    assert not any(part.title == "Missing" for part in whole.parts)


def test_the_share_of_unread_answers_stands_beside_accuracy(tmp_path):
    """Replies of 128 tokens may end before the answer; the printed tables do not say how many."""

    def text(question, sample, answer):
        return f"The answer is {answer}." if question != "q0" else "I have not"

    write_cell(tmp_path, ARC, {"Base": 0.2, "SWiFt": 0.8}, 4, text=text)
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    table = part_of(made, "Table 1: ").tables[0]
    heads = [column.head for column in table.columns]
    assert heads[1:3] == ["Accuracy", "Unread (%)"]
    assert cells(table, "SWiFt", "Unread (%)").text == "25.0"
    assert cells(table, "  SWiFt, printed", "Unread (%)").text == "-"


def test_both_readings_of_the_sample_size_stand_above_the_printed_line(tmp_path):
    base = write_cell(tmp_path, ARC, {"Base": 0.2, "ReFit-rows-1000": 0.5}, 4)
    folder = base.checkpoints_folder / "refit-turns-1000"
    shutil.copytree(base.checkpoints_folder / "refit-1000", folder)
    recipe = base.checkpoints_folder / "refit-1000" / "recipe.yaml"
    recipe.write_text("name: refit\ndata: {rows: 1000, unit: conversation}\n")
    make(
        base.evals_folder / "refit-turns-1000",
        questions(4, "arc"),
        lambda q, k: "A",
        scores=scores(0.9),
        parent=base.manifest.id,
        checkpoint="checkpoints/refit-turns-1000",
        split="test",
        task="arc",
        mode="thinking",
        protocol="reasoning",
        samples=2,
        temperatures=(0.7,),
        turns=3,
    )
    made = experiment_document(read_experiment(tmp_path), "x")
    part = part_of(made, "Table 20: ")
    lines = [row[0].text for row in part.tables[0].rows]
    assert lines[:3] == [
        "ReFit (1000 conversations)",
        "ReFit (1000 rows)",
        "  ReFit (1000 rows), printed",
    ]
    assert any("does not say what its sample size counts" in n for n in part.tables[0].notes)
    (curve,) = [p for p in part.pictures if p.name.startswith("size")]
    assert "ReFit (conversations)" in curve.svg


def test_every_table_has_one_row_of_orders(whole):
    (table,) = whole.parts[0].tables
    found = {row[0].text: row for row in table.rows}
    assert {f"Table {number}" for number in range(1, 22)} <= found.keys()
    # Ours are the printed accuracies, rounded to sixths, so that orders agree but for ties.
    assert float(cells(table, "Table 1", "τ, accuracy").text) > 0.7
    assert cells(table, "Table 1", "n").text == "7"
    assert cells(table, "Tables 15 to 18", "n").text == "4"


def test_cost_and_hours_are_told_a_cell_and_in_all(whole):
    (table,) = part_of(whole, "Cost").tables
    assert cells(table, "arc-thinking-seed0", "hours").text == "1.50"
    assert table.rows[-1][0].text == "All"
    assert len(table.rows) == 18 + 1


def test_what_it_truly_cost(tmp_path):
    """Judges, evaluations, what was lost and what nobody holds any more: all of it counts."""
    base = write_cell(tmp_path, ARC, {"SWiFt": 0.8}, 2, judge="rules", model="openai/x")
    (child,) = base.child_runs()
    for run in (base, child):
        talks = [orjson.loads(line) for line in run.conversations_file.read_bytes().splitlines()]
        for number, talk in enumerate(talks):
            priced = {"cost_usd": 0.5} if number else {}  # the price of the first is not known
            talk["turns"][-1] |= {"prompt_tokens": 100, "completion_tokens": 10, **priced}
        run.conversations_file.write_bytes(b"".join(orjson.dumps(t) + b"\n" for t in talks))
        said = [orjson.loads(line) for line in run.verdicts_file.read_bytes().splitlines()]
        lines = [orjson.dumps({**one, "cost_usd": 0.25, "prompt_tokens": 50}) for one in said]
        run.verdicts_file.write_bytes(b"\n".join([*lines, b""]))
    calls = [{"key": f"k{n}", "hash": "h", "content": "x", "attempt": f"a-{n}", "cost_usd": 2.0,
              "prompt_tokens": 1000, "completion_tokens": 1} for n in range(4)]  # fmt: skip
    (base.path / "calls.jsonl").write_bytes(b"".join(orjson.dumps(c) + b"\n" for c in calls))
    lost = {"attempt": "a-9", "key": "k9", "tokens": 500, "usd": 1.0}
    (base.path / "attempts.jsonl").write_bytes(orjson.dumps(lost) + b"\n")
    talks, had = (len(list(run.conversations())) for run in (base, child))
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    (table,) = part_of(made, "Cost").tables
    conversations, judges = 0.5 * (talks - 1 + had - 1), 0.25 * (talks + had)
    line = {
        column.head: cell.text for column, cell in zip(table.columns, table.rows[-1], strict=True)
    }
    assert line["conversations ($)"] == f"{conversations:.4f}"
    assert line["judges ($)"] == f"{judges:.4f}"
    # Four calls of two dollars, and an attempt without a reply that may have cost one.
    assert line["total ($)"] == "9.0000+ ?"
    assert line["lost, unused ($)"] == f"{9 - conversations - judges:.4f}"
    assert line["tokens"] == f"{4 * 1001 + 500:,}"
    assert any("Price unknown for 2 conversations" in note for note in table.notes)


def test_what_is_missing_is_said_where_it_would_stand(tmp_path):
    write_cell(tmp_path, ARC, {"Base": 0.2, "SWiFt": 0.8})
    record(
        tmp_path,
        ("arc-thinking-seed0/build", "done", [], 1.0),
        ("arc-thinking-seed0/train/dpo", "failed", ["RunError: the card is <full>"], 1.0),
        ("arc-thinking-seed0/eval/dpo", "waits", ["train dpo"], 0.0),
        ("mmlu-thinking-seed0/build", "failed", ["DataError: no rows"], 1.0),
        ("arc-thinking-seed0/train/swift-99", "failed", ["no longer asked for"], 1.0),
        ("arc-thinking-seed0/train/refit", "failed", ["no /home/me/own/weights.bin"], 1.0),
    )
    steps = ("build", "train/dpo", "eval/dpo", "train/refit")
    asked = [f"arc-thinking-seed0/{step}" for step in steps]
    write_plan(tmp_path, "Tables",
               [*asked, "mmlu-thinking-seed0/build", "cosql-thinking-seed0/build"])  # fmt: skip
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    arc = part_of(made, "Table 1: ")
    assert cells(arc.tables[0], "DPO: missing", "Accuracy").text == "-"
    assert any(
        fact.startswith("Missing, DPO: arc-thinking-seed0: train dpo: RunError: the card is <full>")
        for fact in arc.facts
    )
    assert any(fact.startswith("Missing, STaR-GATE: not planned") for fact in arc.facts)
    mmlu = part_of(made, "Table 2: ")
    assert mmlu.facts == ("Missing: mmlu-thinking-seed0: build: DataError: no rows.",)
    assert cells(mmlu.tables[0], "  SWiFt, printed", "Accuracy").text == "0.7032"
    assert part_of(made, "Table 5: ").facts == ("Missing: not reached yet.",)
    lines = {row[0].text: row[1].text for row in part_of(made, "Missing").tables[0].rows}
    assert lines["arc-thinking-seed0: train dpo"] == "RunError: the card is <full>"
    assert lines["arc-thinking-seed0: train refit"] == "no weights.bin"
    assert "arc-thinking-seed0: train swift-99" not in lines
    assert lines["Table 19: arc · thinking · reasoning, n = 3 · second judge"].startswith(
        "no second judge"
    )
    assert lines["Table 12: mathdial · standard · reasoning, n = 3"].startswith("not a part")


def test_naive_errors_are_those_of_the_conversations(tmp_path):
    write_cell(tmp_path, ARC, {"Base": 0.2, "SWiFt": 0.8})
    made = experiment_document(read_experiment(tmp_path), "x", kind="naive", plots=False)
    part = part_of(made, "Table 1: ")
    assert part.facts[0] == "Naive errors; judge rules."
    # 3 of 4 questions, twice each: sqrt(.75 * .25 / 8) by their conversations.
    assert cells(part.tables[0], "SWiFt", "Accuracy").error == "0.1531"


def test_a_run_that_cannot_be_read_costs_its_lines_alone(tmp_path):
    base = write_cell(tmp_path, ARC, {"Base": 0.2, "SWiFt": 0.8, "DPO": 0.5})
    (base.evals_folder / "dpo" / "conversations.jsonl").write_bytes(b"{nonsense\n")
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    table = part_of(made, "Table 1: ").tables[0]
    assert cells(table, "SWiFt", "Accuracy").text == "0.7500"
    assert cells(table, "DPO: missing", "Accuracy").text == "-"
    (line,) = (
        r for r in part_of(made, "Missing").tables[0].rows if r[0].text == "arc-thinking-seed0/dpo"
    )
    assert "conversations.jsonl:1" in line[1].text


@pytest.mark.exhaustive
def test_an_experiment_without_a_printed_table_has_its_usual_report(tmp_path):
    examples = questions(4, "pocket")
    base = make(tmp_path / "pocket-thinking-seed0", examples, lambda q, k: "A", task="pocket",
                overall=lambda q, k: 5.0)  # fmt: skip
    make(base.evals_folder / "swift", examples, lambda q, k: "A", task="pocket", split="test",
         overall=lambda q, k: 6.0, parent=base.manifest.id)  # fmt: skip
    assert is_experiment(tmp_path)
    assert not is_experiment(base.path)
    made = experiment_report(tmp_path, ReportOptions()).document
    titles = [part.title for part in made.parts]
    assert titles[1] == "pocket · thinking · reasoning, n = 3, judge rules"
    assert not any("Table" in title or "Figure" in title for title in titles)
    assert made.parts[1].tables[0].caption == "Results"


def test_what_is_an_experiment_and_what_is_not(tmp_path):
    make(tmp_path / "runs" / "one", questions(2), lambda q, k: "A")
    (tmp_path / "runs" / "latest").symlink_to("one", target_is_directory=True)
    assert not is_experiment(tmp_path / "runs")
    with pytest.raises(RunError, match="run"):
        stages.report(tmp_path / "runs")
    record(tmp_path, ("arc-thinking-seed0/build", "failed", ["DataError: no rows"], 1.0))
    assert is_experiment(tmp_path)
    refused = {"judge": "rules", "baseline": "DPO", "gold": True, "verdict": True, "pairwise": True}
    for name, value in refused.items():
        with pytest.raises(RunError, match=f"--{name}: found an experiment's folder"):
            stages.report(tmp_path, **{name: value})
    made = stages.report(tmp_path)
    assert part_of(made.document, "Table 1: ").facts[0].endswith("build: DataError: no rows.")
    assert made.folder == tmp_path / "report"


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ((0.3, 0.1, 0.2), "q2#0@0.7"),  # the middle one
        ((0.3, 0.1, 0.2, 0.4), "q2#0@0.7"),  # the lower of the two middle ones
        ((0.1, 0.1, 0.1), "q1#0@0.7"),  # equal ones by their names
    ],
)
def test_the_gallery_takes_the_median_difference(tmp_path, gains, chosen):
    examples = questions(len(gains), "arc")
    more = {"task": "arc", "samples": 1, "temperatures": (0.7,)}
    base = make(tmp_path / "run", examples, lambda q, k: "A", overall=lambda q, k: 5.0, **more)
    make(
        base.evals_folder / "swift", list(reversed(examples)), lambda q, k: "A", split="test",
        overall=lambda q, k: 5.0 + 10 * gains[int(q[1:])], parent=base.manifest.id,
        extra={"recipe": "swift"}, **more,
    )  # fmt: skip
    (section,) = read_experiment(tmp_path).sections
    pair = median_pair(section)
    assert (pair.unit, pair.pair_count) == (chosen, len(gains))
    assert pair == median_pair(section)


HOSTILE = (
    "</dd></article><script>alert(1)</script><img src=http://x/y onerror=alert(1)>\n"
    "\\input{/etc/passwd} \\write18{ls} $x_1^2$ 50% & ~ # {{ }} `` -- ,, ''\n"
    "[label] *star* \x1b[31m\x00 中文 \U0001f600 \u202eabc é ß " + "w" * 300
)


def hostile(tmp_path):
    """The document of a cell whose every reply, and a method's name, is an attack."""
    root = tmp_path / "attacked"
    base = write_cell(
        root, ARC, {"Base": 0.2, "SWiFt": 0.8}, 2, text=lambda q, k, said: f"{HOSTILE} {said}."
    )
    more = {"task": "arc", "samples": 2, "temperatures": (0.7,), "split": "test"}
    make(base.evals_folder / "evil", questions(2, "arc"), lambda q, k: "A", scores=scores(0.5),
         parent=base.manifest.id, extra={"recipe": "[evil] \\end{tabular}<b>"}, **more)  # fmt: skip
    record(root, ("arc-thinking-seed0/train/dpo", "failed", [HOSTILE], 1.0))
    return experiment_document(read_experiment(root), "A & B <x> $", plots=False)


class Page(HTMLParser):
    """Tags, and what stands in the conversations."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.said = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.said.append(data)


def test_hostile_text_stays_text_in_html_and_markdown(tmp_path):
    made = hostile(tmp_path)
    page = Page(render_text(made, "html"))
    assert not page.tags & {"script", "img", "iframe"}
    assert "<script>alert(1)</script>" in "".join(page.said)
    assert "[evil] \\end{tabular}<b>" in "".join(page.said)
    shown = render_text(made, "markdown")
    assert "<script" not in shown
    assert "<img" not in shown


def test_hostile_text_stays_text_in_latex(tmp_path):
    shown = render_text(hostile(tmp_path), "latex")
    assert shown.startswith("\\documentclass")
    assert shown.endswith("\\end{document}\n")
    assert "\\input" not in shown
    assert "\\write" not in shown
    assert shown.count("\\end{tabular}") == shown.count("\\begin{tabular}")
    assert "{[}U+4E2D{]}" in shown
    assert "{[}U+1F600{]}" in shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", shown)
    assert shown.count("{") - shown.count(r"\{") == shown.count("}") - shown.count(r"\}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_document_compiles(tmp_path):
    write_report(hostile(tmp_path), tmp_path / "out", ["latex"])
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape",
         "report.tex"],
        cwd=tmp_path / "out", capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:].decode("utf-8", "replace")


@pytest.mark.exhaustive
def test_the_document_as_a_user_asks_for_it(tmp_path):
    pytest.importorskip("matplotlib")
    for n in (4, 6):
        write_cell(tmp_path, ("openbookqa", "thinking", "reasoning", n), {"SWiFt": 0.9})
    result = convbench(tmp_path, "report", ".", "--out", "out")
    assert result.code == 0, result.err
    assert "Ordering" in result.out
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.html", "report.tex", "report.md"} <= files
    lengths = "number-of-turns-openbookqa-thinking-reasoning-rules"
    assert {f"{lengths}.{ending}" for ending in ("pdf", "png", "svg")} <= files
    assert f"{{{lengths}.pdf}}" in (tmp_path / "out" / "report.tex").read_text()
    again = stages.report(tmp_path)
    assert again.folder == tmp_path / "report"
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("SWiFt, printed") >= 2
    assert cell_name("openbookqa", "thinking", "reasoning", 4) in page
