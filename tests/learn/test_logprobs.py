"""Log-probabilities from the sampler to the loss: recorded by a build with the embedded policy,
kept beside the run, laid on the trainer's tokens, imported, and refused as another model's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import RunError, TrainError
from convbench.learn.job import Job, recorded_for
from convbench.learn.rows import TrainingRow, training_rows
from convbench.learn.tokens import load_tokenizer
from convbench.learn.train import train_recipe
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.train import TrainOptions
from convbench.rollout.importing import import_run
from convbench.store.run import Run
from convbench.store.token_probs import FILE, RecordedProbs, call_key
from tests.helpers import stages, tiny
from tests.support.later import later

reference = later("convbench.learn.losses.reference")

QUIET = CallOptions(quiet=True)
SETS = (
    "launch=none", "data.unit=conversation", "loss.pi_0=recorded", "fit.max_steps=1",
    "fit.gradient_checkpointing=false", "fit.save=end",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A judged run of the embedded policy, its log-probabilities recorded."""
    path = tmp_path_factory.mktemp("built") / "run"
    done = stages.build_result(
        "pocket",
        tasks=4,
        model="local:pocket",
        run=path,
        logprobs=True,
        max_tokens=96,
        temperatures=(0.0, 0.7, 1.0),
    )
    assert done.told_probs is not None
    assert done.told_probs[0] == done.told_probs[1] > 20
    stages.judge(path, "rules")
    return Run.open(path)


def rows_of(
    run: Run, folder: Path, *, unit: str = "conversation", **sets: Any
) -> list[TrainingRow]:
    """The rows of every train conversation, with what was recorded of them."""
    named = {"loss.pi_0": "recorded", "data.unit": unit, **sets}
    job = Job.from_file(tiny.resolved(folder, "ppo", run, Path("local:pocket"), **named))
    from convbench.learn import launch

    weighted = launch.load_trainer(launch.locate_trainer("weighted")).data(job)
    return list(training_rows(weighted, job.chat, None, job.recipe.data.unit,
                              recorded_for(job)).rows)  # fmt: skip


def test_recorded_numbers_are_those_that_the_model_gives_in_training(
    built: Run, tmp_path: Path
) -> None:
    """What was sampled token by token with a cache is what one forward pass computes."""
    from convbench.models.weights import load_model
    from convbench.models.weights_path import shipped_folder

    model = load_model(Path(shipped_folder("pocket")), "cpu").float()
    for unit in ("conversation", "turn"):
        rows = rows_of(built, tmp_path / unit, unit=unit)
        assert len(rows) >= 9
        for row, computed in zip(rows, reference.log_probs(model, rows), strict=True):
            assert row.tokens.pi_0 == pytest.approx(computed, abs=2e-3)
        assert min(min(row.tokens.pi_0) for row in rows) < -1, "nothing was recorded"


def test_what_a_token_was_drawn_with_is_told_beside(built: Run) -> None:
    recorded = RecordedProbs(built.path)
    surer = 0.0
    for talk in built.conversations():
        for place, turn in enumerate(talk.turns):
            if turn.speaker != built.manifest.protocol.policy:
                continue
            probs = recorded.probs_of(call_key(talk, place), str(turn.content))
            assert probs is not None
            if talk.temperature == 0:
                assert set(probs.drawn) == {0.0}
            elif talk.temperature == 1:
                assert probs.drawn == pytest.approx(probs.log_probs, abs=1e-5)
            else:
                surer += sum(probs.drawn) - sum(probs.log_probs)
    assert surer > 0, "colder draws are likelier"


def test_they_survive_a_run_that_is_cut_before_its_records(built: Run, tmp_path: Path) -> None:
    """Calls come from the journal again, their log-probabilities from the file beside it."""
    shutil.copytree(built.path, tmp_path / "cut")
    (tmp_path / "cut" / "conversations.jsonl").unlink()
    done = stages.build_result(run=tmp_path / "cut")
    assert done.built is not None
    assert done.told_probs is not None
    assert done.told_probs[0] == done.told_probs[1] == 3 * 4 * 3
    assert b"logprob" not in (built.path / "calls.jsonl").read_bytes()
    assert b"logprob" not in (built.path / "conversations.jsonl").read_bytes()


def test_a_clipped_surrogate_trains_on_them(built: Run, tmp_path: Path) -> None:
    options = {"run": built.path, "calls": QUIET, "specs": SpecOptions(sets=SETS)}
    shown = train_recipe(TrainOptions("ppo", dry_run=True, **options)).preview  # type: ignore[arg-type]
    assert "loss ppo; log pi_0 as recorded" in shown
    out = tmp_path / "out"
    assert train_recipe(TrainOptions("ppo", out=out, in_process=True, **options)).path == out  # type: ignore[arg-type]


