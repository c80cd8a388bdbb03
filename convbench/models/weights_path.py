"""Locate a model's weights (a folder, the Hub, or shipped with convbench) and identify them by
their content; nothing is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
from importlib import resources
from pathlib import Path

from convbench.errors import FatalModelError, TrainError
from convbench.schema import ModelConfig, RunManifest
from convbench.store.shape import read_object, read_text_field
from convbench.util.hub import model_exists

ENDS = 1 << 20
"""Bytes at each end of a weights file that its fingerprint covers."""
SHIPPED = {"pocket": ("pocket", "weights"), "pocket-grids": ("pocket", "grids", "weights")}
"""Names of the small policies that ship with convbench (`local:pocket`, `vllm:pocket`) → where
their weights lie in the package; `pocket-grids` is the policy for grids."""
SHIPPED_REFS = tuple(f"local:{name}" for name in SHIPPED)
"""References of the shipped policies; records name them so, and are valid on any machine."""


def shipped_folder(path: str) -> str:
    """Return the folder of a shipped policy's weights; any other name or path unchanged."""
    if path not in SHIPPED:
        return path
    return str(Path(str(resources.files("convbench"))).joinpath(*SHIPPED[path]))


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
    """Return the path or Hub id of a model's weights: those of `weights`, a reference, path or Hub
    id that is recorded with it, else those in `local:PATH` or `vllm:ID`, shipped names resolved.

    Return None for any other reference. Whether they are there is not checked.
    """
    if weights:
        return weights_of(weights) or weights
    scheme, _, rest = model.partition(":")
    return shipped_folder(rest) if scheme in ("local", "vllm") and rest else None


def folder_of(policy: str) -> Path:
    """Return the path in `local:DIR`, `vllm:DIR` or `DIR`, which may not exist."""
    return Path(policy.removeprefix("local:").removeprefix("vllm:"))


def policy_weights(manifest: RunManifest) -> str:
    """Return the reference, path or Hub id of the weights of a run's policy, as it records them.

    Raise TrainError if it does not.
    """
    return member_weights(manifest.cast[manifest.protocol.policy], f"run {manifest.id}")


def member_weights(member: ModelConfig, who: str) -> str:
    """Return the reference, path or Hub id of a policy's weights, as its configuration records
    them. Raise TrainError, whose message begins with `who`, if it does not."""
    if weights_of(member.model, member.weights) is None:
        raise TrainError(
            f"{who}: the policy is {member.model!r}, whose weights are not recorded; "
            "give --model PATH or a Hub id"
        )
    return member.weights or member.model


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
    """Return `; in FOLDER there is: A, B` with at most 8 folders of weights next to a missing path;
    empty if there are none."""
    folder = Path(path).expanduser().parent
    files = [*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]
    names = sorted({file.parent.name for file in files})[:8]
    return f"; in {folder} there is: {', '.join(names)}" if names else ""


def adapter_base(folder: str) -> str | None:
    """Return the base model (path or Hub id) that a LoRA folder names; None for any other folder.

    Raise RunError if its adapter_config.json is damaged or names none.
    """
    path = Path(folder) / "adapter_config.json"
    return read_text_field(path, "base_model_name_or_path") if path.is_file() else None


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


def check_model(model: str) -> None:
    """Raise TrainError if a model has no config.json or no chat template.

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

    for cached in (True, False):
        if not cached and not (fetch and model_exists(model)):
            return None
        try:
            return Path(hf_hub_download(model, name, local_files_only=cached))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError):
            continue
    return None


def content_hash(model: str) -> str | None:
    """Return 16 hex digits that identify the weights in a folder, or the commit of a Hub id,
    fetched if necessary; None if the model is unavailable."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return weights_fingerprint(folder)
    file = find_file(model, "config.json")
    return file.parent.name if file else None


def weights_fingerprint(folder: Path) -> str | None:
    """Return 16 hex digits that identify the weights in a folder; None if the folder is missing.

    They cover name, size and the first and last MiB of each .json, .safetensors, .jinja and .model
    file.
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


def max_positions(model: str) -> int | None:
    """Return `max_position_embeddings` of the model's config.json, fetched from the Hub if
    necessary; None if there is no such file or it does not say."""
    file = find_file(model, "config.json")
    config = read_object(file) if file else {}
    inner = config.get("text_config", config)
    count = inner.get("max_position_embeddings") if isinstance(inner, dict) else None
    return count if isinstance(count, int) and count > 0 else None
