"""A model is opened with its own settings by every command, and each speaker keeps its model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.engine import Caller
from convbench.engine.session import Session
from convbench.errors import RunError, SpecError
from convbench.experiments.seal import train_rounds
from convbench.judges.adaptation.grader import open_grader
from convbench.judges.adaptation.learner import Question
from convbench.judges.adaptation.settings import InnerSettings
from convbench.learn.select import select
from convbench.learn.sweet import sample_missing
from convbench.models import aliases
from convbench.models.aliases import resolve
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.train import RoundsOptions
from convbench.rollout.calls import open_cast
from convbench.schema.recipe import Recipe
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.tiny import save_model
from tests.support.chat.plan import Plan
from tests.support.chat.replies import Call, scripted_reply
from tests.support.provider import Provider

THINKER = {
    "ref": "openai/nameless",
    "headroom": 5000,
    "drop": ["temperature", "seed"],
    "input_per_million": 1000,
    "output_per_million": 2000,
}
PLAIN = {"ref": "openai/nameless"}
"""Another name of the same model, without settings."""
QUIET = CallOptions(quiet=True)


def reply(call: Call) -> str:
    """A judge scores, a grader says yes, a policy answers."""
    return "yes" if call.asked.startswith("Grade an answer") else scripted_reply(call)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    with Provider(Plan(keep_requests=900), reply=reply) as server:
        for name in ("OPENAI", "HOSTED_VLLM", "LM_STUDIO"):
            monkeypatch.setenv(f"{name}_API_BASE", server.api_base)
            monkeypatch.setenv(f"{name}_API_KEY", "none")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        yield server


def specs_with(folder: Path, **models: Any) -> SpecOptions:
    folder.mkdir(exist_ok=True)
    (folder / "models.yaml").write_text(json.dumps({"models": models}))
    return SpecOptions((folder,))


def built(run: Path, specs: SpecOptions, **more: Any) -> Run:
    """Build three questions, one to test with, one sample each."""
    values: dict[str, Any] = {"task": "demo", "tasks": 3, "temperatures": (0.7,), **more}
    sets = (*specs.sets, *(() if values["task"] is None else ("task.sample.train=0.67",)))
    result = stages.build_result(run=run, samples=1, specs=specs.folders, set=sets, **values)
    assert result.built is not None
    assert result.built.failed == 0, result.built.failures
    return Run.open(run)


def with_settings(requests: list[dict[str, Any]], limit: int) -> bool:
    """Whether all requests hold what the short name says, on top of this limit."""
    return bool(requests) and all(
        body["max_tokens"] == limit + 5000 and "temperature" not in body and "seed" not in body
        for body in requests
    )


def drained(provider: Provider) -> list[dict[str, Any]]:
    found = list(provider.requests)
    provider.reset()
    return found


def costs(run: Run) -> list[float | None]:
    lines = run.calls_file.read_text().splitlines()
    return [json.loads(line).get("cost_usd") for line in lines]


# -- one opener


@pytest.mark.parametrize("name", ["thinker", "rubric@thinker"])
@pytest.mark.parametrize("order", ["thinker first", "plain first", "alone"])
def test_a_short_name_means_the_same_in_every_command(
    provider: Provider, tmp_path: Path, order: str, name: str
) -> None:
    """`headroom: 5000` sent 5512 tokens building and 1024 judging; thinking judges were cut."""
    names = {"thinker": THINKER, "plain": PLAIN}
    if order == "plain first":
        names = {"plain": PLAIN, "thinker": THINKER}
    if order == "alone":
        del names["plain"]
    specs = specs_with(tmp_path / "mine", **names)
    run = built(tmp_path / "run", specs, model="thinker")
    assert with_settings(drained(provider), 512), "build"

    judged = stages.judge_result(run.path, name, specs=specs.folders)
    assert judged.summaries[0].failed_count == 0
    assert with_settings(drained(provider), 1024), "judge"

    evaluated = stages.evaluate("thinker", run.path, specs=specs.folders)
    requests = drained(provider)
    policy = [body for body in requests if body["max_tokens"] == 512 + 5000]
    scores = [body for body in requests if body["max_tokens"] == 1024 + 5000]
    assert len(policy) + len(scores) == len(requests), "eval"
    assert with_settings(policy, 512)
    assert with_settings(scores, 1024), "the judge of the run again"

    again = built(tmp_path / "run", specs, task=None, tasks=None)
    assert again.manifest == run.manifest
    for one in (run, evaluated):
        assert all(cost is not None for cost in costs(one)), "the price is the short name's"


def test_a_judge_named_otherwise_is_opened_so(provider: Provider, tmp_path: Path) -> None:
    """A name of the same model without settings gets none, after one that has some."""
    specs = specs_with(tmp_path / "mine", thinker=THINKER, plain=PLAIN)
    run = built(tmp_path / "run", specs, model="plain")
    assert {body["max_tokens"] for body in drained(provider)} == {512}
    stages.judge(run.path, "plain", specs=specs.folders)
    requests = drained(provider)
    assert {body["max_tokens"] for body in requests} == {1024}
    assert all(body["temperature"] == 0 for body in requests)


def test_a_reference_has_the_settings_of_its_short_name(provider: Provider, tmp_path: Path) -> None:
    specs = specs_with(tmp_path / "mine", thinker=THINKER)
    run = built(tmp_path / "run", specs, model="openai/nameless")
    assert with_settings(drained(provider), 512)
    stages.judge(run.path, "openai/nameless", specs=specs.folders)
    assert with_settings(drained(provider), 1024)


def test_a_dry_run_counts_the_headroom(provider: Provider, tmp_path: Path) -> None:
    """What is billed at most is what may be written at most."""
    specs = specs_with(tmp_path / "mine", thinker=THINKER)
    run = built(tmp_path / "run", specs, model="thinker")
    found = stages.judge_result(run.path, "thinker", dry_run=True, specs=specs.folders)
    (shown,) = found.previews
    estimate = shown.estimate
    assert estimate.reply_tokens == 3 * (1024 + 5000)
    expected = (estimate.prompt_tokens * 1000 + estimate.reply_tokens * 2000) / 1e6
    assert estimate.usd == pytest.approx(expected)


def test_a_grader_too(provider: Provider, tmp_path: Path) -> None:
    specs = specs_with(tmp_path / "mine", thinker=THINKER)
    run = built(tmp_path / "run", specs, model="scripted:policy")
    calls = QUIET.with_specs(specs.folders)
    question = Question(({"role": "user", "content": "Who?"},), ("Ada",), "Who?")

    async def main() -> list[float]:
        async with open_grader(
            run, "thinker", InnerSettings(grade="model"), Caller(), calls, Session()
        ) as grade:
            assert grade is not None
            return await asyncio.to_thread(grade, [question], ["Ada"])

    assert asyncio.run(main()) == [1.0]
    assert with_settings(drained(provider), 64)


def test_candidates_too(provider: Provider, tmp_path: Path) -> None:
    """SWEET's candidates were sampled at another length than the conversations."""
    specs = specs_with(tmp_path / "mine", plain=PLAIN, thinker=THINKER)
    run = built(tmp_path / "run", specs, model="thinker", tasks=12)
    stages.judge(run.path, "rules", specs=specs.folders)
    drained(provider)

    sets = catalog.parse_sets(["args.candidates=2", "args.held_out=0", "args.share=1"])
    recipe = catalog.load_spec(Recipe, "recipes", "sweet", sets=sets)
    chosen, calls = select([run], recipe.data), QUIET.with_specs(specs.folders)
    sample_missing(run, recipe, chosen, tmp_path / "c.jsonl", calls, Session(), check=False)
    assert with_settings(drained(provider), 512), "candidates"


