"""A hint to install names what is there: by how convbench was installed, with real metadata."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from convbench.util.install import NEEDS_TORCH, install_arguments

ROOT = Path(__file__).resolve().parents[2]

ASK = "from convbench.util.install import with_extra; print(with_extra('train'))"
WHEEL = "file:///srv/wheels/convbench-0.1.0-py3-none-any.whl"
GIT = {"vcs": "git", "commit_id": "0a1b2c"}


def test_a_checkout_that_is_not_installed_is_named() -> None:
    asked = [sys.executable, "-S", "-c", ASK]  # without site-packages
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, words = (shlex.split(line) for line in done.stdout.split("&&"))
    (pin,) = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.M)
    assert first == ["pip", "install", pin]
    assert words == ["pip", "install", "-e", f"{ROOT}[train]", "-c", f"{ROOT}/constraints.txt"]
    assert (Path(words[3].removesuffix("[train]")) / "pyproject.toml").is_file()
    assert Path(words[5]).is_file()


@pytest.mark.parametrize(("origin", "wanted"), [
    ({}, "'convbench[train]'"),
    ({"url": WHEEL, "archive_info": {}}, f"'convbench[train] @ {WHEEL}'"),
    ({"url": "https://host/c.git", "vcs_info": GIT},
     "'convbench[train] @ git+https://host/c.git@0a1b2c'"),
    ({"url": "file:///a%20b/c", "dir_info": {}}, "'/a b/c[train]'"),
    ({"url": "file:///srv/c", "dir_info": {"editable": True}}, "-e '/srv/c[train]'"),
])  # fmt: skip
def test_the_hint_follows_the_origin(origin: dict[str, Any], wanted: str) -> None:
    assert install_arguments("train", origin) == wanted


@pytest.mark.parametrize("editable", [True, False])
def test_what_pip_wrote_is_read(tmp_path: Path, editable: bool) -> None:
    """Metadata as pip leaves it: the package's, with the file of PEP 610."""
    info = tmp_path / "convbench-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: convbench\nVersion: 0.1.0\n")
    kind = {"dir_info": {"editable": True}} if editable else {"archive_info": {}}
    url = "file:///srv/c" if editable else WHEEL
    (info / "direct_url.json").write_text(json.dumps({"url": url, **kind}))
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; {ASK}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True,
                          cwd=tmp_path, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = "-e '/srv/c[train]'" if editable else f"'convbench[train] @ {WHEEL}'"
    assert done.stdout.strip().endswith(f" && pip install {wanted}")


@pytest.mark.parametrize("extra", ["train", "local", "analysis", "vision"])
@pytest.mark.parametrize("there", [True, False])
def test_torch_goes_first_where_an_extra_needs_it_and_there_is_none(
    tmp_path: Path, there: bool, extra: str
) -> None:
    """In a Python without packages; a torch of one empty file stands for one that is installed."""
    if there:
        (tmp_path / "torch.py").touch()
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; " + ASK.replace(
        "train", extra
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True,
                          cwd=tmp_path, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split(" && ")
    assert f"[{extra}]" in lines.pop()
    assert bool(lines) == (not there and extra in ("train", "local"))
    assert all(re.fullmatch(r"pip install torch==[\d.]+", line) for line in lines)


def test_the_extras_that_need_torch_are_known() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    having = {name for name, needed in listed["optional-dependencies"].items()
              if any(re.match(r"(torch|bitsandbytes)\b", one) for one in needed)}  # fmt: skip
    assert having == set(NEEDS_TORCH)


def test_no_hint_is_written_by_hand() -> None:
    for path in sorted((ROOT / "convbench").rglob("*.py")):
        assert "convbench[" not in path.read_text() or path.name == "install.py", path
