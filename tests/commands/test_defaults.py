"""Files of defaults: what is typed goes first; a folder steers nothing; `.env` gives keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.typed import Typist

BUILD = ("build", "demo", "--model", "scripted:policy", "--tasks", "2")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVBENCH_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def users(text: str) -> Path:
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "convbench" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_typed_then_folder_then_user(typist: Typist) -> None:
    users('[all]\nquiet = true\n[build]\nsamples = 5\ntemperatures = "0.1"\nturns = 4\n')
    Path("convbench.toml").write_text("[build]\nsamples = 3\nmax-tokens = 64\n")
    said = typist(*BUILD, "--max-tokens", "32", "--dry-run")
    assert said.code == 0
    assert "conversations  6" in said.out
    assert "note: convbench.toml: --samples 3\n" in said.err
    assert "config.toml: " in said.err
    assert "--temperatures 0.1" in said.err
    assert "--max-tokens" not in said.err
    assert typist.json(*BUILD, "--dry-run", "--samples", "1")["result"]["estimate"]["calls"] == 8


def test_lists_and_tables_for_all(typist: Typist) -> None:
    Path("convbench.toml").write_text('[all]\ntemperatures = "0.5"\nsamples = 1\n')
    typist(*BUILD)
    (run,) = typist.json("list", "runs")["result"]["runs"]
    assert run["conversations"] == 2


STEERS = [
    'api-base = "http://127.0.0.1:9"', 'allow-calls = ["m@h"]',
    'plugin = ["evil.py"]', 'specs = ["evil"]', 'set = ["judge.api_base=http://evil"]',
]  # fmt: skip


@pytest.mark.parametrize("line", STEERS)
@pytest.mark.parametrize("table", ["build", "all"])
def test_a_folder_steers_neither_keys_nor_code(typist: Typist, table: str, line: str) -> None:
    Path("evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    Path("convbench.toml").write_text(f"[{table}]\n{line}\n")
    said = typist(*BUILD)
    assert said.code == 1
    assert said.err.startswith(f"error: convbench.toml: [{table}] {line.split(' ')[0]}: found in a")
    assert not Path("ran").exists()
    assert not Path("runs").exists()


def test_the_users_own_file_may(typist: Typist) -> None:
    folder = Path("mine") / "tasks"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text("extends: demo\ntitle: my own\n")
    users(f'[all]\nspecs = ["{folder.parent}"]\n')
    assert "my own" in typist("list", "tasks").out


WRONG = [
    ("[biuld]\nx = 1\n", "[biuld]: found no such command; did you mean 'build'?"),
    ("[build]\nmodle = 1\n", "[build] modle: found no such option; did you mean 'mode'?"),
    ("build = 1\n", "build: found a value; expected a table"),
    ("[build]\nseed = {a = 1}\n", "[build] seed: found {'a': 1}"),
    ("[build\n", "convbench.toml: is not valid TOML"),
    ('[build]\nsamples = "x"\n', "convbench.toml: "),
    ("a = 1\n" * 20_000, "found more than 65,536 bytes"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_file_is_one_line(typist: Typist, text: str, expected: str) -> None:
    Path("convbench.toml").write_text(text)
    said = typist(*BUILD)
    assert said.code == 1
    assert expected in said.err
    assert said.err.count("\n") == 1


def test_off(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("convbench.toml").write_text("[biuld]\n")
    Path(".env").write_text("ACME_API_KEY=abcdefgh1234\n")
    monkeypatch.setenv("CONVBENCH_CONFIG", "off")
    said = typist(*BUILD)
    assert said.code == 0
    assert "ACME" not in said.err


def test_of_env_keys_alone_are_taken(typist: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACME_API_KEY", "OTHER_API_KEY", "OPENAI_API_BASE", "LD_PRELOAD", "NEW_PATH"):
        monkeypatch.setenv(name, "")  # so that what is set below goes when the test ends
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTHER_API_KEY", "from-the-user-1")
    monkeypatch.setenv("HERE", "home-of-a-secret")
    Path(".env").write_text(
        "ACME_API_KEY=from-a-file-${HERE}\nOTHER_API_KEY=from-a-file-2\nNEW_PATH=/x\n"
        "OPENAI_API_BASE=http://evil/v1\nLD_PRELOAD=evil.so\n"
    )
    said = typist(*BUILD)
    assert "note: .env: ACME_API_KEY\n" in said.err
    assert os.environ["ACME_API_KEY"] == "from-a-file-${HERE}"
    assert os.environ["OTHER_API_KEY"] == "from-the-user-1"
    assert not {"OPENAI_API_BASE", "LD_PRELOAD", "NEW_PATH"} & set(os.environ)
