"""Every command that reads, asked about the same runs, says what it said before.

After a wanted change: CONVBENCH_GOLDEN=write .venv/bin/python -m pytest tests/fence -n 2, then read
the difference. `pytest tests/fence -n 2` asks all of it, `make test` none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from convbench import __version__
from convbench.commands import _output as console
from tests.fence.asked import built, commands, judged, names, prompts, specs
from tests.fence.masks import Masks, changed, digest, shortened, stamps, texts_of, written
from tests.fence.runs import forget_half, make_runs
from tests.helpers.excerpts import EXCERPTS
from tests.helpers.excerpts import written as excerpts_below
from tests.helpers.typed import exit_code
from tests.support.once import made_once

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]  # 10,000 on a busy machine
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("CONVBENCH_GOLDEN") == "write"
SETTLED = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "HF_HUB_OFFLINE": "1",
    "TZ": "UTC",
    "OMP_NUM_THREADS": "1",
    "CONVBENCH_SIMULATED_HOST": "64",
}
SCORED = (
    ("rules", ("log", "log/evals/swift", "part")),
    ("answer", ("log", "log/evals/swift", "branched", "branched/branches")),
)
SPEC = re.compile(r"(?<=\n\n)name: .*?\n\n(?=example  )", re.DOTALL)
"""The spec that stands before the prompts of each of its protocols."""


def type_command(words: list[str]) -> int:
    """Type a command in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTLED.items():
            patch.setenv(name, value)
        for module in ("huggingface_hub.constants", "datasets.config"):  # may be imported by now
            if module in sys.modules:
                patch.setattr(f"{module}.HF_HUB_OFFLINE", True)
        for stream in (console.out, console.err):  # of the width that was there at import
            patch.setattr(stream, "_width", int(SETTLED["COLUMNS"]))
        return exit_code(patch, words)


@dataclass
class Fence:
    """The folder with the runs, in which commands are typed, and the runs as they were."""

    folder: Path
    master: Path
    excerpts: Path
    capture: pytest.CaptureFixture[str]

    def ask(self, words: list[str]) -> tuple[int, str, str]:
        """Type a command; return its exit code and what it printed on stdout and stderr."""
        self.capture.readouterr()
        code = type_command(words)
        printed = self.capture.readouterr()
        return code, self.masks.of(printed.out), self.masks.of(printed.err)

    @property
    def masks(self) -> Masks:
        """What differs from place to place."""
        folders = {self.folder: "⟨HERE⟩", self.excerpts: "⟨EXCERPTS⟩", ROOT: "⟨CODE⟩"}
        return Masks(folders, __version__)

    def answer(self, words: list[str]) -> str:
        """Return how a command ended: code, what it printed, what it wrote; what was written is
        taken away again."""
        before = stamps(self.folder)
        try:
            return self._answer(words, before)
        finally:  # a test that is ended leaves nothing to those after it
            self._restore(before)

    def _answer(self, words: list[str], before: dict[str, tuple[int, int]]) -> str:
        code, out, err = self.ask(words)
        parts = [f"$ convbench {shlex.join(map(self.masks.of, words))}", f"exit code {code}"]
        for title, text in (("stdout", out), ("stderr", err)):
            if text:
                parts.append(f"--- {title}\n{shortened(text)}")
        files = changed(before, self.folder)
        if files:
            parts.append(f"--- files\n{shortened(written(files, self.folder, self.masks))}")
        for card in files:
            if Path(card).name == "README.md":
                text = self.masks.of(texts_of(self.folder / card))
                parts.append(f"--- {self.masks.of(card)}\n{shortened(text)}")
        return "\n".join(parts) + "\n"

    def _restore(self, before: dict[str, tuple[int, int]]) -> None:
        after = stamps(self.folder)
        for name in after.keys() - before.keys():
            (self.folder / name).unlink()
        for name in before:
            if after.get(name) != before[name]:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.master / name, self.folder / name)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs, made and scored once a session, by whichever worker comes first."""
    return made_once(tmp_path_factory, "fence-master", make_master)


def make_master(folder: Path) -> None:
    """Write the runs and score them."""
    make_runs(folder)
    for judge, runs in SCORED:
        for run in runs:
            type_command(["judge", "--run", str(folder / run), "--judge", judge])
    forget_half(folder / "part")


@pytest.fixture(scope="session")
def place(master: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A worker's own copy of the runs."""
    folder = tmp_path_factory.mktemp("fence") / "here"
    shutil.copytree(master, folder)
    return folder


@pytest.fixture(scope="session")
def excerpts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of public sets, in words of our own."""
    return excerpts_below(EXCERPTS / "hub", tmp_path_factory.mktemp("excerpts"))


@pytest.fixture
def fence(
    master: Path,
    place: Path,
    excerpts: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Fence:
    """The folder with the runs, to type commands in."""
    monkeypatch.chdir(place)
    return Fence(place, master, excerpts, capfd)


@pytest.mark.parametrize("name", commands())
def test_a_command_says_what_it_said(fence: Fence, name: str) -> None:
    compare(name, "\n".join(map(fence.answer, commands()[name])))


@pytest.mark.parametrize("kind", specs())
def test_every_spec_is_shown_as_it_was(fence: Fence, kind: str) -> None:
    compare(kind, "\n".join(map(fence.answer, specs()[kind])))


@pytest.mark.parametrize("task", names("tasks"))
def test_every_prompt_is_what_it_was(fence: Fence, task: str) -> None:
    """The spec once, the prompts of each protocol and mode as they are, and a hash of what each
    judge is sent."""
    shown = [fence.answer(["show", task])]
    for protocol in names("protocols"):
        for words in prompts(task, protocol, fence.excerpts):
            shown.append(SPEC.sub("⟨SPEC⟩\n\n", fence.answer(words)))
        shown += judges_of(fence, task, protocol)
    compare(f"prompts-{task}", "\n".join(shown))


def judges_of(fence: Fence, task: str, protocol: str) -> Iterator[str]:
    """Yield for every judge a line with a hash of what it is sent, where a run can be built."""
    runs = ("talks/one", "talks/other")
    try:
        if any(fence.ask(built(task, protocol, fence.excerpts, run))[0] for run in runs):
            return
        for words in judged(*runs):
            yield f"$ convbench {shlex.join(words)}  {digest(fence.answer(words))}"
    finally:  # a build that failed leaves its folder, which the next one would not take
        shutil.rmtree(fence.folder / "talks", ignore_errors=True)


def test_no_golden_file_is_left_over() -> None:
    every = {*commands(), *specs(), *(f"prompts-{task}" for task in names("tasks"))}
    kept = {path.stem for path in GOLDEN.glob("*.txt")}
    assert not kept - every, "take them away"


def compare(name: str, text: str) -> None:
    """Hold a text against its golden file."""
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not path.exists():
        pytest.skip("nothing was kept of it yet: CONVBENCH_GOLDEN=write")
    assert text == path.read_text(encoding="utf-8")
