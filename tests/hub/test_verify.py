"""`verify`: what was made of records can be made again, and what was changed is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from convbench.errors import RunError
from convbench.hub.send import publish_as_dataset
from convbench.hub.verify import verify_target
from convbench.options.publish import PublishOptions
from convbench.options.report import ReportOptions
from convbench.reports.report import create_report
from convbench.reports.verification import seal_report
from convbench.reports.writers import write_report
from convbench.store import Run
from convbench.store.folder_seal import check_folder, seal_folder
from tests.hub.runs import write_run
from tests.reports.synthetic import make, questions
from tests.support.app import app


def wrong(place: Path) -> list[str]:
    """What is wrong with a folder."""
    return verify_target(str(place)).problems


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an evaluation and a report, sealed as their writers do."""
    folder = tmp_path_factory.mktemp("verify") / "r"
    base = make(folder, questions(8), lambda q, k: "A", overall=lambda q, k: 4.0 + k)
    child = make(
        base.evals_folder / "swift", questions(8), lambda q, k: "B" if k else "A", split="test",
        parent=base.manifest.id, checkpoint="x/swift", overall=lambda q, k: 6.0 + k,
    )  # fmt: skip
    for run in (base, child):
        with run.lock():
            pass
    options = ReportOptions((folder,))
    made = create_report(options)
    files = write_report(made.document, base.reports_folder, {"json"})
    seal_report(made.document, options, made.runs, made.root, files)
    return folder


@pytest.fixture
def family(kept: Path, tmp_path: Path) -> Run:
    """A copy of one's own."""
    return Run.open(Path(shutil.copytree(kept, tmp_path / "r")))


def test_a_run_with_its_evaluations_and_report_verifies(family: Run) -> None:
    found = verify_target(str(family.path))
    assert found.problems == []
    kinds = [one.what.split()[0] for one in found.checked]
    assert kinds == ["run", "run", "report"]
    assert "27 conversations, 27 verdicts" in found.checked[0].summary
    assert "tables recomputed" in found.checked[2].summary


@pytest.mark.parametrize("file", ["conversations", "verdicts", "examples"])
def test_a_changed_record_is_found_where_it_lies(family: Run, file: str) -> None:
    path = family.evals_folder / "swift" / f"{file}.jsonl"
    path.write_bytes(path.read_bytes().replace(b"6.0", b"7.0").replace(b"is A", b"is B"))
    if file == "examples":
        path.write_bytes(path.read_bytes().replace(b'"answer":"A"', b'"answer":"B"'))
    (text,) = wrong(family.path)
    assert f"evals/swift: {file}.jsonl" in text
    assert "changed since it was sealed" in text


def test_a_changed_figure_of_a_report_is_found(family: Run) -> None:
    file = family.reports_folder / "report.json"
    file.write_text(file.read_text().replace("1.0000", "0.9000"))
    assert "report.json: changed since it was written" in wrong(family.reports_folder)[0]


