"""Flagged conversations, win rates, self-edits and other papers' tables, on runs by hand."""

import json

import pytest

from convbench.reports.document import Cell
from convbench.reports.published import colbench_table, self_edit_table
from convbench.reports.writers import render_text
from tests.helpers import stages
from tests.helpers.report_tables import cells, right_on, table_of
from tests.helpers.runs import make, questions

FORMS = ("markdown", "latex", "html")


def heads_of(result, caption):
    return [column.head for column in table_of(result, caption).columns]


@pytest.fixture
def flagged(tmp_path):
    """Base: question 0 is flagged twice over at sample 0, question 1 once; SWiFt: never."""
    found = {("q0", 0): ("human:leak", "human:code"), ("q1", 2): ("human:leak",)}
    base = make(
        tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 4.0 + 2 * (q == "q1"),
        flags=lambda q, k: found.get((q, k), ()),
    )  # fmt: skip
    make(
        base.evals_folder / "swift", questions(2), right_on(0, 1), overall=lambda q, k: 8.0,
        parent=base.manifest.id, split="test",
    )  # fmt: skip
    return stages.report(base.path)


def test_results_stand_with_and_without_flagged_conversations(flagged):
    table = table_of(flagged, "With and without")
    # Base: 3 of 6 right; of the 4 without a flag those of q0 at samples 1 and 2.
    assert cells(table, "Base", "flagged") == Cell("2 (33.3%)")
    assert cells(table, "Base", "Accuracy, all").text == "0.5000"
    assert cells(table, "Base", "Accuracy, unflagged").text == "0.5000"
    assert cells(table, "Base", "R Overall, all").text == "5.00"
    assert cells(table, "Base", "R Overall, unflagged").text == "5.00"
    assert cells(table, "SWiFt", "flagged") == Cell("0 (0.0%)")
    shares = table_of(flagged, "Flags")
    assert cells(shares, "human:leak", "Base") == Cell("2 (33.3%)")
    assert cells(shares, "human:code", "Base") == Cell("1 (16.7%)")
    assert cells(shares, "human:code", "SWiFt") == Cell("0 (0.0%)")
    for form in FORMS:
        written = render_text(flagged.document, form)
        assert "With and without flagged conversations" in written
        assert "human:leak" in written
        assert "33.3" in written


def test_unflagged_means_leave_out_what_is_flagged(tmp_path):
    run = make(
        tmp_path / "run", questions(2), right_on(0), overall=lambda q, k: 4.0 + 2 * (q == "q1"),
        flags=lambda q, k: ("teacher:early",) if q == "q1" else (),
    )  # fmt: skip
    table = table_of(stages.report(run.path), "With and without")
    assert cells(table, "Base", "conversations") == Cell("6")
    assert cells(table, "Base", "Accuracy, all").text == "0.5000"
    assert cells(table, "Base", "Accuracy, unflagged") == Cell("1.0000")  # one group: no error
    assert cells(table, "Base", "R Overall, unflagged").text == "4.00"


def test_nothing_flagged_needs_no_table(tmp_path):
    run = make(tmp_path / "run", questions(2), right_on(0))
    captions = [t.caption for t in stages.report(run.path).document.parts[0].tables]
    assert not {"Flags", "With and without flagged conversations"} & set(captions)


def test_win_rates_of_pages(tmp_path):
    def looks(*values):
        return lambda q, k: {"overall": values[int(q[1:])], "blank": 0.2, "random_pair": 0.3}

    base = make(tmp_path / "run", questions(4), right_on(), scores=looks(0.5, 0.5, 0.5, 0.5, 0),
                judge="render", samples=1, temperatures=(1.0,))  # fmt: skip
    make(
        base.evals_folder / "sweet", questions(4), right_on(), scores=looks(0.9, 0.5, 0.4, 0.6, 0),
        judge="render", samples=1, temperatures=(1.0,), parent=base.manifest.id, split="test",
        extra={"recipe": "sweet"},
    )  # fmt: skip
    result = stages.report(base.path)
    table = table_of(result, "Win rates")
    (row,) = table.rows
    # Points 1, 1/2, 0, 1: mean 5/8, standard deviation .4787, error .2394, t with 3: 3.1824.
    assert [c.text for c in row] == [
        "SWEET-RL over Base", "2", "1", "1", "0.625", "[0.000, 1.000]", "4", "4"
    ]  # fmt: skip
    for form in FORMS:
        assert "Win rates" in render_text(result.document, form)
    rules = make(tmp_path / "rules", questions(2), right_on(0), overall=lambda q, k: 5.0)
    captions = [t.caption for t in stages.report(rules.path).document.parts[0].tables]
    assert "Win rates" not in captions


