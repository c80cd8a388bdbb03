"""Every command that is printed as the next one can be typed, and does what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.cli import Done, convbench
from tests.helpers.runs import write_run
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.exhaustive import first_of
from tests.support.next_lines import next_words
from tests.support.provider import Provider

BUILD = ("--tasks", "5", "--samples", "1", "--temperatures", "0.5")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    monkeypatch.chdir(tmp_path)

    def reply(call: Call) -> str:
        return "No." if "Overall:" in call.text and "pupa" in call.text else scripted_reply(call)

    with Provider(Plan(poison={"a metal spoon": "filter"}), reply=reply) as server:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        yield server


def hints(done: Done) -> list[list[str]]:
    """The commands a command printed, as words."""
    found = next_words(done.out, done.err)
    assert found, done.out + done.err
    return found


def run(words: list[str]) -> Done:
    done = convbench(Path(), *words)
    assert done.code == 0, (words, done.out + done.err)
    return done


def specs(folder: Path) -> Path:
    """A task of one's own whose judge is a rubric that names no model."""
    for kind in ("tasks", "judges"):
        (folder / kind).mkdir(parents=True)
    (folder / "judges" / "haggle-rubric.yaml").write_text("extends: rubric\ntitle: Haggling\n")
    (folder / "tasks" / "haggle.yaml").write_text(
        "extends: demo\ntitle: Haggling\njudge: haggle-rubric\n"
    )
    return folder


@pytest.mark.parametrize("place", first_of(["elsewhere", "runs/one"]))
def test_from_build_to_report(provider: Provider, place: str) -> None:
    named = ("--model", "hosted_vllm/policy", "--run", place, "--set", "task.sample.train=0.8")
    first = hints(run(["build", "demo", *BUILD, *named]))
    again = next(words for words in first if words[0] == "build")
    judging = next(words for words in first if words[0] == "judge")
    provider.change(poison={})
    run(again)
    for words in hints(run(judging)):
        run(words)
    panel = hints(run(["judge", "--judge", "hosted_vllm/judge", "--run", place]))
    assert ["judge", "--judge", "hosted_vllm/judge", "--run", place] in panel
    for words in hints(run(["report", place, "--split", "all"])):
        assert words[0] == "judge" or words[:4] == ["report", place, "--split", "all"]


def test_a_rubric_without_a_model_is_named_with_one(provider: Provider, tmp_path: Path) -> None:
    mine = ("--specs", str(specs(tmp_path / "mine")))
    done = run(["build", "haggle", *BUILD, "--model", "scripted:policy", *mine])
    (judging,) = [words for words in hints(done) if words[0] == "judge"]
    assert judging[:3] == ["judge", "--judge", "haggle-rubric@claude-opus"]
    judging[2] = "haggle-rubric@hosted_vllm/judge"
    run(judging)


def test_what_is_tried_again_is_typed_as_it_was(provider: Provider, tmp_path: Path) -> None:
    run(["build", "demo", *BUILD, "--model", "scripted:policy", "--run", "runs/one"])
    rule = tmp_path / "odd.py"
    rule.write_text("def score(conversation, example, protocol):\n    raise ValueError('odd')\n")
    spec = tmp_path / "my specs" / "odd.yaml"
    spec.parent.mkdir()
    spec.write_text("title: odd\nkind: rules\nfunction: odd:score\n")
    done = convbench(Path(), "judge", "--judge", "my specs/odd.yaml", "--plugin", "odd.py")
    assert done.code == 1
    (again,) = hints(done)
    assert again == [
        "judge", "--judge", "my specs/odd.yaml", "--run", "runs/one", "--plugin", "odd.py"
    ]  # fmt: skip


def test_who_was_asked_is_asked_again(provider: Provider) -> None:
    """Without its address the failed ones would go to another server, with that one's key."""
    run(["build", "demo", *BUILD, "--model", "scripted:policy", "--run", "runs/one"])
    asked = ["--api-base", provider.api_base, "--set", "judge.temperature=0.5"]
    done = convbench(Path(), "judge", "--judge", "hosted_vllm/judge", "--fail-on", "99", *asked)
    (again,) = [words for words in hints(done) if words[0] == "judge"]
    assert again[again.index("--api-base") + 1] == provider.api_base
    assert again[-2:] == ["--set", "judge.temperature=0.5"]
    assert all("--api-base" not in words for words in hints(done) if words[0] != "judge")


def test_imported_logs_are_followed_by_what_can_be_done(provider: Provider, tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"Which {n}?"},
                      {"role": "assistant", "content": "That one."}], "reward": n / 4}
        for n in range(4)
    ]  # fmt: skip
    (tmp_path / "logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for words in hints(run(["import", "logs.jsonl"])):
        run(words)


def test_the_second_judge_of_a_run_is_named_where_one_must_be(provider: Provider) -> None:
    Path("brief.yaml").write_text(
        "title: brief\nkind: rubric\nsystem: Rate it.\nprompt: '{{ transcript }}'\nmetrics:\n"
        "- {name: short, label: Short}\n- {name: overall, label: Overall}\n"
    )
    run(["build", "demo", *BUILD, "--model", "scripted:policy"])
    run(["judge", "--judge", "rules"])
    provider.change(poison={})
    server = Provider(reply=lambda _: "Short: 3\nOverall: 4")
    with server:
        base = ("--api-base", server.api_base)
        second = run(["judge", "--judge", "brief.yaml@openai/judge", *base])
    query, publish = hints(second)
    assert "avg(short)" in query[1]
    assert "--judge brief@openai/judge" in " ".join(publish)
    assert "of judge brief@openai/judge" in run(publish).out
    assert "3" in run(query).out
    query, publish = hints(run(["judge", "--judge", "rules"]))
    assert "short" not in query[1]
    assert "--judge rules" in " ".join(publish)
    run(publish)


def test_a_dry_run_for_cards_that_are_not_here_names_a_training_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    planned = ("train", "refit", "--run", "run", "--model", "local:pocket", "--judge", "rules")
    (words,) = hints(run([*planned, "--dry-run", "--cards", "1x80"]))
    assert words == list(planned)