def test_a_forged_report_is_found_by_its_figures(family: Run) -> None:
    """Its files and its seal agree with each other, and not with the records."""
    sealed = check_folder(family.reports_folder)
    told = json.dumps(sealed.about)
    assert "6.50" in told or "7.00" in told
    forged = json.loads(told.replace("7.00", "9.00"))
    seal_folder(family.reports_folder, "report", ["report.json"], forged)
    assert check_folder(family.reports_folder).problems == ()
    found = wrong(family.path)
    assert any("says '9.00'; the records give '7.00'" in text for text in found), found


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        ("markdown", "7.00", "9.00"),
        ("html", "7.00", "9.00"),
        ("latex", "7.00", "9.00"),
        ("csv", "7.00", "9.00"),
        ("json", '"estimate": 7.0', '"estimate": 9.0'),
        ("markdown", "test split", "train split"),
    ],
)
def test_a_page_that_was_changed_and_sealed_again_is_found(
    kept: Path, tmp_path: Path, form: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its digest nor the figures of its seal tell: it is written again and compared."""
    run = Run.open(Path(shutil.copytree(kept, tmp_path / "r")))
    shutil.rmtree(run.reports_folder)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", "r", "--format", form, "--out", "r/reports"])
    assert done.exit_code == 0, done.output
    monkeypatch.chdir(tmp_path.parent)
    assert wrong(run.path) == []
    (page,) = [path for path in run.reports_folder.iterdir() if path.name != "seal.json"]
    text = page.read_text()
    assert before in text
    page.write_text(text.replace(before, after, 1))
    sealed = check_folder(run.reports_folder)
    seal_folder(run.reports_folder, "report", sealed.names, sealed.about)
    found = wrong(run.path)
    assert found
    assert all(f"{page.name}:" in line and "the records give" in line for line in found)


@pytest.mark.exhaustive
def test_a_page_with_pictures_is_compared_but_for_what_they_draw(
    kept: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    run = Run.open(Path(shutil.copytree(kept, tmp_path / "r")))
    shutil.rmtree(run.reports_folder)
    done = CliRunner().invoke(app, ["report", str(run.path), "--plots", "--titles"])
    assert done.exit_code == 0, done.output
    assert wrong(run.path) == []
    page = run.reports_folder / "report.html"
    page.write_text(page.read_text().replace("7.00", "9.00", 1))
    sealed = check_folder(run.reports_folder)
    seal_folder(run.reports_folder, "report", sealed.names, sealed.about)
    assert any("report.html:" in line for line in wrong(run.path))


def test_a_run_that_was_never_sealed_says_so_and_can_be_taken_as_it_is(tmp_path: Path) -> None:
    make(tmp_path / "r", questions(2), lambda q, k: "A")
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "r")])
    assert done.exit_code == 1
    assert "conversations.jsonl: was never sealed" in done.output
    assert "convbench verify RUN --seal" in done.output
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "r"), "--seal"])
    assert done.exit_code == 0, done.output
    assert "verified" in done.output


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The folder of a small set that was judged."""
    run = write_run(tmp_path / "r")
    return publish_as_dataset(PublishOptions("me/set", dry_run=True), run).dataset.folder


def test_a_published_set_is_made_again_from_its_records(published: Path) -> None:
    assert wrong(published) == []
    assert {"seal.json", "eval.yaml", "README.md"} <= {path.name for path in published.iterdir()}


@pytest.mark.parametrize("name", ["README.md", "run/verdicts.jsonl", "eval.yaml", "new.txt"])
def test_a_changed_file_of_a_set_is_found(published: Path, name: str) -> None:
    path = published / name
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\n")
    assert any(text.endswith(("since it was written", "was sealed")) for text in wrong(published))


def test_a_forged_card_is_found_by_its_figures(published: Path) -> None:
    """Whoever writes a seal over a forged card, and one over a forged table, is found too."""
    from convbench.store.folder_seal import check_folder, names_in, seal_folder

    about = check_folder(published).about
    card = published / "README.md"
    before = card.read_text()
    card.write_text(before.replace("multi-turn conversations", "splendid conversations", 1))
    seal_folder(published, "set", names_in(published), about)
    (text,) = wrong(published)
    assert "README.md: line" in text
    assert "differs from what the records give" in text
    card.write_text(before)
    (table,) = (published / "verdicts").glob("train-*.parquet")
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(table)
    pyarrow.parquet.write_table(rows.slice(1), table)
    seal_folder(published, "set", names_in(published), about)
    (text,) = wrong(published)
    assert "verdicts/train" in text


def test_traces_read_as_the_hub_reads_them(published: Path) -> None:
    """By the reader of `datasets`, which the Hub's dataset viewer is built on."""
    from datasets.packaged_modules.json.json import parse_traces_info

    traces = sorted((published / "traces").glob("*.jsonl"))
    assert traces
    ids = [talk.conversation_id for talk in Run.open(published / "run").conversations()]
    for file in traces:
        lines = file.read_text().splitlines()
        _, session, prompt, _, asked, _ = parse_traces_info(lines)
        assert session == ids[int(file.stem) - 1]
        assert prompt
        assert asked == sum(json.loads(line).get("message", {}).get("role") == "user"
                            for line in lines)  # fmt: skip
        head, *rest = map(json.loads, lines)
        assert head["type"] == "session"
        assert head["harness"] == "convbench"
        assert {line["message"]["role"] for line in rest} <= {"system", "user", "assistant", "tool"}
        assert all(isinstance(line["message"]["content"], str) for line in rest)


def test_results_of_a_checkpoint_name_the_tasks_of_its_set(published: Path) -> None:
    """As the Hub's own client reads them."""
    from huggingface_hub import parse_eval_result_entries

    from convbench.hub.benchmark import results_yaml
    from convbench.hub.checkpoint_card import EvaluationResults

    tasks = yaml.safe_load((published / "eval.yaml").read_text())["tasks"]
    assert {task["config"] for task in tasks} == {"examples"}
    results = EvaluationResults(
        "test", "reasoning", 9, 3, "rules", (), (), {"accuracy": 0.5, "reward": 0.25}
    )
    text = results_yaml(results, ["me/set"])
    assert text is not None
    entries = parse_eval_result_entries(yaml.safe_load(text))
    assert [(e.dataset_id, e.task_id, e.value) for e in entries] == [
        ("me/set", "accuracy", 0.5), ("me/set", "reward-rules", 0.25)
    ]  # fmt: skip
    assert "accuracy" in {task["id"] for task in tasks}
    assert results_yaml(results, []) is None


def test_what_is_nothing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"found no such folder; expected a run"):
        verify_target(str(tmp_path / "no-such"))
    with pytest.raises(RunError, match=r"found no run\.json"):
        verify_target(str(tmp_path))
    (tmp_path / "seal.json").write_text('{"files": {}, "about": {"runs": 3}, "kind": "report"}')
    assert wrong(tmp_path)


def test_a_hostile_set_is_refused_as_it_is_by_pull(tmp_path: Path) -> None:
    """A function of another package in the records of a set opens nothing."""
    run = write_run(tmp_path / "r", count=1)
    folder = publish_as_dataset(PublishOptions("me/set", dry_run=True), run).dataset.folder
    from convbench.store.folder_seal import check_folder, names_in, seal_folder

    about = check_folder(folder).about
    file = folder / "run" / "run.json"
    value = json.loads(file.read_text())
    value["task"]["source"]["adapter"] = "os:system"
    file.write_text(json.dumps(value))
    seal_folder(folder, "set", names_in(folder), about)
    assert len(wrong(folder)) == 1
