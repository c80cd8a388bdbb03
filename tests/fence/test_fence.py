"""Every command that reads, asked about the same runs, says what it said before.

After a wanted change: CONVBENCH_GOLDEN=write pytest tests/fence, then read the difference.
`python -m pytest tests/fence` takes some minutes; `make test-all` runs it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from convbench import __version__, catalog
from convbench.cli import main
from tests.excerpts import EXCERPTS
from tests.excerpts import written as excerpts_below
from tests.fence.asked import built, commands, judged, prompts, specs
from tests.fence.masks import masked, shortened, stamps, written
from tests.fence.runs import make_runs

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("CONVBENCH_GOLDEN") == "write"
SETTLED = {
    "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "HF_HUB_OFFLINE": "1", "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip
pytestmark = pytest.mark.exhaustive


@dataclass
class Fence:
    """The folder with the runs, in which commands are typed."""

    folder: Path
    excerpts: Path
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def do(self, words: list[str]) -> tuple[int, str, str]:
        """Type a command; return its exit code and what it printed on stdout and stderr."""
        self.capture.readouterr()
        self.patch.setattr(sys, "argv", ["convbench", *words])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        printed = self.capture.readouterr()
        return code, printed.out, printed.err

    def type(self, words: list[str]) -> str:
        """Return how a command ended: code, what it printed, what it wrote; what was written is
        taken away again."""
        before = stamps(self.folder)
        saved = {name: (self.folder / name).read_bytes() for name in before if _small(name)}
        code, out, err = self.do(words)
        parts = [f"$ convbench {shlex.join(words)}", f"exit code {code}"]
        for title, text in (("stdout", out), ("stderr", err)):
            if text:
                parts.append(f"--- {title}\n{shortened(self._masked(text))}")
        if files := written(before, self.folder, __version__):
            parts.append(f"--- files\n{shortened(files)}")
        self._restore(before, saved)
        return "\n".join(self._masked(part) for part in parts) + "\n"

    def _masked(self, text: str) -> str:
        text = text.replace(str(self.excerpts), "⟨EXCERPTS⟩")
        return masked(text, self.folder, __version__)

    def _restore(self, before: dict[str, tuple[int, int]], saved: dict[str, bytes]) -> None:
        after = stamps(self.folder)
        for name in after.keys() - before.keys():
            (self.folder / name).unlink()
        for name, content in saved.items():
            if after.get(name) != before[name]:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(content)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _small(name: str) -> bool:
    return name.startswith(("kept/", "part/", "talks/"))


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the runs."""
    folder = tmp_path_factory.mktemp("fence")
    make_runs(folder)
    return folder


@pytest.fixture(scope="session")
def excerpts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of public sets, in words of our own."""
    return excerpts_below(EXCERPTS / "hub", tmp_path_factory.mktemp("excerpts"))


@pytest.fixture
def fence(
    place: Path, excerpts: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Fence:
    """The folder with the runs, to type commands in."""
    for name, value in SETTLED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    ready = Fence(place, excerpts, capfd, monkeypatch)
    if not (place / ".scored").exists():
        for judge in ("rules", "answer"):
            for run in ("log", "log/evals/swift"):
                ready.do(["judge", "--run", run, "--judge", judge])
        (place / ".scored").touch()
    return ready


@pytest.mark.parametrize("name", commands())
def test_a_command_says_what_it_said(fence: Fence, name: str) -> None:
    compare(name, "\n".join(map(fence.type, commands()[name])))


@pytest.mark.parametrize("kind", specs())
def test_every_spec_is_shown_as_it_was(fence: Fence, kind: str) -> None:
    compare(kind, "\n".join(map(fence.type, specs()[kind])))


@pytest.mark.parametrize("task", sorted(catalog.names("tasks")))
def test_every_prompt_is_what_it_was(fence: Fence, task: str) -> None:
    shown = [fence.type(words) for words in prompts(task, fence.excerpts)]
    fence.do(built(task, fence.excerpts))
    shown += [fence.type(words) for words in judged(task)]
    shutil.rmtree(fence.folder / "talks")
    compare(f"prompts-{task}", "\n".join(shown))


def test_no_golden_file_is_left_over() -> None:
    names = {*commands(), *specs(), *(f"prompts-{task}" for task in catalog.names("tasks"))}
    assert {path.stem for path in GOLDEN.glob("*.txt")} in (names, set())


def compare(name: str, text: str) -> None:
    """Hold a text against its golden file."""
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not path.exists():
        pytest.skip("nothing was kept of it yet: CONVBENCH_GOLDEN=write")
    assert text == path.read_text(encoding="utf-8")