@pytest.fixture
def seal(tmp_path):
    """Passages q0, q1: unadapted .1 and .3; untrained edits .2 and .4, two each; round 1 .5."""

    def taught(first, second):
        after = {"q0": first, "q1": second, "q2": 0.0}
        before = {"q0": 0.1, "q1": 0.3, "q2": 0.0}
        return lambda q, k: {
            "accuracy": after[q], "gain": after[q] - before[q], "improves": 1.0,
            "overall": after[q],
        }  # fmt: skip

    more = {
        "task": "pocket-notes", "protocol": "self-edit", "mode": "standard", "samples": 2,
        "temperatures": (1.0,), "judge": "adaptation",
    }  # fmt: skip
    passages = questions(2, "pocket-notes")
    base = make(tmp_path / "run", passages, right_on(), scores=taught(0.2, 0.4), **more)
    for number, scores in ((1, taught(0.5, 0.5)), (2, taught(0.6, 0.6))):
        make(
            base.evals_folder / f"seal-round-{number}", passages, right_on(), scores=scores,
            parent=base.manifest.id, split="test", extra={"recipe": "seal"}, **more,
        )  # fmt: skip
    base.reports_folder.mkdir()
    kept = {"passage only": [["g0", 0.15], ["g1", 0.35]]}
    (base.reports_folder / "self-edits.json").write_text(json.dumps(kept))
    return base


def test_rounds_of_self_edits_stand_in_the_report(seal):
    result = stages.report(seal.path)
    table = table_of(result, "What self-edits teach")
    lines = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert list(lines) == [
        "nothing", "passage only", "untrained self-edits", "SEAL round 1", "SEAL round 2"
    ]  # fmt: skip
    assert [line[0] for line in lines.values()] == ["0.200", "0.250", "0.300", "0.500", "0.600"]
    # Round 1 less untrained: .3 and .1: mean .2, error .1, t with 1: 12.706.
    assert lines["SEAL round 1"][2:] == ["+0.200", "[-1.071, +1.471]", "4", "2"]
    assert lines["nothing"][4:] == ["2", "2"]
    assert lines["untrained self-edits"][2:4] == ["-", "-"]


def test_kinds_of_self_edits_stand_side_by_side(seal, tmp_path):
    more = {
        "task": "pocket-notes", "protocol": "self-edit-self-qa", "mode": "standard", "samples": 2,
        "temperatures": (1.0,), "judge": "adaptation",
    }  # fmt: skip
    after = {"q0": 0.3, "q1": 0.7, "q2": 0.0}
    scores = lambda q, k: {"accuracy": after[q], "gain": 0.0, "improves": 1.0, "overall": 0.0}  # noqa: E731
    other = make(
        tmp_path / "other", questions(2, "pocket-notes"), right_on(), scores=scores, **more
    )
    found = stages.report(seal.path, other.path).document
    (table,) = (t for part in found.parts for t in part.tables if t.caption.startswith("Kinds"))
    rows = [[cell.text for cell in row] for row in table.rows]
    assert [row[:3] for row in rows[:2]] == [
        ["untrained self-edits", "self-edit", "0.300"],
        ["untrained self-edits", "self-edit-self-qa", "0.500"],
    ]
    # .1 and .3 above: mean .2, error .1, t with 1: 12.706.
    assert rows[1][4:] == ["+0.200", "[-1.071, +1.471]", "2"]
    assert rows[0][4:6] == ["-", "-"]
    assert not {"nothing", "passage only"} & {row[0] for row in rows}
    alone = stages.report(seal.path).document
    assert not any(t.caption.startswith("Kinds") for part in alone.parts for t in part.tables)


