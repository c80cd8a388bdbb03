"""Where a model's weights are, and what identifies them; nothing is loaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError, TrainError
from convbench.schema import ModelConfig
from convbench.store.shape import read_object, read_text_field
from convbench.util.hub import model_exists

SHIPPED = {"pocket": "pocket/weights", "pocket-grids": "pocket/grids/weights"}
"""Names of the small policies that ship with convbench (`local:pocket`, `vllm:pocket`) → where
their weights lie in the package; `pocket-grids` is the policy for grids."""
SHIPPED_REFS = tuple(f"local:{name}" for name in SHIPPED)
"""References of the shipped policies; records name them so, and are valid on any machine."""


def shipped_folder(path: str) -> str:
    """Return the folder of a shipped policy's weights; any other name or path unchanged."""
    return str(resources.files("convbench") / SHIPPED[path]) if path in SHIPPED else path


def check_weights(path: str) -> str:
    """Return the folder with a config.json or adapter_config.json, or the Hub id, that `local:PATH`
    names; the Hub id is not looked up. Raise FatalModelError if it is neither."""
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


def weights_of(model: str, weights: str | None = None) -> str | None:
    """Return the path or Hub id of a model's weights: of `weights`, which is recorded with it, else
    of `local:PATH` or `vllm:ID`; None for any other reference. Whether they are there is not
    checked."""
    if weights:
        return weights_of(weights) or weights
    scheme, _, rest = model.partition(":")
    return shipped_folder(rest) if scheme in ("local", "vllm") and rest else None


def folder_of(policy: str) -> Path:
    """Return the path in `local:DIR`, `vllm:DIR` or `DIR`, which may not exist."""
    return Path(policy.removeprefix("local:").removeprefix("vllm:"))


def member_weights(member: ModelConfig) -> str:
    """Return the reference, path or Hub id of a policy's weights, as its configuration records
    them. Raise TrainError if it does not."""
    if weights_of(member.model, member.weights) is None:
        raise TrainError(
            f"the policy is {member.model!r}, whose weights are not recorded; give --model"
        )
    return member.weights or member.model


def without_latest(ref: str) -> str:
    """Return a reference or path with the target of a link `latest` in its place, so that a record
    names the same weights after the link has changed."""
    scheme, colon, path = ref.rpartition(":")
    for link in (Path(path), *Path(path).parents):
        if link.name == "latest" and link.is_symlink():
            target = Path(os.path.normpath(link.parent / link.readlink()))
            return f"{scheme}{colon}{target / Path(path).relative_to(link)}"
    return ref


def sibling_hint(path: str) -> str:
    """Return `; in FOLDER there is: A, B` with at most 8 folders of weights next to a missing path;
    empty if there are none."""
    folder = Path(path).expanduser().parent
    files = [*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]
    names = sorted({file.parent.name for file in files})[:8]
    return f"; in {folder} there is: {', '.join(names)}" if names else ""


def adapter_base(folder: str) -> str | None:
    """Return the base model (path or Hub id) that a LoRA folder names; None for any other folder.
    Raise RunError if its adapter_config.json is damaged or names none."""
    path = Path(folder) / "adapter_config.json"
    return read_text_field(path, "base_model_name_or_path") if path.is_file() else None


def own_sampling(location: str | None) -> dict[str, float]:
    """Return `top_p` and `top_k` of the generation_config.json of weights (an adapter's base) that
    are here, each only if it restricts sampling; 50 as `top_k` is transformers' default."""
    location = location and (adapter_base(location) or location)
    file = find_file(location, "generation_config.json", fetch=False) if location else None
    config = read_object(file) if file else {}
    free: dict[str, tuple[Any, ...]] = {"top_p": (None, 1), "top_k": (None, 0, 50)}
    return {n: config[n] for n, values in free.items() if config.get(n) not in values}


def check_model(model: str) -> None:
    """Raise TrainError if a model, a folder or a Hub id, has no config.json or no chat template."""
    if find_file(model, "config.json") is None:
        hint = "give --model" if shipped_folder(model) == model else f"give --model local:{model}"
        raise TrainError(
            f"model {model!r}: found no config.json; expected a folder with a model, or the id of "
            f"one on the Hub that can be reached (a gated one needs HF_TOKEN); {hint}"
        )
    file = find_file(model, "tokenizer_config.json")
    text = file.read_text(errors="replace") if file else ""
    if '"chat_template"' not in text and find_file(model, "chat_template.jinja") is None:
        raise TrainError(
            f"model {model!r}: found no chat template; give --model an instruction-tuned one"
        )


def find_file(model: str, name: str, *, fetch: bool = True) -> Path | None:
    """Return the path of a file of a model's folder, else of the Hub's cache, fetched if necessary.
    Return None if there is none, the Hub cannot be reached, or it is not there without `fetch`."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    with contextlib.suppress(HFValidationError, OSError):
        return Path(hf_hub_download(model, name, local_files_only=True))
    with contextlib.suppress(HFValidationError, OSError):
        if fetch and model_exists(model):
            return Path(hf_hub_download(model, name))
    return None


def content_hash(model: str) -> str | None:
    """Return the fingerprint of the weights in a folder, or the commit of a Hub id, fetched if
    necessary; None if the model is unavailable."""
    file = find_file(model, "config.json")
    mark = weights_fingerprint(Path(model).expanduser())
    return mark or (file.parent.name if file else None)


def weights_fingerprint(folder: Path) -> str | None:
    """Return 16 hex digits for a folder of weights, None if it is missing: they cover name, size
    and the first and last MiB of each .json, .safetensors, .jinja and .model file."""
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors", ".jinja", ".model"):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(1 << 20))
                file.seek(max(0, size - (1 << 20)))
                digest.update(file.read(1 << 20))
    return digest.hexdigest()[:16]


def max_positions(model: str) -> int | None:
    """Return `max_position_embeddings` of a model's config.json, or None if it does not say."""
    file = find_file(model, "config.json")
    config = read_object(file) if file else {}
    count = (config.get("text_config") or config).get("max_position_embeddings")
    return count if isinstance(count, int) else None
