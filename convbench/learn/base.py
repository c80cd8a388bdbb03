"""The model to start from: where it is, and whether it can be trained; no torch."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError, MissingDependency, TrainError
from convbench.models.fingerprint import weights_fingerprint
from convbench.models.local import shipped, where
from convbench.schema import RunManifest
from convbench.schema.recipe import Recipe
from convbench.store.run import Run

TIMEOUT = 20.0
"""Seconds to wait for the Hub's answer."""


def policy_weights(manifest: RunManifest) -> str:
    """Return where the weights of the run's own policy lie: a path, a Hub id or a reference that
    says so; TrainError where nobody knows."""
    member = manifest.cast[manifest.protocol.policy]
    if member.weights:
        return member.weights
    if named(member.model) is not None:
        return member.model
    raise TrainError(
        f"run {manifest.id}: the policy is {member.model!r}, whose weights are nowhere named; "
        "give --model PATH or a Hub id"
    )


def named(model: str) -> str | None:
    """Return the path or Hub id in a model reference that says where the weights are
    (`local:PATH`, `vllm:ID`, either with `pocket`); None for any other."""
    scheme, _, rest = model.partition(":")
    if scheme == "vllm":
        return shipped(rest)
    if scheme != "local":
        return None
    try:
        return where(rest)
    except FatalModelError:
        return rest  # told apart from a Hub id later, with a message about training


def teacher(run: Run, recipe: Recipe) -> str:
    """Return the checkpoint to distil: the one named, or the run's newest of `star-gate`."""
    if recipe.distil is None:
        raise TrainError(f"recipe {recipe.name!r}: distil: missing; expected its settings")
    if recipe.distil.teacher is not None:
        return recipe.distil.teacher
    done = [file.parent for file in run.checkpoints.glob("star-gate*/training.json")]
    done = [folder for folder in done if _recipe_name(folder) == "star-gate"]
    if not done:
        raise TrainError(
            f"{run.path}: found no finished star-gate checkpoint to distil; run first: "
            "convbench train star-gate, or name one with --set distil.teacher=PATH"
        )
    return str(max(done, key=lambda folder: (folder / "training.json").stat().st_mtime))


def _recipe_name(folder: Path) -> str:
    return str(json.loads((folder / "training.json").read_text()).get("recipe"))


def check_model(model: str) -> None:
    """Refuse a model that is not there or has no chat template, before torch is loaded."""
    if find(model, "config.json") is None:
        raise TrainError(
            f"model {model!r}: found no config.json; expected a folder with a model, or the id of "
            "one on the Hub that can be reached (a gated one needs HF_TOKEN); give --model"
        )
    if find(model, "chat_template.jinja") is not None:
        return
    file = find(model, "tokenizer_config.json")
    if file is None or '"chat_template"' not in file.read_text(errors="replace"):
        raise TrainError(
            f"model {model!r}: found no chat template; expected a chat model; give --model an "
            "instruction-tuned one"
        )


def find(model: str, name: str) -> Path | None:
    """Return a file of the model, from its folder or the Hub (cached); None without it."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    refused = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError)
    try:
        return Path(hf_hub_download(model, name, local_files_only=True))
    except refused:
        if not on_hub(model):
            return None
    try:
        return Path(hf_hub_download(model, name))
    except refused:
        return None


@lru_cache
def on_hub(model: str) -> bool:
    """Ask the Hub once whether it has this model: the clients ask five times for every file
    where nobody answers."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().model_info(model, timeout=TIMEOUT)
    except (HfHubHTTPError, HFValidationError, httpx.TransportError, OSError):
        return False
    return True


def content(model: str) -> str | None:
    """Return what tells the model's weights from all others: their fingerprint, or the commit of
    a Hub id; None where the model is not on this machine."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return weights_fingerprint(folder)
    file = find(model, "config.json")
    return file.parent.name if file else None


def positions(model: str) -> int | None:
    """Return how many positions the model has, from its config.json; None where it does not say."""
    file = find(model, "config.json")
    config = json.loads(file.read_text()) if file else {}
    found = config.get("text_config", config).get("max_position_embeddings")
    return int(found) if found else None


def load_tokenizer(model: str) -> Any:
    """Return the model's tokenizer."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingDependency(
            "transformers", needed_for="training", install="pip install 'convbench[train]'"
        ) from None
    try:
        return AutoTokenizer.from_pretrained(str(Path(model).expanduser()))
    except (OSError, ValueError) as error:
        raise TrainError(f"model {model!r}: tokenizer: {str(error).splitlines()[0]}") from None
