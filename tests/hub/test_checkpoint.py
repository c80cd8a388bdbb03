"""Checkpoints as model repositories, through the real Hub client."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench import catalog
from convbench.errors import HubError, RunError
from convbench.hub.send import publish_as_dataset as publish_run
from convbench.hub.send import publish_as_model
from convbench.options.publish import PublishOptions
from convbench.schema.recipe import Recipe
from convbench.store import Run
from tests.helpers.hub_client import Client
from tests.helpers.runs import ANSWERS, conversation, example, manifest, verdict, write, write_run
from tests.support.one_line import one_line

BASE = "acme/small-instruct"
FILES = {
    "README.md", "chat_template.jinja", "config.json", "generation_config.json",
    "model.safetensors", "recipe.yaml", "tokenizer.json", "tokenizer_config.json",
    "training.json",
}  # fmt: skip
LOG = [
    {"loss": 0.5, "log_pi_positive": -3.0, "log_ratio": 0.0, "step": 1},
    {"loss": 0.25, "log_pi_positive": -2.0, "log_ratio": 0.4, "step": 5},
    {"train_runtime": 12.3, "step": 5},
]


def push(folder: Path, repo: str, **options: Any) -> dict[str, Any]:
    """`publish --checkpoint`, for the client's process; what the upload did."""
    done = publish_as_model(PublishOptions(repo, checkpoint=folder, **options))
    return dataclasses.asdict(done.uploaded) if done.uploaded else {}


def push_run(path: Path, repo: str) -> None:
    """`publish` of a run, for the client's process."""
    publish_run(PublishOptions(repo), Run.open(path))


def snapshot(repo: str) -> str:
    """A reader's download."""
    from huggingface_hub import snapshot_download

    return snapshot_download(repo)


def ask(place: str) -> list[int]:
    """Shape of what the published model says, as a reader of the card loads it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(place)
    model = AutoModelForCausalLM.from_pretrained(place)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], add_generation_prompt=True,
        return_dict=True, return_tensors="pt",
    )  # fmt: skip
    return list(model(**inputs).logits.shape)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its tokenizer."""
    pytest.importorskip("torch")
    from tests.helpers import tiny

    return tiny.save_model(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def checkpoint(weights: Path, tmp_path: Path) -> Path:
    """A checkpoint in a run, with all that a trainer leaves about."""
    run = write_run(tmp_path / "r", count=20)
    folder = run.checkpoints_folder / "swift"
    shutil.copytree(weights, folder)
    (folder / "checkpoint-5").mkdir()
    for name in ("checkpoint-5/optimizer.pt", "training_args.bin", "train.log", "probe-0.json"):
        (folder / name).write_text("hf_" + "x" * 30)
    recipe = catalog.load_spec(Recipe, "recipes", "swift", sets={"model": BASE, "run": "../.."})
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    summary = {
        "recipe": "swift", "base": BASE, "run": run.manifest.id, "judge": "rules",
        "metric": "reward", "conversations": 32, "items": 30, "teacher": str(tmp_path / "t/old"),
        "skipped": {"not in split train": 8}, "processes": 1, "counts": {"tokens": 999},
        "log": LOG,
    }  # fmt: skip
    (folder / "training.json").write_text(json.dumps(summary))
    return folder


def evaluate(folder: Path, right: int = 8, **more: Any) -> Run:
    """A child run on the test questions: the first `right` of its 8 conversations are right."""
    parent = Run.open(folder.parent.parent)
    tests = [n for n in range(20) if example(n).split == "test"]
    talks = [
        conversation(n, sample, ANSWERS[2 * at + sample >= right], conversation_id=f"e{n}-{sample}")
        for at, n in enumerate(tests)
        for sample in range(2)
    ]
    values = {"id": "20260102-000000-abcdef02", "kind": "eval", "parent": parent.manifest.id,
              "split": "test", "checkpoint": str(folder)}  # fmt: skip
    return write(
        parent.evals_folder / "swift", manifest(**{**values, **more}), parent.examples.values(),
        talks, [verdict(talk, 0.9) for talk in talks],
    )  # fmt: skip


def card_of(folder: Path) -> tuple[dict[str, Any], str]:
    """Front matter and body of a card."""
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), body


