"""What papers print, beside what was measured."""

import csv
import math

import pytest

from convbench.reports.published import FILE, is_named, method_order, printed_rows
from tests.helpers.reported import learner, names, right_on, tables_of
from tests.helpers.runs import make, questions


def values(rows, column):
    return {row.name: row.values[column].mean for row in rows if column in row.values}


def lines_of(setting, judges=(), **more):
    task, mode, protocol, turns = setting
    return printed_rows(task, mode, protocol, turns, judges=judges, **more)


def test_every_printed_number_is_there():
    with FILE.open(newline="") as file:
        lines = list(csv.DictReader(file))
    count = dict.fromkeys({line["paper"] for line in lines}, 0)
    for line in lines:
        count[line["paper"]] += 1
    assert count == {"mukherjee2025offline": 920, "zhou2025sweetrl": 58, "zweiger2025seal": 28}
    assert method_order()[:5] == ["SWiFt", "ReFit", "DPO", "STaR-GATE", "Base"]


def test_printed_errors_of_accuracy_are_naive():
    for row in lines_of(("arc", "thinking", "reasoning", 3)):
        if row.table == "1" and row.method != "Base":
            mean, error, n = row.values["correct"].mean, row.values["correct"].error, 289
            assert error == pytest.approx(math.sqrt(mean * (1 - mean) / n), abs=1e-4)
            assert row.values["correct"].n == n


def test_printed_rows_by_setting_and_judge():
    arc = ("arc", "thinking", "reasoning", 3)
    rows = lines_of(arc, ("rules",))
    first = [row for row in rows if not row.rows]
    assert values(first, "correct")["Swift"] == 0.7993
    assert values(first, "thinking")["Swift"] == pytest.approx(97.9)
    assert values(first, "rules/overall")["Swift"] == 7.19
    both = lines_of(arc, ("gpt-4o", "claude-opus"))
    swift = next(row for row in both if row.name == "Swift" and not row.rows)
    assert swift.values["gpt-4o/overall"].mean == 7.19
    assert swift.values["claude-opus/overall"].mean != 7.19
    sized = {row.rows for row in rows if row.rows}
    assert sized == {"1000", "2000"}
    assert lines_of(("sciq", "standard", "reasoning", 3))  # the paper's SciQA may be either
    assert lines_of(("sciqa", "standard", "reasoning", 3))
    assert not lines_of(("demo", "thinking", "reasoning", 3))


def test_printed_rows_of_other_papers():
    backend = ("colbench-backend", "standard", "collaboration", 10)
    rows = lines_of(backend, ("unit-tests",), model="openai/gpt-4o")
    assert values(rows, "unit-tests/accuracy")["Zero-shot"] == pytest.approx(0.224)
    assert values(rows, "unit-tests/overall")["SWEET-RL"] == pytest.approx(0.568)
    assert values(rows, "unit-tests/accuracy")["GPT-4o"] == pytest.approx(0.404)
    assert len(rows) == 14
    large = lines_of(backend, ("unit-tests",), model="vllm:meta-llama/Llama-3.1-70B-Instruct")
    assert values(large, "unit-tests/accuracy")["SWEET-RL"] == pytest.approx(0.456)
    assert len(large) == 4
    pages = ("colbench-frontend", "standard", "collaboration-frontend", 10)
    clip = lines_of(pages, ("render-clip",))
    assert values(clip, "won")["SWEET-RL"] == pytest.approx(48.2)
    assert values(clip, "render-clip/overall")["SWEET-RL"] == pytest.approx(0.777)
    assert not lines_of(pages, ("render",))  # another measure is not CLIP's
    seal = ("squad", "standard", "self-edit", 1)
    assert values(lines_of(seal, ("adaptation",)), "adaptation/accuracy") == {
        "Base": 0.327,
        "Passage only": 0.335,
        "Passage + untrained self-edits": 0.397,
        "Passage + GPT-4.1 data": 0.463,
        "SEAL round 1": 0.427,
        "SEAL round 2": 0.47,
    }
    at_once = lines_of(seal, ("adaptation",), variant="continued pre-training, full")
    assert values(at_once, "adaptation/accuracy")["SEAL round 2"] == 0.582


def test_a_model_is_known_by_its_name():
    assert is_named("GPT-4o", "gpt-4o-2024-08-06")
    assert not is_named("GPT-4o", "gpt-4o-mini")
    assert is_named("Llama-3.1-70B-Instruct", "Meta-Llama-3.1-70B-Instruct")


def test_paper_stands_under_ours(tmp_path):
    run = make(tmp_path / "run", questions(4, "arc"), right_on(0), task="arc",
               overall=lambda q, k: 5.0)  # fmt: skip
    learner(run, "swift", right_on(0, 1), "SWiFt")
    table = tables_of(run, paper=True)["results"]
    assert names(table)[:4] == ["SWiFt", "  printed", "Base", "  printed"]
    assert "StepDPO, printed" in names(table)
    assert table.rows[1].printed
    assert table.rows[1].cells[1].mean == 0.7993
    assert not [name for name in names(table) if "1000" in name]
    ranks = [line[1] for line in table.ranks()]
    assert ranks[0] == 1  # ours among ours
    assert 1 in [rank for rank, row in zip(ranks, table.rows, strict=True) if row.printed]


def test_ablations_stand_below_and_under_no_learner_of_ours(tmp_path):
    more = {"protocol": "collaboration", "judge": "unit-tests", "mode": "standard"}
    more["scores"] = lambda q, k: {"overall": 1.0, "accuracy": 1.0}
    task = "colbench-backend"
    run = make(tmp_path / "run", questions(2, task), right_on(), task=task, **more)
    learner(run, "sweet", right_on(), "SWEET-RL", recipe={"args": {"normalize": False}}, **more)
    table = tables_of(run, paper=True)["results"]
    above = zip(names(table)[:-1], table.rows[1:], strict=True)
    assert {name: row.cells[3].mean for name, row in above if row.cells[0] == "  printed"} == {
        "Base": pytest.approx(0.342),
        "SWEET-RL": pytest.approx(0.568),
    }
    ablations = {"regression head", "training-time information", "length normalisation"}
    assert all(any(f"{each}, printed" in name for name in names(table)) for each in ablations)
