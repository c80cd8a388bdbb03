"""Locate a model's weights (a folder, the Hub, or shipped with convbench) and identify them by
their content; nothing is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError, TrainError
from convbench.schema import ModelConfig, RunManifest
from convbench.store.shape import read_object, read_text_field
from convbench.util.hub import model_exists

ENDS = 1 << 20
"""Bytes at each end of a weights file that its fingerprint covers."""


def weights_fingerprint(folder: Path) -> str | None:
    """Return 16 hex digits that identify the weights in a folder; None if the folder is missing.

    They cover name, size and the first and last MiB of each .json, .safetensors, .jinja and .model
    file. A folder without such files has a fingerprint too.
    """
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".jinja", ".model"):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(ENDS))
                file.seek(max(0, size - ENDS))
                digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


SHIPPED = {"pocket": ("pocket", "weights"), "pocket-grids": ("pocket", "grids", "weights")}
"""Names of the small policies that ship with convbench (`local:pocket`, `vllm:pocket`) → where
their weights lie in the package; `pocket-grids` is the policy for grids."""
SHIPPED_REFS = tuple(f"local:{name}" for name in SHIPPED)
"""References of the shipped policies; records name them so, and are valid on any machine."""

SHOWN = 8
"""Most folders that an error message lists as alternatives."""


def shipped_folder(path: str) -> str:
    """Return the folder of a shipped policy's weights, as text; anything else unchanged."""
    if path not in SHIPPED:
        return path
    return str(Path(str(resources.files("convbench"))).joinpath(*SHIPPED[path]))


def resolve_path(path: str) -> str:
    """Return the folder with a config.json or adapter_config.json, or the Hub id, that a reference
    names.

    The reference is that of `local:` without the prefix. A Hub id is not looked up. Raise
    FatalModelError if it is neither.
    """
    path = shipped_folder(path)
    folder = Path(path).expanduser()
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return str(folder)
    if not folder.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        return path
    raise FatalModelError(
        f"local:{path}: found no config.json there; expected a folder of transformers weights "
        f"(a checkpoint or an adapter) or a Hub id{sibling_hint(path)}"
    )


def folder_of(policy: str) -> Path:
    """Return the path in a policy's reference: `local:DIR`, `vllm:DIR` or `DIR`.

    It may not exist; `~` and shipped names are not resolved.
    """
    return Path(policy.removeprefix("local:").removeprefix("vllm:"))


def without_latest(ref: str) -> str:
    """Return a reference or path with the link `latest` replaced by its current target; else
    unchanged.

    A record must name the same weights after the link has changed.
    """
    scheme, colon, path = ref.rpartition(":")
    parts = Path(path).parts
    for end in range(1, len(parts) + 1):
        link = Path(*parts[:end])
        if link.name == "latest" and link.is_symlink():
            target = Path(os.path.normpath(link.parent / link.readlink()))
            return scheme + colon + str(target.joinpath(*parts[end:]))
    return ref


def sibling_hint(path: str) -> str:
    """Return `; in FOLDER there is: A, B` with at most 8 folders of weights next to a missing path.

    The text is empty if there are none.
    """
    folder = Path(path).expanduser().parent
    files = [*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]
    names = sorted({file.parent.name for file in files})[:SHOWN]
    return f"; in {folder} there is: {', '.join(names)}" if names else ""


def adapter_base(folder: str) -> str | None:
    """Return the base model (path or Hub id) that a LoRA folder names; None for any other folder.

    Raise RunError if its adapter_config.json is damaged or names none.
    """
    path = Path(folder) / "adapter_config.json"
    if not path.is_file():
        return None
    return read_text_field(path, "base_model_name_or_path")


def resolve_reference(model: str) -> str | None:
    """Return the path or Hub id in `local:PATH` or `vllm:ID`, shipped names resolved to their
    folders.

    Return None for any other reference. A `local:` path without weights is returned as it is: it is
    checked later, with an error message about training.
    """
    scheme, _, rest = model.partition(":")
    if scheme == "vllm":
        return shipped_folder(rest)
    if scheme != "local":
        return None
    try:
        return resolve_path(rest)
    except FatalModelError:
        return rest  # checked later, with an error message about training


def weights_place(model: str, weights: str | None) -> str | None:
    """Return the path or Hub id of a model's weights: that of `weights` if it is given, else of
    `model`.

    Return None if `weights` is not given and the reference does not say where they are.
    """
    return (resolve_reference(weights) or weights) if weights else resolve_reference(model)


def own_sampling(location: str | None, *, fetch: bool = False) -> dict[str, float]:
    """Return the restrictions of sampling in the weights' generation_config.json: `top_p`, `top_k`
    or both.

    A `top_p` of 1 and a `top_k` of 0 or 50, transformers' default, are left out. The dict is empty
    without such a file. With `fetch` the file is also looked up on the Hub.
    """
    file = find_file(location, "generation_config.json", fetch=fetch) if location else None
    config = read_object(file) if file else {}
    free: dict[str, tuple[float, ...]] = {"top_p": (1,), "top_k": (0, 50)}
    return {
        name: config[name]
        for name, values in free.items()
        if isinstance(config.get(name), int | float) and config[name] not in values
    }