def test_a_log_from_elsewhere_brings_its_own(built: Run, tmp_path: Path) -> None:
    """OpenAI's form, tokens by their text; and ids with numbers."""
    from convbench.models.weights_path import shipped_folder

    words = load_tokenizer(str(shipped_folder("pocket")))
    recorded, rewards = RecordedProbs(built.path), {v.conversation_id: v for v in built.verdicts()}
    lines = []
    for number, talk in enumerate(built.conversations()):
        messages: list[dict[str, Any]] = []
        for place, turn in enumerate(talk.turns):
            if turn.speaker != built.manifest.protocol.policy:
                messages.append({"role": "user", "content": turn.content})
                continue
            probs = recorded.probs_of(call_key(talk, place), str(turn.content))
            assert probs is not None
            told: dict[str, Any] = {"logprobs": list(probs.log_probs), "token_ids": list(probs.ids)}
            if number % 2:
                said = [words.decode([token]) for token in probs.ids]
                pairs = zip(said, probs.log_probs, strict=True)
                told = {"logprobs": {"content": [
                    {"token": text, "logprob": value, "bytes": list(text.encode())}
                    for text, value in pairs
                ]}}  # fmt: skip
            messages.append({"role": "assistant", "content": turn.content, **told})
        verdict = rewards[talk.conversation_id]
        lines.append({"messages": messages, "reward": verdict.reward, "group": talk.example_id})
    file = tmp_path / "logs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = import_run(file, tmp_path / "imported")
    assert any("log-probabilities of 36 of 36 replies" in note for note in done.notes)
    found = rows_of(done.run, tmp_path / "rows", unit="turn")
    before = rows_of(built, tmp_path / "before", unit="turn", **{"data.flagged": "keep"})
    own = {row.tokens.pi_0[-12:] for row in before}
    assert len(found) == 36
    assert sum(row.tokens.pi_0[-12:] in own for row in found) >= len(before)


def test_what_is_not_there_or_another_model_s_is_refused(built: Run, tmp_path: Path) -> None:
    other = tiny.save_model(tmp_path / "model")
    options = {"run": built.path, "calls": QUIET, "specs": SpecOptions(sets=SETS), "dry_run": True}
    with pytest.raises(TrainError, match=r"recorded: found no log-prob.*expected all; build with"):
        train_recipe(TrainOptions("ppo", model=str(other), **options))  # type: ignore[arg-type]
    shutil.copytree(built.path, tmp_path / "bare")
    (tmp_path / "bare" / FILE).unlink()
    options["run"] = tmp_path / "bare"
    with pytest.raises(TrainError, match=r"for \d+ of \d+ conversations .*none was recorded"):
        train_recipe(TrainOptions("ppo", **options))  # type: ignore[arg-type]
    base = SpecOptions(sets=(*SETS, "loss.pi_0=base"))
    assert train_recipe(TrainOptions("ppo", **{**options, "specs": base})).preview, (
        "where not needed"
    )  # type: ignore[arg-type]


def test_a_run_that_was_begun_without_is_not_resumed_with(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stages.build("demo", tasks=1, model="scripted:policy", run=path)
    assert not (path / FILE).exists(), "nothing where nothing was asked for"
    with pytest.raises(RunError, match=r"started without it.*start a new run"):
        stages.build(run=path, logprobs=True)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"logprobs": [-1.0]}, "expected token_ids with it"),
        ({"logprobs": [-1.0, -2.0], "token_ids": [4]}, "expected as many"),
        ({"logprobs": [1.5], "token_ids": [4]}, "no number of at most 0"),
        ({"logprobs": ["x"], "token_ids": [4]}, "expected numbers"),
        ({"logprobs": {"content": [{"token": "a", "logprob": 9}]}}, "at most 0 each"),
        ({"logprobs": [-1.0], "token_ids": [-4]}, "below 0"),
    ],
)
def test_an_import_s_numbers_that_cannot_be_are_one_line(
    tmp_path: Path, told: dict[str, Any], why: str
) -> None:
    file = tmp_path / "logs.jsonl"
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", **told}]
    file.write_text(json.dumps({"messages": said, "reward": 1}) + "\n")
    with pytest.raises(Exception, match=rf"logs.jsonl:1: messages\[1\]: logprobs: .*{why}"):
        stages.import_logs(file, tmp_path / "imported")