def dry(folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    """The card of a dry run."""
    return card_of(
        publish_as_model(
            PublishOptions("alice/dry", checkpoint=folder, dry_run=True, **options)
        ).folder
    )


def test_a_published_checkpoint_loads_and_holds_the_models_files_alone(
    hub: Client, checkpoint: Path
) -> None:
    done = hub(push, checkpoint, "alice/swift", private=True)
    assert (done["created"], done["changed"]) == (True, True)
    repo = hub.hub.repo("alice/swift", "model")
    assert repo.private
    assert set(repo.head.files) - {".gitattributes"} == FILES
    again = hub(push, checkpoint, "alice/swift", private=True)
    assert (again["commit"], again["changed"]) == (done["commit"], False)
    assert ask(hub(snapshot, "alice/swift"))[0] == 1
    assert not any(path.name.startswith(".publish-") for path in checkpoint.iterdir())


def test_new_results_make_a_new_commit_of_the_same_repository(
    hub: Client, checkpoint: Path
) -> None:
    first = hub(push, checkpoint, "alice/results")
    evaluate(checkpoint)
    second = hub(push, checkpoint, "alice/results")
    assert (second["created"], second["changed"]) == (False, True)
    assert second["commit"] != first["commit"]


def test_the_card_names_the_published_set(hub: Client, checkpoint: Path) -> None:
    """A public one; where a private set lies is nobody's business."""
    hub(push_run, checkpoint.parent.parent, "alice/openly")
    front, body = dry(checkpoint)
    assert front["datasets"] == ["alice/openly"]
    assert "datasets/alice/openly" in body
    note = checkpoint.parent.parent / "published.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "private": True}))
    front, body = dry(checkpoint)
    assert "datasets" not in front
    assert "alice/openly" not in body


def test_a_taken_name_and_a_missing_token_are_one_line(hub: Client, checkpoint: Path) -> None:
    hub.hub.add_repo("alice/taken", {"model.safetensors": b"other"}, kind="model")
    with pytest.raises(HubError, match="the name is taken: it holds something else") as found:
        hub(push, checkpoint, "alice/taken")
    assert "\n" not in str(found.value)
    with pytest.raises(HubError, match="no token; set HF_TOKEN"):
        hub(push, checkpoint, "alice/none", token=None)
    other = checkpoint.with_name("refit")
    shutil.copytree(checkpoint, other)
    hub(push, checkpoint, "alice/mine")
    with pytest.raises(HubError, match=r"it holds run .*/swift, expected nothing or run .*/refit"):
        hub(push, other, "alice/mine")


def test_front_matter(checkpoint: Path) -> None:
    front, _ = dry(checkpoint)
    assert front["base_model"] == BASE
    assert front["license"] == "other"
    assert front["license_link"] == f"https://huggingface.co/{BASE}"
    assert front["library_name"] == "transformers"
    assert front["pipeline_tag"] == "text-generation"
    assert {"convbench", "swift", "arc", "reasoning"} <= set(front["tags"])


def test_the_shipped_model_is_no_hub_id(checkpoint: Path) -> None:
    """Its licence is known; another local base is named by its folder alone."""
    recipe = yaml.safe_load((checkpoint / "recipe.yaml").read_text())
    for model, licence in (("local:pocket", "apache-2.0"), ("/srv/models/own", "other")):
        (checkpoint / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "model": model}))
        front, body = dry(checkpoint)
        assert front["license"] == licence
        assert "base_model" not in front
        assert "/srv" not in body
    assert "`own` (local)" in body


def test_the_card_tells_data_recipe_training_and_licence(checkpoint: Path) -> None:
    _, body = dry(checkpoint)
    for text in (
        "20260101-000000-abcdef01", "reasoning, mode thinking, 3 policy turns",
        "32 logged, 30 trained on", "8 not in split train", "equation (9)",
        "0.5 (step 1) | 0.25 (step 5)", "tokens: 999", "time: 12 s", "cc-by-sa-4.0",
        "Not evaluated", "openai/tiny", "@software{convbench",
        "- recipe swift: Mukherjee et al. 2025, section 3.3",
        'AutoModelForCausalLM.from_pretrained("alice/dry")',
    ):  # fmt: skip
        assert text in body, text


def test_a_training_that_tells_no_processes_had_one(checkpoint: Path) -> None:
    training = json.loads((checkpoint / "training.json").read_text())
    del training["processes"]
    for processes in ({}, {"processes": 4}):
        (checkpoint / "training.json").write_text(json.dumps({**training, **processes}))
        _, body = dry(checkpoint)
        assert f"on {processes.get('processes', 1)} processes" in body


