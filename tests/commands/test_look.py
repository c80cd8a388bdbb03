"""`list`, `show`, `init`: what there is, and specs of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench import catalog
from tests.helpers.typed import Typist

BUILD = ("build", "demo", "--model", "scripted:policy", "--tasks", "3", "--samples", "1")


def test_runs_are_listed_with_what_they_hold(
    typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    typist(*BUILD, "--run", "runs/one")
    typist(*BUILD, "--run", "runs/two")
    typist("judge", "--run", "runs/one", "--judge", "rules")
    said = typist("list", "runs")
    head, *rows = [line for line in said.out.splitlines() if line.startswith(("run ", "runs/"))]
    assert [row.split()[0] for row in rows] == ["runs/two", "runs/one"]
    assert "(latest)" in rows[0]
    assert "rules" in rows[1]
    assert rows[1][head.index(" complete") :].split()[0] == "3"


def test_a_damaged_run_does_not_hide_the_others(typist: Typist) -> None:
    typist(*BUILD, "--run", "runs/one")
    Path("runs/two").mkdir()
    Path("runs/two/run.json").write_text("{")
    said = typist("list", "runs")
    assert said.code == 0
    assert "runs/one" in said.out
    assert "note: " in said.err
    assert "runs/two/run.json" in said.err


SHOWN = [
    *(f"judges/{name}" for name in ("rubric", "rules", "unit-tests")),
    *(f"protocols/{name}" for name in ("direct", "collaboration", "self-edit", "tools")),
    "recipes/swift", "recipe/sweet", "experiments/paper", "launch/zero2", "models/claude-opus",
    "tasks/demo", "demo", "swift", "claude-opus",
]  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_every_kind_of_spec_is_shown(typist: Typist, name: str) -> None:
    said = typist("show", name)
    assert said.code == 0, said.err
    found = typist.json("show", name)
    assert found["result"]["name"] == name.rpartition("/")[2]
    if name.startswith(("protocols", "tasks")) or name in ("demo", "judges/rubric"):
        assert found["result"]["messages"]


def test_texts_of_several_lines_are_shown_as_they_stand_in_a_file(typist: Typist) -> None:
    assert "prompt: |-\n  Please evaluate this" in typist("show", "judges/rubric").out


def test_a_run_that_holds_nothing_is_no_next_step(typist: Typist) -> None:
    typist(*BUILD, "--run", "runs/one")
    typist("build", "demo", "--model", "hosted_vllm/x", "--api-base", "http://127.0.0.1:9/v1",
           "--tasks", "1", "--run", "runs/two")  # fmt: skip
    assert "next: convbench view runs/one" in typist("list", "runs").out


def test_a_judge_is_shown_with_its_transcript_fenced(typist: Typist) -> None:
    messages = typist.json("show", "judges/rubric")["result"]["messages"]
    assert [one["role"] for one in messages] == ["system", "user"]
    assert "wandering albatross" not in messages[1]["content"]
    assert "assistant" in messages[1]["content"].lower()


def test_what_is_no_spec_gets_one_line(typist: Typist) -> None:
    assert "did you mean 'rubric'" in typist("show", "judges/rubrik").err
    assert "models/claude-opsu: found no such model" in typist("show", "models/claude-opsu").err


KINDS = ("task", "protocol", "judge", "recipe")


@pytest.mark.parametrize("kind", KINDS)
def test_a_scaffold_runs_as_it_is(
    typist: Typist, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")  # a dry run says so where there is none
    typist(*BUILD, "--run", "runs/one")
    typist("judge", "--judge", "rules")
    made = typist.json("init", kind, "mine")
    assert Path(made["result"]["file"]).read_text().count("#") > 3
    assert made["next"]
    for line in made["next"]:
        said = typist(*line.split()[1:])
        # pocket knows no word of the demo's questions, and says so; the recipe itself is taken
        assert said.code == 0 or (kind == "recipe" and "--model" in said.err), said.err
    again = typist("init", kind, "mine")
    assert "already" in again.err
    assert again.code == 1


def test_scaffolds_hold_what_the_page_of_fields_knows() -> None:
    assert {f"{kind}s" for kind in KINDS} <= set(catalog.KINDS)


@pytest.mark.parametrize("name", ["../x", "A b", "", ".hidden", "x" * 80, "a/b"])
def test_a_name_that_is_no_name_writes_nothing(typist: Typist, name: str) -> None:
    said = typist("init", "task", name)
    assert said.code != 0
    assert not Path("specs").exists()


def test_nothing_that_is_there_is_overwritten(typist: Typist) -> None:
    Path("specs/tasks").mkdir(parents=True)
    Path("specs/tasks/mine.jsonl").write_text("{}\n")
    assert typist("init", "task", "mine").code == 1
    assert Path("specs/tasks/mine.jsonl").read_text() == "{}\n"
    assert not Path("specs/tasks/mine.yaml").exists()


def test_json_of_a_conversation(typist: Typist) -> None:
    typist(*BUILD, "--run", "runs/one")
    first = json.loads(Path("runs/one/conversations.jsonl").read_text().splitlines()[0])
    found = typist.json("show", first["conversation_id"][:8])["result"]
    assert found["kind"] == "conversation"
    assert found["value"]["turns"] == first["turns"]