def policy_weights(manifest: RunManifest) -> str:
    """Return where the weights of a run's policy are, unresolved.

    That is the `weights` that the cast records (a path or Hub id), else its model reference, which
    must be `local:PATH` or `vllm:ID`. Raise TrainError for any other model.
    """
    return member_weights(manifest.cast[manifest.protocol.policy], f"run {manifest.id}")


def member_weights(member: ModelConfig, who: str) -> str:
    """Return where a policy's weights are: its recorded `weights`, else its reference, unresolved.

    The reference must be `local:PATH` or `vllm:ID`. Raise TrainError, whose message begins with
    `who`, for any other.
    """
    if member.weights:
        return member.weights
    if resolve_reference(member.model) is not None:
        return member.model
    raise TrainError(
        f"{who}: the policy is {member.model!r}, whose weights are not recorded; "
        "give --model PATH or a Hub id"
    )


def names_weights(manifest: RunManifest) -> bool:
    """Return True if the run records where the weights of its policy are; they may no longer be
    there."""
    try:
        policy_weights(manifest)
    except TrainError:
        return False
    return True


def check_model(model: str) -> None:
    """Raise TrainError if a model has no config.json or no chat template; else return None.

    `model` is a folder or a Hub id, looked up in the cache and on the Hub. torch is not loaded.
    """
    if find_file(model, "config.json") is None:
        hint = "give --model" if shipped_folder(model) == model else f"give --model local:{model}"
        raise TrainError(
            f"model {model!r}: found no config.json; expected a folder with a model, or the id of "
            f"one on the Hub that can be reached (a gated one needs HF_TOKEN); {hint}"
        )
    if find_file(model, "chat_template.jinja") is not None:
        return
    file = find_file(model, "tokenizer_config.json")
    if file is None or '"chat_template"' not in file.read_text(errors="replace"):
        raise TrainError(
            f"model {model!r}: found no chat template; expected a chat model; give --model an "
            "instruction-tuned one"
        )


def find_file(model: str, name: str, *, fetch: bool = True) -> Path | None:
    """Return the path of a model's file, in its folder if that exists, else in the Hub's cache or
    fetched.

    Return None if there is no such file, if the Hub cannot be reached, or without `fetch` if it is
    not in the cache.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    refused = (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError)
    try:
        return Path(hf_hub_download(model, name, local_files_only=True))
    except refused:
        if not fetch or not model_exists(model):
            return None
    try:
        return Path(hf_hub_download(model, name))
    except refused:
        return None


def content_hash(model: str) -> str | None:
    """Return a folder's fingerprint (16 hex digits), or the commit of a Hub id, fetched if
    necessary.

    Return None if the model is unavailable.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return weights_fingerprint(folder)
    file = find_file(model, "config.json")
    return file.parent.name if file else None


def max_positions(model: str) -> int | None:
    """Return `max_position_embeddings` of the model's config.json, fetched from the Hub if
    necessary.

    Return None if there is no such file or it does not say.
    """
    file = find_file(model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config", config)
    count = inner.get("max_position_embeddings") if isinstance(inner, dict) else None
    return count if isinstance(count, int) and count > 0 else None


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a Llama-like decoder: embeddings, attention with grouped heads, a gated
    feed-forward."""

    hidden: int
    layers: int
    words: int
    """Size of the vocabulary."""
    wide: int
    """Width of the feed-forward."""
    queries: int
    """Width of all query heads."""
    keys: int
    """Width of all key heads, and of all value heads."""
    tied: bool
    """Whether embeddings and head are one matrix."""

    @property
    def weight_count(self) -> int:
        """Return the number of weights in embeddings, head, attention and feed-forward, without
        norms and biases."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> ModelShape | None:
    """Return the dimensions of a model given by path, Hub id or a reference to either.

    Missing sizes are assumed: as many key heads as heads, a feed-forward of four times the width.
    Return None if its config.json is unavailable or lacks width, layers, vocabulary or heads. The
    result is kept for the process.
    """
    return _read_shape(_read_config(model))


def _read_config(model: str) -> dict[str, Any]:
    """Return a model's config.json, of several parts that of the text with a quantisation of all;
    empty without one."""
    file = find_file(resolve_reference(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    return {**inner, "quantization_config": config.get("quantization_config")}


def _read_shape(config: dict[str, Any]) -> ModelShape | None:
    names = ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads")
    sizes = [_positive_int(config.get(name)) for name in names]
    if None in sizes:
        return None
    hidden, layers, words, heads = (size for size in sizes if size is not None)
    each = _positive_int(config.get("head_dim")) or hidden // heads
    shared = _positive_int(config.get("num_key_value_heads")) or heads
    wide = _positive_int(config.get("intermediate_size")) or 4 * hidden
    tied = bool(config.get("tie_word_embeddings"))
    return ModelShape(hidden, layers, words, wide, heads * each, shared * each, tied)


def _positive_int(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32
    return value if good else None
