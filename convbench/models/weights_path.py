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
from convbench.hub.client import model_exists
from convbench.models.gguf import converted_folder, is_gguf
from convbench.models.packaged import KNOWN, is_fetched, model_folder
from convbench.schema import ModelConfig, RunManifest
from convbench.store.shape import read_object, read_text_field

ENDS = 1 << 20
"""Bytes at each end of a weights file that its fingerprint covers."""


def weights_fingerprint(folder: Path) -> str | None:
    """Return 16 hex digits that identify a local model by the size and both ends of each file; None
    if the folder is missing."""
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
    """Return the folder of weights that a name or path stands for: shipped, fetched (`packaged`),
    or converted from a GGUF file; else the path unchanged."""
    if path in KNOWN and not Path(path).exists():
        return str(model_folder(path)) if is_fetched(path) else path
    if is_gguf(path):
        return str(converted_folder(path))
    if path not in SHIPPED:
        return path
    return str(Path(str(resources.files("convbench"))).joinpath(*SHIPPED[path]))


def resolve_path(path: str) -> str:
    """Return the folder or Hub id that a local reference names. Raises FatalModelError."""
    path = shipped_folder(path)
    folder = Path(path).expanduser()
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return str(folder)
    if path in KNOWN:
        raise FatalModelError(f"local:{path}: not fetched yet; run: convbench models get {path}")
    if not folder.exists() and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        return path
    raise FatalModelError(
        f"local:{path}: found no config.json there; expected a folder of transformers weights "
        f"(a checkpoint or an adapter), a .gguf file or a Hub id{sibling_hint(path)}"
    )


def folder_of(policy: str) -> Path:
    """Return the folder that a policy's reference names: `local:DIR`, `vllm:DIR` or `DIR`."""
    return Path(policy.removeprefix("local:").removeprefix("vllm:"))


def without_latest(ref: str) -> str:
    """Return a reference or a path with the link `latest` replaced by its current target: a record
    must name the same weights after the link has changed."""
    scheme, colon, path = ref.rpartition(":")
    parts = Path(path).parts
    for end in range(1, len(parts) + 1):
        link = Path(*parts[:end])
        if link.name == "latest" and link.is_symlink():
            target = Path(os.path.normpath(link.parent / link.readlink()))
            return scheme + colon + str(target.joinpath(*parts[end:]))
    return ref


def sibling_hint(path: str) -> str:
    """Return a hint that lists the folders of weights next to a missing path; empty if none."""
    folder = Path(path).expanduser().parent
    files = [*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]
    names = sorted({file.parent.name for file in files})[:SHOWN]
    return f"; in {folder} there is: {', '.join(names)}" if names else ""


def adapter_base(folder: str) -> str | None:
    """Return the base model of a LoRA folder; None for any other folder."""
    path = Path(folder) / "adapter_config.json"
    if not path.is_file():
        return None
    return read_text_field(path, "base_model_name_or_path")


def resolve_reference(model: str) -> str | None:
    """Return the path or Hub id of a reference that says where the weights are (`local:PATH`,
    `vllm:ID`, or a shipped name); None for any other reference."""
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
    """Return the path or Hub id of a model's weights: `weights` of a served name, else that of its
    reference; None if unknown."""
    return (resolve_reference(weights) or weights) if weights else resolve_reference(model)


def own_sampling(location: str | None, *, fetch: bool = False) -> dict[str, float]:
    """Return how the weights' generation_config.json restricts sampling: `top_p` other than 1, and
    `top_k` other than 0 and transformers' default of 50, which we ignore. With `fetch` the file is
    also looked up on the Hub."""
    file = find_file(location, "generation_config.json", fetch=fetch) if location else None
    config = read_object(file) if file else {}
    free: dict[str, tuple[float, ...]] = {"top_p": (1,), "top_k": (0, 50)}
    return {
        name: config[name]
        for name, values in free.items()
        if isinstance(config.get(name), int | float) and config[name] not in values
    }


def policy_weights(manifest: RunManifest) -> str:
    """Return where the weights of a run's policy are.

    That is the `weights` that the cast records (a path or Hub id), else its model reference,
    unresolved: `local:PATH`, or `vllm:ID` of a shipped model. Raises TrainError for any other
    model.
    """
    return member_weights(manifest.cast[manifest.protocol.policy], f"run {manifest.id}")


def member_weights(member: ModelConfig, who: str) -> str:
    """Return the location of a policy's weights: a path, a Hub id or a reference. Raises
    TrainError, with `who` in its message, if it is unknown."""
    if member.weights:
        return member.weights
    if resolve_reference(member.model) is not None:
        return member.model
    raise TrainError(
        f"{who}: the policy is {member.model!r}, whose weights are not recorded; "
        "give --model PATH or a Hub id"
    )


def names_weights(manifest: RunManifest) -> bool:
    """Return True if the run says where the weights of its policy lie."""
    try:
        policy_weights(manifest)
    except TrainError:
        return False
    return True


def check_model(model: str) -> None:
    """Raise TrainError for a model that is missing or has no chat template; torch is not loaded."""
    if find_file(model, "config.json") is None:
        raise TrainError(
            f"model {model!r}: found no config.json; expected a folder with a model, or the id of "
            "one on the Hub that can be reached (a gated one needs HF_TOKEN); give --model"
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
    """Return the path of a model's file, from its folder, the Hub's cache or, with `fetch`, the
    Hub; None if there is no such file."""
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
    """Return what identifies the model's weights: their fingerprint, or the commit of a Hub id;
    None if the model is unavailable."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return weights_fingerprint(folder)
    file = find_file(model, "config.json")
    return file.parent.name if file else None


def max_positions(model: str) -> int | None:
    """Return the number of positions in the model's config.json; None if it does not say."""
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
        """The number of weights, without norms."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        embeddings = self.words * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (attention + 3 * self.hidden * self.wide)


@lru_cache
def shape_of(model: str) -> ModelShape | None:
    """Return the dimensions of a model, given by path, Hub id or a reference to either; None if its
    configuration is unavailable or of an unknown form."""
    file = find_file(resolve_reference(model) or model, "config.json")
    config = read_object(Path(file)) if file else {}
    inner = config.get("text_config")
    return _read_shape(inner if isinstance(inner, dict) else config)


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
