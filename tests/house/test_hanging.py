"""A test that hangs is named and ended, whatever it waits in."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.cli import ROOT

SLEEPER = "import subprocess, time; subprocess.Popen(['sleep', '90']); time.sleep(90)"
TESTS = f"""
import asyncio, subprocess, sys, threading, time

def test_child():
    with subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], stdout=subprocess.PIPE) as child:
        child.communicate(timeout=400)

def test_pipes():
    subprocess.run([sys.executable, "-c", {SLEEPER!r}], capture_output=True)

def test_call():
    sum(range(10**13))

def test_thread():
    async def wait():
        await asyncio.to_thread(time.sleep, 90)
    asyncio.run(wait())

def test_left():
    threading.Thread(target=time.sleep, args=(90,)).start()

def test_good():
    pass
"""


def run(folder: Path, test: str, *more: str) -> tuple[int, str, float]:
    """Run TESTS with a timeout of 2 s and a grace of 1 s; return code, words and seconds."""
    file = folder / "test_hangs.py"
    file.write_text(TESTS)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"--rootdir={folder}", "-c", "/dev/null", "-q",
         "-p", "tests.support.hanging", "-o", "timeout=2", "-o", "hang_grace=1", *more,
         f"{file}::{test}" if test else str(file)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=80,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_child", "test_pipes", "test_call", "test_thread"])
def test_a_hanging_test_is_named_and_ended(test: str, tmp_path: Path) -> None:
    code, words, seconds = run(tmp_path, test)
    assert code != 0
    assert f"in {test}" in words or f"::{test}" in words, words
    assert seconds < 40


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced_and_its_test_named(tmp_path: Path) -> None:
    code, words, seconds = run(tmp_path, "", "-n", "1", "--deselect", "test_hangs.py::test_left")
    assert code == 1
    for name in ("test_child", "test_call", "test_thread"):
        assert f"crashed while running 'test_hangs.py::{name}'" in words, words
    assert "4 failed, 1 passed" in words
    assert seconds < 70


@pytest.mark.slow
def test_threads_that_outlive_the_tests_end_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support import hanging\nhanging.AT_EXIT_S = 1\n"
    )
    code, words, seconds = run(tmp_path, "test_left")
    assert code != 0
    assert "Timeout" in words
    assert seconds < 40