def test_a_run_made_before_still_has_its_settings(provider: Provider, tmp_path: Path) -> None:
    """It recorded no short name; the reference finds them."""
    specs = specs_with(tmp_path / "mine", thinker=THINKER)
    run = built(tmp_path / "run", specs, model="thinker")
    drained(provider)
    old = json.loads((run.path / "run.json").read_text())
    assert old["cast"]["assistant"].pop("short") == "thinker"
    (run.path / "run.json").write_text(json.dumps(old))
    run.conversations_file.unlink()
    run.calls_file.unlink()
    built(tmp_path / "run", specs, task=None, tasks=None)
    assert with_settings(drained(provider), 512)


def test_the_users_file_goes_before_the_shipped_one(tmp_path: Path) -> None:
    """A reference took the shipped file's settings though the user's own named it."""
    mine = specs_with(tmp_path / "mine", ours={"ref": "openai/gpt-5", "headroom": 1})
    assert resolve("openai/gpt-5", specs=mine.folders).alias.headroom == 1
    assert resolve("gpt-5", specs=mine.folders).alias.headroom == 8192
    assert next(iter(aliases(mine.folders).models)) == "ours"


# -- a cast of several models

PANEL = """title: three models speak
modes: [standard]
turns: {default: 2, min: 2, max: 2}
speakers:
  assistant: {policy: true, system: You solve it., max_tokens: 16}
  coach: {system: You coach.}
  critic: {system: You criticise.}
  scribe: {}
steps:
  - {id: problem, speaker: scribe, say: "{{ question }}"}
  - {id: first, speaker: assistant}
  - {id: hint, speaker: coach, ask: Give a hint.}
  - {id: doubt, speaker: critic, ask: Raise a doubt.}
  - {id: last, speaker: assistant, ask: Give your final answer.}
"""
CAST = {"coach": "hosted_vllm/coach", "critic": "lm_studio/critic"}
PANELLED: dict[str, Any] = {"task": "ours", "protocol": "panel", "model": "openai/mine"}
BARE: dict[str, Any] = {"task": None, "tasks": None}
OWN = {"You solve it.": {"mine"}, "You coach.": {"coach"}, "You criticise.": {"critic"}}