def test_results_are_paired_with_base(checkpoint: Path) -> None:
    """Base is right in one of each question's two samples; this one always: +0.5 at each."""
    evaluate(checkpoint)
    _, body = dry(checkpoint)
    assert "8 conversations about questions of split test (4\nindependent groups)" in body
    assert (
        "| Accuracy | 0.5000 ± 0.0000 | 1.0000 ± 0.0000 | +0.5000 (+0.5000 to +0.5000; 8 pairs) |"
    ) in body
    assert "| Reward | 0.650 ± 0.000 | 0.900 ± 0.000 | +0.250 (+0.250 to +0.250; 8 pairs) |" in body


def test_the_errors_of_results_are_clustered(checkpoint: Path) -> None:
    """Right in 6 of 8: question means 1, 1, 1, 0, whose standard error is 0.25; differences
    0.5, 0.5, 0.5, -0.5 with t(3) = 3.182."""
    evaluate(checkpoint, right=6)
    _, body = dry(checkpoint)
    assert "0.7500 ± 0.2500 | +0.2500 (-0.5456 to +1.0456; 8 pairs)" in body


def test_incomparable_results_stand_alone(checkpoint: Path) -> None:
    evaluate(checkpoint, mode="standard")
    _, body = dry(checkpoint)
    assert "| Accuracy | - | " in body
    assert "Not set against Base: " in body
    assert "mode: 'thinking' → 'standard'" in body


def test_nothing_tells_this_machines_paths(checkpoint: Path) -> None:
    for name, key in (("config.json", "_name_or_path"), ("tokenizer_config.json", "cache")):
        values = json.loads((checkpoint / name).read_text())
        (checkpoint / name).write_text(json.dumps({**values, key: str(checkpoint / "deep")}))
    evaluate(checkpoint)
    folder = publish_as_model(
        PublishOptions("alice/dry", checkpoint=checkpoint, dry_run=True)
    ).folder
    for path in folder.rglob("*"):
        assert str(checkpoint.parents[2]).encode() not in path.read_bytes(), path
    assert json.loads((folder / "config.json").read_text())["_name_or_path"] == "deep"
    assert json.loads((folder / "training.json").read_text())["teacher"] == "old"


def test_a_path_inside_a_text_is_refused(checkpoint: Path) -> None:
    template = checkpoint / "chat_template.jinja"
    template.write_text(template.read_text() + "{# from " + str(checkpoint / "x") + " #}")
    with pytest.raises(RunError, match=r"paths of this machine in chat_template\.jinja"):
        dry(checkpoint)


def test_secrets_are_refused(checkpoint: Path) -> None:
    secret = "hf_" + "a1B2" * 9
    template = checkpoint / "chat_template.jinja"
    template.write_text(template.read_text() + "{# " + secret + " #}")
    with pytest.raises(RunError, match=r"chat_template\.jinja:\d+: a Hugging Face token") as found:
        dry(checkpoint)
    assert secret not in str(found.value)
    assert not (checkpoint / "publish").exists()


@pytest.mark.parametrize(("gone", "said"), [
    ("training.json", "expected a finished checkpoint"),
    ("recipe.yaml", "expected a finished checkpoint"),
    ("model.safetensors", r"found no model\.safetensors"),
    ("run", "name it with --run DIR"),
])  # fmt: skip
def test_what_is_no_checkpoint_is_refused_in_one_line(
    gone: str, said: str, checkpoint: Path
) -> None:
    (checkpoint.parent.parent / "run.json" if gone == "run" else checkpoint / gone).unlink()
    with pytest.raises(RunError, match=said) as found:
        dry(checkpoint)
    one_line(found.value)


def test_an_adapter_needs_a_base_that_readers_have(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    adapter = checkpoint / "adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": str(checkpoint)}))
    with pytest.raises(RunError, match="adapter of a local model"):
        dry(checkpoint)
    adapter.write_text(json.dumps({"base_model_name_or_path": BASE}))
    front, _ = dry(checkpoint)
    assert front["base_model_relation"] == "adapter"
    assert (checkpoint / "publish" / "adapter_model.safetensors").is_file()


def test_a_dry_run_says_what_to_type(checkpoint: Path) -> None:
    from typer.testing import CliRunner

    from tests.support.app import app

    found = CliRunner().invoke(
        app, ["publish", "alice/dry", "--checkpoint", str(checkpoint), "--dry-run"]
    )
    assert found.exit_code == 0, found.output
    assert "next: convbench publish alice/dry --checkpoint" in found.output
    assert {path.name for path in (checkpoint / "publish").iterdir()} == FILES
