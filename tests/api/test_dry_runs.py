"""Dry runs in Python: what would be sent, and what it would cost; nothing is sent or written."""

from __future__ import annotations

import pydoc
from pathlib import Path
from typing import Any

import pytest

import convbench
from convbench.api import verbs
from convbench.api.handles import DryRun, Run
from convbench.errors import RunError, SpecError, UsageError
from tests.helpers.typed import Typist

QUIET: dict[str, Any] = {"quiet": True}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A judged run of eight questions with one temperature."""
    monkeypatch.chdir(tmp_path)
    run = verbs.build("demo", model="scripted:policy", tasks=8, temperatures=0.5, **QUIET)
    assert isinstance(run, Run)
    verbs.judge(run, "rules", **QUIET)
    return run


def test_one_temperature_may_be_a_number(run: Run) -> None:
    assert set(run.conversations["temperature"]) == {0.5}


def test_several_temperatures_may_be_text_and_other_numbers_may_not(run: Run) -> None:
    built = verbs.build(
        "demo", model="scripted:policy", tasks=8, samples=2, temperatures="0.2, 0.4", **QUIET
    )
    assert isinstance(built, Run)
    assert set(built.conversations["temperature"]) == {0.2, 0.4}
    with pytest.raises(TypeError, match=r"^samples: found '3'; expected a number$"):
        verbs.build("demo", model="scripted:policy", samples="3", **QUIET)
    with pytest.raises(SpecError, match=r"^temperatures: found 'warm'; expected numbers"):
        verbs.build("demo", model="scripted:policy", temperatures="warm", **QUIET)


def test_all_is_a_number_of_tasks() -> None:
    found = verbs.build("demo", model="openai/gpt-4o-mini", tasks="all", samples=1, dry_run=True)
    assert isinstance(found, DryRun)
    assert found.calls == 40 * 3


def test_a_judge_in_the_place_of_a_run_is_told_where_it_belongs(run: Run) -> None:
    with pytest.raises(UsageError, match=r"behind the run: convbench\.judge\(run, 'rules'\)"):
        verbs.judge("rules")
    with pytest.raises(RunError, match=r"runs/nosuch: found no run\.json"):
        verbs.judge("runs/nosuch", "rules")


def test_a_build_tells_messages_calls_tokens_and_dollars(run: Run) -> None:
    there = sorted(Path("runs").iterdir())
    found = verbs.build("demo", model="openai/gpt-4o-mini", tasks=8, samples=2, dry_run=True)
    assert isinstance(found, DryRun)
    assert found.calls == 8 * 2 * 3
    assert [one["role"] for one in found.messages[:2]] == ["system", "user"]
    assert "Which" in found.messages[1]["content"]
    assert found.tokens > 0
    assert found.dollars is not None
    assert found.dollars > 0
    assert sorted(Path("runs").iterdir()) == there
    unknown = verbs.build("demo", model="openai/nobody-knows", tasks=8, dry_run=True)
    assert isinstance(unknown, DryRun)
    assert unknown.dollars is None
    assert "price unknown" in repr(unknown)


def test_messages_have_what_a_model_reads_and_no_marks_of_ours(run: Run) -> None:
    fields = {"role", "content"}
    built = verbs.build("demo", model="openai/gpt-4o-mini", tasks=8, dry_run=True)
    judged = verbs.judge(run, "rubric@openai/gpt-4o", dry_run=True)
    for preview in (built, judged):
        assert isinstance(preview, DryRun)
        assert {name for message in preview.messages for name in message} == fields


def test_judging_tells_the_same(run: Run) -> None:
    found = verbs.judge(run, "openai/gpt-4o-mini", "openai/gpt-4o", dry_run=True)
    assert isinstance(found, DryRun)
    assert found.calls == 2 * 24
    assert len(found.messages) == 4
    assert found.dollars
    assert set(run.verdicts["judge"]) == {"rules"}
    free = verbs.judge(run, "answer", dry_run=True)
    assert isinstance(free, DryRun)
    assert (free.messages, free.calls, free.dollars) == ([], 0, 0.0)


def test_an_evaluation_tells_policy_and_judges(
    run: Run, typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = sum(one == "test" for one in run.examples["split"])
    alone = verbs.eval("openai/gpt-4o-mini", run, dry_run=True)
    assert isinstance(alone, DryRun)
    assert alone.calls == tests * 3 * 3  # judge `rules` asks nobody
    assert run.evaluations == []
    both = verbs.eval("openai/gpt-4o-mini", [run], dry_run=True)
    assert isinstance(both, DryRun)
    assert both.calls == alone.calls
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    said = typist("eval", "openai/gpt-4o-mini", "--run", str(run.path), "--dry-run")
    assert said.code == 0, said.err
    assert "reply of assistant" in said.out
    assert f"{tests * 3} to give" in said.out  # verdicts
    assert "next: convbench eval openai/gpt-4o-mini --run" in said.out
    told = typist.json("eval", "openai/gpt-4o-mini", "--run", str(run.path), "--dry-run")["result"]
    assert told["estimate"]["calls"] == alone.calls
    assert run.evaluations == []


def test_a_training_tells_its_rows(run: Run) -> None:
    weights = Path(convbench.__file__).parent / "pocket" / "weights"
    found = verbs.train("swift", run, model=str(weights), dry_run=True, launch="none")
    assert isinstance(found, DryRun)
    assert (found.calls, found.dollars) == (0, 0.0)
    assert f"tokens: {found.tokens}" in found.lines
    assert any("LOSS" in line for line in found.lines)
    assert run.checkpoints == []


@pytest.mark.parametrize("name", ["judge", "build", "train", "eval", "report", "publish"])
def test_help_explains_every_parameter(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(getattr(convbench, name)))
    about = " ".join(text.split())
    for parameter in verbs.__dict__[name].__signature__.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert f" {parameter.name}: " in about
    assert "Parameters:" in about