def test_rounds_by_prompt_stand_beside_the_printed_ones(seal, tmp_path):
    more = {
        "task": "pocket-notes", "protocol": "self-edit-self-qa", "mode": "standard", "samples": 2,
        "temperatures": (1.0,), "judge": "adaptation",
    }  # fmt: skip

    def taught(accuracy):
        return lambda q, k: {"accuracy": accuracy, "gain": 0.0, "improves": 1.0, "overall": 0.0}

    passages = questions(2, "pocket-notes")
    other = make(tmp_path / "other", passages, right_on(), scores=taught(0.4), **more)
    make(
        other.evals_folder / "seal-round-1", passages, right_on(), scores=taught(0.5),
        parent=other.manifest.id, split="test", extra={"recipe": "seal"}, **more,
    )  # fmt: skip
    report = stages.report(seal.path, other.path).document
    (table,) = (t for part in report.parts for t in part.tables if t.label == "prompts")
    assert [[cell.text for cell in row] for row in table.rows] == [
        # Gains .4 and .2: mean .3, error .1, t with 1: 12.706.
        ["self-edit", "0.300", "0.500", "0.600", "+0.300", "[-0.971, +1.571]", "2"],
        ["  printed", "0.397", "0.427", "0.470", "+0.073", "-", "-"],
        ["self-edit-self-qa", "0.400", "0.500", "-", "+0.100", "[+0.100, +0.100]", "2"],
        ["  printed", "0.373", "0.428", "0.487", "+0.114", "-", "-"],
    ]  # fmt: skip
    assert "7.3 to 11.4 points" in table.notes[1]
    alone = stages.report(seal.path).document
    assert not any(t.label == "prompts" for part in alone.parts for t in part.tables)


def test_another_models_edits_stand_in_seals_line(seal):
    more = {
        "task": "pocket-notes", "protocol": "self-edit", "mode": "standard", "samples": 2,
        "temperatures": (1.0,), "judge": "adaptation", "parent": seal.manifest.id, "split": "test",
    }  # fmt: skip
    for name, accuracy in (("gpt-4.1-2025-04-14", 0.7), ("gpt-4.1-mini", 0.4)):
        scores = {"accuracy": accuracy, "gain": 0.0, "improves": 1.0, "overall": accuracy}
        make(
            seal.evals_folder / name, questions(2, "pocket-notes"), right_on(),
            scores=lambda q, k, scores=scores: scores, model=f"openai/{name}", **more,
        )  # fmt: skip
    report = stages.report(seal.path, paper=True)
    rows = [row[0].text for row in table_of(report, "Knowledge incorporation, published").rows]
    assert rows[rows.index("self-edits of gpt-4.1-2025-04-14") + 1] == "  Passage + GPT-4.1 data"
    assert rows[-1] == "self-edits of gpt-4.1-mini"


