"""Documents of SWEET's and SEAL's experiments: their papers' tables, galleries, time, variance."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from convbench.errors import RunError
from convbench.judges.adaptation.accuracies import NOTHING, PASSAGE, UNTRAINED
from convbench.judges.adaptation.passages import ForgettingSequence
from convbench.judges.resolve import Judge
from convbench.reports import adaptation
from convbench.reports.document import Document, ReportPart, Table
from convbench.reports.experiment.experiment_document import experiment_document, read_experiment
from convbench.reports.experiment.gallery import trained_policy
from convbench.reports.tables import reference_table, training_table, variance_table
from convbench.reports.writers import render_text
from convbench.schema import ModelConfig, Sampling, Verdict
from convbench.store import Run
from tests.helpers import seal_runs, stages
from tests.helpers.runs import make, questions, written_run

SEQUENCE = ForgettingSequence(("a", "b"), (0.0, 0.0), ((0.5,), (0.25, 1.0)), base=(0.0, 0.1))
OTHER = replace(SEQUENCE, after=((1.0,), (0.75, 0.5)))
SEQUENCES = {UNTRAINED: [SEQUENCE], "round 2": [SEQUENCE, OTHER]}
HOSTILE = "</dd></details><script>alert(1)</script> | `x` \x1b[31m end."


def judged(run: Run, judge: Judge, shares: tuple[float, ...]) -> None:
    """Write a verdict of each edit: this share of the passage's questions is right, by golds."""
    run.store_judge(judge.fingerprint, judge.spec)
    with run.verdicts_file.open("wb") as file:
        for talk, share in zip(run.conversations(), shares, strict=True):
            asked = run.examples[talk.example_id].hidden["questions"]
            right = round(share * len(asked))
            replies = [str(q["answer"]) if i < right else "no idea" for i, q in enumerate(asked)]
            scores = {"accuracy": share, "gain": share, "net": share, "improves": 1.0,
                      "overall": share, "trained": 1.0}  # fmt: skip
            details = {"replies": [replies, replies], "seconds": 10 + 20 * share, "learner": "x"}
            file.write(Verdict(conversation_id=talk.conversation_id, judge=judge.name,
                               fingerprint=judge.fingerprint, scores=scores, reward=share,
                               details=details).model_dump_json().encode() + b"\n")  # fmt: skip


def seal_experiment(root: Path, tuning: str = "lora") -> Path:
    """Write an experiment of one cell: Base's edits of three test passages, and round 2's."""
    examples = [e.model_copy(update={"split": "test"}) for e in seal_runs.some_examples(3)]
    judge = seal_runs.quick_judge(
        **{"args.pretraining.tuning": tuning, "args.inner.grade": "exact"}
    )
    member = ModelConfig(model="local:pocket", sampling=Sampling(max_tokens=48))
    said = {e.example_id: [f"- edit {i}"] for i, e in enumerate(examples)}
    base = written_run(root / "pocket-notes-self-edit-standard-seed0",
                       ("pocket-notes", "self-edit"), member, 1.0, examples, said)  # fmt: skip
    judged(base, judge, (0.0, 0.25, 0.5))
    other = ModelConfig(model="openai/gpt-4.1", sampling=member.sampling)
    learnt = {"recipe": {"name": "seal", "filter": "best-of-k"}}
    for name, writer, extra, shares in (("seal-round-2", member, learnt, (0.25, 1.0, 0.5)),
                                        ("gpt-4.1", other, {}, (1.0, 1.0, 1.0))):  # fmt: skip
        child = written_run(base.evals_folder / name, ("pocket-notes", "self-edit"), writer, 1.0,
                            examples, {key: ["- better"] for key in said})  # fmt: skip
        manifest = child.manifest.model_copy(update={
            "parent": base.manifest.id, "kind": "eval", "id": f"{child.manifest.id}-{name}",
            "extra": extra,
        })  # fmt: skip
        (child.path / "run.json").write_text(manifest.model_dump_json())
        judged(Run.open(child.path), judge, shares)
    groups = [e.group_id for e in examples]
    adaptation.write_seal_report(
        base.reports_folder,
        {NOTHING: [(g, 0.0) for g in groups], PASSAGE: [(g, 0.25) for g in groups]},
        {
            UNTRAINED: [(g, 0.125) for g in groups],
            "round 2": [(g, 0.75) for g in groups],
            "self-edits of gpt-4.1": [(g, 0.5) for g in groups],
        },
        SEQUENCES,
    )
    return base.path


def part_of(document: Document, start: str) -> ReportPart:
    (found,) = (part for part in document.parts if part.title.startswith(start))
    return found


def table_of(part: ReportPart, start: str) -> Table:
    (found,) = (table for table in part.tables if table.caption.startswith(start))
    return found