@pytest.fixture
def panel(tmp_path: Path) -> SpecOptions:
    """A protocol of three who speak, and a task that names two of their models."""
    folder = tmp_path / "mine"
    (folder / "protocols").mkdir(parents=True)
    (folder / "tasks").mkdir()
    (folder / "protocols" / "panel.yaml").write_text(PANEL)
    (folder / "tasks" / "ours.yaml").write_text(f"extends: demo\nspeakers: {json.dumps(CAST)}\n")
    return SpecOptions((folder,))


def models(run: Run) -> dict[str, str]:
    return {name: member.model for name, member in run.manifest.cast.items()}


def asked_by_speaker(provider: Provider) -> dict[str, set[str]]:
    """Return, by their system prompt, the models that were asked to speak."""
    found: dict[str, set[str]] = {}
    for body in drained(provider):
        if body["model"] != "judge":
            system = body["messages"][0]["content"].split("\n")[0]
            found.setdefault(system, set()).add(body["model"])
    return found


def test_each_speaker_keeps_its_model(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    """The same build again was refused: the first other speaker's model was made everyone's."""
    run = built(tmp_path / "run", panel, **PANELLED)
    wanted = {"assistant": "openai/mine", "scribe": "script", **CAST}
    assert models(run) == wanted
    assert asked_by_speaker(provider) == OWN

    for again in (PANELLED, BARE, {**BARE, "model": "openai/mine"}):
        assert models(built(tmp_path / "run", panel, **again)) == wanted
    assert drained(provider) == []

    with pytest.raises(RunError, match=r"cast\.coach\.model: 'hosted_vllm/coach' → 'openai/x'"):
        built(tmp_path / "run", panel, **PANELLED, teacher="openai/x")
    with pytest.raises(RunError, match=r"cast\.assistant\.model: 'openai/mine' → 'openai/x'"):
        built(tmp_path / "run", panel, **{**PANELLED, "model": "openai/x"})

    run.conversations_file.unlink()
    run.calls_file.unlink()
    built(tmp_path / "run", panel, **PANELLED)
    assert asked_by_speaker(provider) == OWN, "resumed, everyone speaks with their own"


def test_a_teacher_for_all_is_the_same_when_typed_again(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    asked = {**PANELLED, "model": "mine", "teacher": "lm_studio/all",
             "api_base": provider.api_base}  # fmt: skip
    for _ in range(2):
        run = built(tmp_path / "run", panel, **asked)
        assert {models(run)[name] for name in CAST} == {"lm_studio/all"}


def test_an_evaluation_keeps_the_cast(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    run = built(tmp_path / "run", panel, **PANELLED)
    stages.judge(run.path, "openai/judge", specs=panel.folders)
    drained(provider)
    asked = {"policy": "openai/other", "run": run.path, "specs": panel.folders}
    assert models(stages.evaluate(**asked)) == {**models(run), "assistant": "openai/other"}
    assert asked_by_speaker(provider) == {**OWN, "You solve it.": {"other"}}
    stages.evaluate(**asked)
    assert drained(provider) == [], "the same evaluation again asks nobody"


def test_an_evaluation_names_a_speaker_that_nobody_speaks_for(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    """The speaker was taken for a scripted one, and every conversation failed."""
    run = built(tmp_path / "run", panel, task="ours", model="openai/mine")
    with pytest.raises(SpecError, match="speaker 'coach' needs a model, and the cast of"):
        stages.evaluate("openai/other", run.path, protocol="panel", specs=panel.folders)
    assert not run.evals_folder.exists()


def test_a_judge_is_asked_where_its_own_file_says(provider: Provider, tmp_path: Path) -> None:
    """`api_base` in a judge's file was dropped, and the provider's own address asked."""
    specs = specs_with(tmp_path / "mine", thinker=THINKER)
    run = built(tmp_path / "run", specs, model="scripted:policy")
    (tmp_path / "mine" / "judges").mkdir()
    with Provider(Plan(keep_requests=9), reply=reply) as other:
        (tmp_path / "mine" / "judges" / "there.yaml").write_text(
            f"extends: rubric\nmodel: thinker\napi_base: {other.api_base}\n"
        )
        stages.judge(run.path, "there", specs=specs.folders)
        assert with_settings(drained(other), 1024)
    assert drained(provider) == []


SETS = (
    "fit.max_steps=1", "fit.batch_size=2", "fit.accumulation=1", "fit.precision=fp32",
    "fit.gradient_checkpointing=false", "fit.save=end", "fit.learning_rate=1e-3",
)  # fmt: skip


def test_rounds_change_the_policy_alone(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    """Two rounds with weights trained here: logged, judged, fitted, evaluated, logged again."""
    base = save_model(tmp_path / "base")
    run = built(tmp_path / "run", panel, **{**PANELLED, "model": f"local:{base}", "tasks": 9})
    others = {name: OWN[name] for name in ("You coach.", "You criticise.")}
    assert asked_by_speaker(provider) == others
    specs = SpecOptions(panel.folders, SETS)
    train_rounds(
        RoundsOptions(
            "refit", 2, run.path, "openai/judge", in_process=True, specs=specs, calls=QUIET
        )
    )
    assert asked_by_speaker(provider) == others
    later = [run.path / "rounds" / "refit" / "2", *run.evals_folder.iterdir()]
    assert len(later) == 3
    for folder in later:
        cast = models(Run.open(folder))
        assert {name: cast[name] for name in CAST} == CAST
        assert cast["assistant"] != f"local:{base}"


def test_a_moved_server_moves_for_all_who_were_there(
    provider: Provider, tmp_path: Path, panel: SpecOptions
) -> None:
    """--api-base on resume was the policy's alone; a teacher beside it was asked at the old one."""
    calls = CallOptions(api_base=provider.api_base, quiet=True)
    run = built(tmp_path / "run", panel, **PANELLED, teacher="openai/mine",
                api_base=provider.api_base)  # fmt: skip
    gone = {"api_base": "http://127.0.0.1:9/v1"}
    cast = {
        name: member.model_copy(update=gone if member.api_base else {})
        for name, member in run.manifest.cast.items()
    }
    moved = Run(run.path, run.manifest.model_copy(update={"cast": cast}))

    async def addresses() -> set[str]:
        async with open_cast(moved, calls, Session()) as found:
            return {model.url for model in found.values()}  # type: ignore[attr-defined]

    assert asyncio.run(addresses()) == {f"{provider.api_base}/chat/completions"}


def test_a_teacher_that_nobody_would_be_is_refused(provider: Provider, tmp_path: Path) -> None:
    specs = specs_with(tmp_path / "mine")
    run = built(tmp_path / "run", specs, model="openai/mine")
    for again in ({"model": "openai/mine"}, BARE):
        with pytest.raises(SpecError, match="only the policy's model speaks"):
            built(run.path, specs, **again, teacher="openai/x")
