"""A file of one's own, without options: taken whole, asked as it is, and no other way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import SpecError
from convbench.learn.pairs import first_messages
from convbench.learn.select import Logged
from convbench.prompts import refuse_absent_choices
from convbench.schema import Choice, ProtocolSpec, TaskSpec
from convbench.store import Run
from tests.helpers.runs import example
from tests.helpers.typed import Typist

ROWS = "id,q\n" + "".join(f"{n},What is the use of thing {n}?\n" for n in range(6))
CHAT = catalog.load_spec(ProtocolSpec, "protocols", "chat")


@pytest.fixture
def task(tmp_path: Path, typist: Typist) -> Path:
    """The least that a task of open questions says, in `specs/tasks/things.yaml`."""
    (tmp_path / "things.csv").write_text(ROWS)
    folder = tmp_path / "specs" / "tasks"
    folder.mkdir(parents=True)
    file = folder / "things.yaml"
    file.write_text("title: things\nsource: {file: things.csv}\nrows: {key: id, question: q}\n")
    return file


def test_a_file_is_taken_whole_and_said_as_it_is(typist: Typist, task: Path) -> None:
    said = typist("build", "things", "--model", "scripted:policy", "--run", "runs/a")
    assert said.code == 0, said.err
    run = Run.open(Path("runs/a"))
    assert len(run.examples) == 6
    assert (run.manifest.protocol.name, run.manifest.task.answer.kind) == ("chat", "none")
    for talk in run.conversations():
        question, reply = talk.turns
        assert question.content == run.examples[talk.example_id].question
        assert (question.speaker, reply.speaker) == ("user", "assistant")
        assert not any(talk.systems.values())
    (row,) = typist.json("query", "select count(correct) as n from conversations", "--run",
                         "runs/a")["result"]["rows"]  # fmt: skip
    assert row["n"] == 0  # nothing is right or wrong
    shown = typist("show", talk.conversation_id)
    assert "question " in shown.out
    assert "answer   " not in shown.out


@pytest.mark.parametrize("form", ["table", "markdown", "latex", "html", "json", "csv"])
def test_a_report_before_any_judge_has_no_measures_and_says_so(
    typist: Typist, task: Path, form: str
) -> None:
    assert not typist("build", "things", "--model", "scripted:policy").code
    said = typist("report", "--format", form)
    assert said.code == 0, said.err
    assert form == "csv" or "Not judged yet" in said.out


def test_labels_are_drawn_after_a_judge(typist: Typist, task: Path) -> None:
    assert not typist("build", "things", "--model", "scripted:policy").code
    assert "next: convbench init judge my-rubric" in typist("gold").out


def test_an_instruction_follows_the_question(typist: Typist, task: Path) -> None:
    task.write_text(task.read_text() + "instruction: Be brief.\n")
    shown = typist.json("show", "things")["result"]["messages"]
    assert shown[0]["content"].endswith("?\n\nBe brief.")


@pytest.mark.parametrize(
    ("more", "count", "protocol"),
    [
        ("", "all", "chat"),
        ("sample: {train: 0.5}\n", "all", "chat"),
        ("sample: {count: 3}\n", 3, "chat"),
        ("protocol: closed-book\nanswer: {kind: text}\n", "all", "closed-book"),
    ],
)
def test_what_is_said_counts(task: Path, more: str, count: object, protocol: str) -> None:
    task.write_text(task.read_text() + more)
    spec = catalog.load_spec(TaskSpec, "tasks", str(task))
    assert (spec.sample.count, spec.protocol) == (count, protocol)


def test_a_copy_of_a_hub_set_is_still_drawn_from() -> None:
    sets = {"source.hub": None, "source.file": "copy.parquet"}
    arc = catalog.load_spec(TaskSpec, "tasks", "arc", sets=sets)
    assert (arc.sample.count, arc.protocol, arc.answer.kind) == (500, "reasoning", "choice")


@pytest.mark.parametrize("protocol", ["direct", "reasoning", "clarifying", "clarifying-adaptive"])
def test_a_template_that_speaks_of_choices_is_refused(
    typist: Typist, task: Path, protocol: str
) -> None:
    for more in ((), ("--dry-run",)):
        teacher = ("--teacher", "scripted:policy") if protocol.startswith("clar") else ()
        said = typist("build", "things", "--protocol", protocol, "--model", "scripted:policy",
                      *teacher, *more)  # fmt: skip
        assert said.code == 1
        assert f"error: protocol {protocol}: " in said.err
        assert "no question of task things has options" in said.err
        assert "--protocol chat" in said.err
    assert "has options" in typist("show", "things", "--protocol", protocol).err


def test_a_policy_is_not_evaluated_or_trained_so_either(typist: Typist, task: Path) -> None:
    typist("build", "things", "--model", "scripted:policy", "--run", "runs/a")
    said = typist("eval", "scripted:policy", "--run", "runs/a", "--protocol", "direct")
    assert "no question of task things has options" in said.err
    run = Run.open(Path("runs/a"))
    talk = next(run.conversations())
    direct = catalog.load_spec(ProtocolSpec, "protocols", "direct")

    item = Logged(run, talk, run.examples[talk.example_id], "t", 1.0)
    with pytest.raises(SpecError, match=r"--set pairing\.protocol=chat"):
        first_messages(item, direct)
    found = first_messages(item, CHAT)
    assert found == [{"role": "user", "content": item.example.question}]


def test_a_template_that_asks_whether_there_are_choices_is_fine() -> None:
    arc = catalog.load_spec(TaskSpec, "tasks", "arc")
    listed = "{% for c in choices %}{{ c.text }}{% endfor %}"
    none, some = [example(0, choices=())], [example(0, choices=(Choice(label="A", text="x"),))]
    for say, fine in ((f"{{% if choices %}}{listed}{{% endif %}}", True), (listed, False)):
        step = CHAT.steps[0].model_copy(update={"say": say})
        spec = CHAT.model_copy(update={"steps": (step, CHAT.steps[1])})
        refuse_absent_choices(arc, spec, "standard", some)
        if fine:
            refuse_absent_choices(arc, spec, "standard", none)
        else:
            with pytest.raises(SpecError, match="step question uses"):
                refuse_absent_choices(arc, spec, "standard", none)


def test_a_scaffold_of_open_questions_runs_as_it_is(typist: Typist) -> None:
    said = typist("init", "task", "advice", "--open")
    assert said.code == 0, said.err
    lines = [line.removeprefix("next: convbench ") for line in said.out.splitlines()
             if line.startswith("next:")]  # fmt: skip
    assert lines
    for line in lines:
        assert typist(*line.split()).code == 0
    assert typist("init", "judge", "kind").code == 0
    shown = json.dumps(typist.json("judge", "--judge", "kind@openai/x", "--dry-run")["result"])
    assert "Question: Why" in shown
    assert "Correct answer" not in shown
    assert "--open: found with a judge" in typist("init", "judge", "other", "--open").err


def test_differences_tell_the_scales_of_what_they_compare(typist: Typist, task: Path) -> None:
    task.write_text(task.read_text() + "sample: {train: 0.8}\njudge: brief\n")
    judge = task.parents[1] / "judges/brief.yaml"
    judge.parent.mkdir()
    judge.write_text(
        "title: brief\nkind: rules\nfunction: brief_words.py:brief\n"
        "metrics: [{name: overall, label: Overall}]\n"
    )
    Path("brief_words.py").write_text(
        "def brief(conversation, example, protocol):\n"
        "    return {'overall': float(len(conversation.turns[-1].content) % 10)}\n"
    )
    for words in (
        ("build", "things", "--model", "scripted:policy"),
        ("judge", "--judge", "brief"),
        ("eval", "scripted:echo", "--name", "echo"),
    ):
        done = typist(*words)
        assert done.code == 0, done.err
    report = typist("report").out
    differences = report.partition("Differences to Base")[2].partition("By temperature")[0]
    assert "Scales: R Overall: 0 to 10." in differences
    assert "Accuracy" not in report
    assert re.search(r"\b1\s+groups", report) is None
    assert re.search(r"conversations\s+of\s+split\s+test\s+about\s+1\s+group\.", report)