def row_of(table: Table, name: str) -> list[str]:
    (found,) = (row for row in table.rows if row[0].text == name)
    return [cell.text for cell in found]


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_seal_s_printed_table_has_what_was_measured(tmp_path: Path, tuning: str) -> None:
    seal_experiment(tmp_path, tuning)
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    table = table_of(part_of(made, "Printed: pocket-notes"), "Knowledge incorporation, published")
    at_once = ["0.750", "-"] if tuning == "lora" else ["-", "0.750"]
    assert row_of(table, "SEAL round 2") == ["SEAL round 2", "pocket-notes", "0.583", *at_once]
    assert row_of(table, "passage only")[2:] == ["0.250", "-", "-"]
    names = [row[0].text for row in table.rows]
    assert names.index("SEAL round 2") == names.index("  SEAL round 2") - 1
    written = table.rows[names.index("  Passage + GPT-4.1 data") - 1]
    assert [cell.text for cell in written[2:]] == [
        "1.000", *(["0.500", "-"] if tuning == "lora" else ["-", "0.500"]),
    ]  # fmt: skip
    assert row_of(table, "  SEAL round 2")[2:] == ["0.470", "0.438", "0.582"]
    assert any("Zweiger et al. 2025 stand beside ours" in fact for fact in made.parts[0].facts)


def test_seal_s_section_has_its_matrices_and_the_time_of_an_adaptation(tmp_path: Path) -> None:
    seal_experiment(tmp_path)
    made = experiment_document(read_experiment(tmp_path), "x")
    part = part_of(made, "pocket-notes")
    assert row_of(table_of(part, "All passages at once"), "SEAL round 2")[1] == "0.750"
    matrix = table_of(part, "One passage after the other: SEAL round 2")
    assert [[cell.text for cell in row] for row in matrix.rows] == [
        ["none", "0.00", "0.10", "0.05"], ["1", "0.75", "", "0.75"], ["2", "0.50", "0.75", "0.62"],
    ]  # fmt: skip
    assert "Earlier passages after the last edit: 0.500." in matrix.notes[0]
    (picture,) = (p for p in part.pictures if p.name.startswith("forgetting"))
    assert "untrained self-edits" not in picture.caption
    assert "over 2 sequences" in picture.caption
    time = table_of(part, "Time of an adaptation")
    assert row_of(time, "Base") == ["Base", "3", "15", "20"]
    assert row_of(time, "SEAL round 2") == ["SEAL round 2", "3", "21.7", "30"]
    assert row_of(time, "  Zweiger et al. 2025, printed")[2] == "30 to 45"


def test_seal_s_gallery_is_the_median_passage_with_both_answers(tmp_path: Path) -> None:
    base = Run.open(seal_experiment(tmp_path))
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    (talk,) = part_of(made, "Conversations").talks
    first, *_ = base.examples.values()  # gains .25, .75 and 0: the first passage's is median
    assert first.example_id.rpartition("/")[2] in talk.facts[0]
    assert "+0.250, the median of 3 pairs" in talk.facts[0]
    assert [side.title for side in talk.sides] == ["Base", "SEAL round 2"]
    assert [side.turns[-1][1] for side in talk.sides] == ["- edit 0", "- better"]
    (table,) = talk.tables
    asked = first.hidden["questions"]
    assert len(table.rows) == len(asked) == 4
    rows = [[cell.text for cell in row] for row in table.rows]
    gold = str(asked[0]["answer"])
    assert rows[0] == [asked[0]["question"], gold, "no idea", "0 of 2", gold, "2 of 2"]
    assert all(row[3] == row[5] == "0 of 2" for row in rows[1:])
    for form in ("markdown", "html", "latex"):
        assert "Questions about the passage" in render_text(made, form) or form == "latex"
        assert "2 of 2" in render_text(made, form)


def test_a_folder_s_report_is_the_same_with_paper(tmp_path: Path) -> None:
    seal_experiment(tmp_path)
    plain, paper = (stages.report(tmp_path, paper=paper).document for paper in (False, True))
    assert plain == paper


def test_a_damaged_measurement_is_one_line(tmp_path: Path) -> None:
    file = seal_experiment(tmp_path) / "reports" / "self-edits.json"
    stored = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**stored, "sequences": {"round 2": [{"names": 3}]}}))
    with pytest.raises(
        RunError, match=r"self-edits\.json: sequences: found a record of another shape"
    ):
        experiment_document(read_experiment(tmp_path), "x", plots=False)