def test_the_published_tables_are_the_facts():
    rows = colbench_table().methods
    assert rows["Zero-shot"] == (22.4, 34.2, 72.4, 33.8)
    assert rows["SWEET-RL"] == (40.4, 56.8, 77.7, 48.2)
    assert rows["SWEET-RL without length normalisation"] == (3.6, 4.2, None, None)
    assert rows["GPT-4o"] == (40.4, 54.6, 78.1, 50.0)
    assert rows["o1-mini in a single turn"] == (13.1, 22.4, 70.2, 23.8)
    assert list(rows)[1:3] == ["Rejection fine-tuning", "Multi-turn DPO"]
    assert len(rows) == 14
    large = colbench_table("hosted_vllm/meta-llama/Meta-Llama-3.1-70B-Instruct").methods
    assert large["SWEET-RL"] == (45.6, 60.2, None, None)
    assert len(large) == 4
    rows = self_edit_table().methods
    assert rows["Base"] == (0.327, None, None)
    assert rows["Passage only"] == (0.335, 0.322, None)
    assert rows["SEAL round 1"] == (0.427, None, None)
    assert rows["SEAL round 2"] == (0.470, 0.438, 0.582)
    assert len(rows) == 6
    kinds = {
        "self-edit-implications-long": [0.493, 0.524, 0.544],
        "self-edit-rewrite": [0.494, 0.553, 0.556],
        "self-edit-self-qa": [0.373, 0.428, 0.487],
        "self-edit-implications-very-long": [0.450, 0.515, 0.521],
    }
    for protocol, values in kinds.items():
        rows = self_edit_table(protocol).methods
        assert [row[0] for row in rows.values()] == values
        assert list(rows)[1:] == ["SEAL round 1", "SEAL round 2"]


def test_seals_table_stands_beside_ours(seal):
    assert not any(
        t.label == "published" for t in stages.report(seal.path).document.parts[0].tables
    )
    result = stages.report(seal.path, paper=True)
    table = table_of(result, "Knowledge incorporation, published")
    names = [row[0].text for row in table.rows]
    assert names == [
        "nothing", "  Base", "passage only", "  Passage only", "untrained self-edits",
        "  Passage + untrained self-edits", "  Passage + GPT-4.1 data", "SEAL round 1",
        "  SEAL round 1", "SEAL round 2", "  SEAL round 2",
    ]  # fmt: skip
    assert [c.text for c in table.rows[-1]] == [
        "  SEAL round 2", "Zweiger et al. 2025", "0.470", "0.438", "0.582"
    ]  # fmt: skip
    assert [c.text for c in table.rows[-2][1:]] == ["pocket-notes", "0.600", "-", "-"]
    assert "Models, data and judge are not ours" in table.notes[0]
    assert "The paper has no table" not in str(result.document)
    for form in FORMS:
        written = render_text(result.document, form)
        assert "0.470" in written
        assert "Self-Adapting Language Models" in written


def test_sweets_table_stands_beside_ours(tmp_path):
    def passed(share):
        return lambda q, k: {"overall": share, "accuracy": float(share == 1)}

    more = {
        "task": "colbench-backend", "protocol": "collaboration", "judge": "unit-tests",
        "mode": "standard",
    }  # fmt: skip
    asked = questions(2, "colbench-backend")
    base = make(tmp_path / "run", asked, right_on(), scores=passed(0.5), **more)
    for name, recipe in (
        ("sweet", {"name": "sweet"}), ("rft", {"name": "rft"}),
        ("bare", {"name": "sweet", "args": {"normalize": False}}), ("star", {"name": "star-gate"}),
        ("blind", {"name": "sweet", "args": {"hidden": []}}),
    ):  # fmt: skip
        make(
            base.evals_folder / name,
            asked,
            right_on(),
            scores=passed(1.0),
            parent=base.manifest.id,
            split="test",
            extra={"recipe": recipe},
            **more,
        )
    result = stages.report(base.path, paper=True)
    table = table_of(result, "ColBench, published")
    lines = [[cell.text for cell in row] for row in table.rows]
    assert lines[0] == ["Base", "colbench-backend", "0.0", "50.0", "-", "-"]
    assert lines[1] == ["  Zero-shot", "Zhou et al. 2025", "22.4", "34.2", "72.4", "33.8"]
    assert [line[0] for line in lines[2:11]] == [
        "Rejection fine-tuning", "  Rejection fine-tuning", "  Multi-turn DPO", "SWEET-RL (sweet)",
        "  SWEET-RL", "SWEET-RL (blind)", "  SWEET-RL without training-time information",
        "  SWEET-RL with a regression head", "SWEET-RL (bare)",
    ]  # fmt: skip
    assert lines[11][0] == "  SWEET-RL without length normalisation"
    assert lines[-1][0] == "STaR-GATE"
    assert heads_of(result, "Results")[2:] == [
        "Unread (%)",
        "R Tests passed",
        "R Success",
    ]  # standard mode: no Thinking
    for form in FORMS:
        written = render_text(result.document, form)
        assert "56.8" in written
        assert "2503.15478" in written