def cell(root: Path, *recipes: dict[str, object]) -> None:
    """Write a cell of ARC with Base and one evaluation a recipe."""
    examples = questions(3, "arc")
    more = {"task": "arc", "samples": 1, "temperatures": (0.7,)}
    base = make(root / "arc-thinking-seed0", examples, lambda q, k: "B", overall=lambda q, k: 5.0,
                **more)  # fmt: skip
    for recipe in recipes:
        make(base.evals_folder / str(recipe["name"]), examples, lambda q, k: "A", split="test",
             overall=lambda q, k: 6.0, parent=base.manifest.id, extra={"recipe": recipe},
             **more)  # fmt: skip


def test_methods_stand_at_the_lines_that_sweet_s_paper_prints(tmp_path: Path) -> None:
    """Multi-turn DPO is defined without what SWEET's ablations leave out."""
    plain = {"hidden": [], "normalize": False}
    cell(tmp_path, {"name": "mt-dpo", "args": plain}, {"name": "rft"},
         {"name": "sweet", "args": {"normalize": False}})  # fmt: skip
    (section,) = read_experiment(tmp_path).sections
    table = reference_table(replace(section, protocol="collaboration"), "rules", "clustered")
    assert table is not None
    names = [row[0].text for row in table.rows]
    for own, printed in (("Base", "Zero-shot"), ("Multi-turn DPO", "Multi-turn DPO"),
                         ("Rejection fine-tuning", "Rejection fine-tuning"),
                         ("SWEET-RL", "SWEET-RL without length normalisation")):  # fmt: skip
        assert names[names.index(own) + 1] == f"  {printed}"


@pytest.mark.parametrize(
    ("recipes", "first"),
    [
        (("rft", "mt-dpo", "sweet"), "SWEET-RL"),
        (("mine", "rft"), "Rejection fine-tuning"),
        (("mine",), "mine"),
        (("sweet", "refit"), "ReFit"),
        ((), None),
    ],
)
def test_any_learner_has_a_gallery(
    tmp_path: Path, recipes: tuple[str, ...], first: str | None
) -> None:
    cell(tmp_path, *({"name": name} for name in recipes))
    (section,) = read_experiment(tmp_path).sections
    policy = trained_policy(section)
    assert (policy and policy.name) == first
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    shown = [t.sides[1].title for p in made.parts if p.title == "Conversations" for t in p.talks]
    assert shown == ([first] if first else [])


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_judge_s_words_fold_out_under_each_conversation(tmp_path: Path) -> None:
    cell(tmp_path, {"name": "swift"})
    for file in tmp_path.rglob("verdicts.jsonl"):
        lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        for line in lines:
            line["justifications"] = {"accuracy": HOSTILE, "overall": "Fine.", "pedagogical": " "}
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    made = experiment_document(read_experiment(tmp_path), "x", plots=False)
    (talk,) = part_of(made, "Conversations").talks
    heads = [[head for head, _ in side.justifications] for side in talk.sides]
    assert [sorted(some) for some in heads] == [
        ["rules, Accuracy: 5/10", "rules, Overall: 5/10"],
        ["rules, Accuracy: 6/10", "rules, Overall: 6/10"],
    ]
    page = Tags(render_text(made, "html"))
    assert page.tags.count("details") == page.tags.count("summary") == 2
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") == 2
    shown = render_text(made, "markdown")
    assert shown.count("<details>") == shown.count("</details>") == 2
    assert "<summary>The judge's justifications</summary>\n\n- **rules, " in shown
    assert "<script" not in shown
    assert "Fine." in render_text(made, "latex")


def test_time_and_variance_of_trainings_are_tables(tmp_path: Path) -> None:
    cell(tmp_path, {"name": "swift"}, {"name": "refit"})
    (section,) = read_experiment(tmp_path).sections
    counted = {"unit": "turn", "steps": 3, "counts": {"rows": 9}}
    gradient = {"rows": 9, "refit": {"variance": 4.0, "squared_norm": 8.0},
                "centred": {"variance": 1.0, "squared_norm": 0.0}}  # fmt: skip
    timed = {**counted, "seconds": 12_754.2, "devices": {"NVIDIA H100": 2, "CPU": 1}}
    policies = {p.name: p for p in section.policies}
    measured = replace(policies["SWiFt"], training={**timed, "gradient": gradient})
    plain = replace(policies["ReFit"], training=counted)
    assert variance_table(replace(section, policies=(plain,))) is None
    without = training_table(replace(section, policies=(plain,)))
    assert without is not None
    assert "seconds" not in [column.head for column in without.columns]
    both = replace(section, policies=(measured, plain))
    table, variance = training_table(both), variance_table(both)
    assert table is not None
    assert row_of(table, "SWiFt")[-2:] == ["12,754", "2 x NVIDIA H100, 1 x CPU"]
    assert row_of(table, "ReFit")[-2:] == ["-", "-"]
    assert variance is not None
    assert row_of(variance, "SWiFt") == ["SWiFt", "9", "4", "0.5", "1", "-", "-", "-"]