def test_pages_are_won_over_the_papers_rival_where_it_was_run_too(tmp_path):
    """GPT-4o scores .5 everywhere; the policy more on one task, the same on one, less on two."""
    more = {
        "task": "colbench-frontend", "protocol": "collaboration-frontend", "mode": "standard",
        "judge": "render-clip", "temperatures": (0.3,), "samples": 1,
    }  # fmt: skip
    asked = questions(4, "colbench-frontend")
    ours = {"q0": 0.9, "q1": 0.5, "q2": 0.1, "q3": 0.2}
    small = make(tmp_path / "small", asked, right_on(), overall=lambda q, k: ours.get(q), **more)
    rival = make(
        tmp_path / "rival", asked, right_on(), overall=lambda q, k: 0.5,
        model="openai/gpt-4o-2024-08-06", **more,
    )  # fmt: skip
    both = (small.path, rival.path)
    table = table_of(stages.report(*both, paper=True), "ColBench, published")
    lines = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    first, second = (name for name in lines if name.startswith("Base"))
    assert lines[first][-1] == "37.5"  # one win and half a one, of four
    assert lines[second][-1] == "-"
    order = list(lines)
    assert order.index(first) == order.index("  Zero-shot") - 1
    assert order.index(second) == order.index("  GPT-4o") - 1


def test_pages_are_won_over_a_rival_that_was_evaluated_beside_the_policy(tmp_path):
    """GPT-4o scores .5 everywhere; the learner more on one of two tasks."""
    more = {
        "task": "colbench-frontend", "protocol": "collaboration-frontend", "mode": "standard",
        "judge": "render-clip", "temperatures": (0.3,), "samples": 1,
    }  # fmt: skip
    asked = questions(2, "colbench-frontend")
    base = make(tmp_path / "run", asked, right_on(), overall=lambda q, k: 0.4, **more)
    own = {"q0": 0.9, "q1": 0.1}
    for name, scores, extra in (
        ("sweet", lambda q, k: own.get(q), {"extra": {"recipe": "sweet"}}),
        ("gpt-4o", lambda q, k: 0.5, {"model": "openai/gpt-4o"}),
        ("llama-3.1-70b", lambda q, k: 0.5, {"model": "vllm:meta-llama/Llama-3.1-70B-Instruct"}),
    ):
        make(
            base.evals_folder / name, asked, right_on(), overall=scores,
            parent=base.manifest.id, split="test", **extra, **more,
        )  # fmt: skip
    report = stages.report(base.path, paper=True)
    lines = [[c.text for c in row] for row in table_of(report, "ColBench, published").rows]
    won = {line[0]: line[-1].split(" ")[0] for line in lines}
    assert [won[name] for name in ("Base", "SWEET-RL", "gpt-4o", "llama-3.1-70b")] == [
        "0.0", "50.0", "-", "50.0"
    ]  # fmt: skip
    order = list(won)
    for name, printed in (("gpt-4o", "GPT-4o"), ("llama-3.1-70b", "Llama-3.1-70B-Instruct")):
        assert order[order.index(name) + 1] == f"  {printed}"


def test_another_measure_of_pages_never_stands_under_clips_name(tmp_path):
    more = {"task": "colbench-frontend", "protocol": "collaboration-frontend", "mode": "standard"}
    for judge, said in (("render", "-"), ("render-clip", "70.0")):
        run = make(
            tmp_path / judge, questions(2, "colbench-frontend"), right_on(), judge=judge,
            scores=lambda q, k: {"overall": 0.7, "blank": 0.2, "random_pair": 0.3}, **more,
        )  # fmt: skip
        table = table_of(stages.report(run.path, paper=True), "ColBench, published")
        assert table.rows[0][-2].text == said
