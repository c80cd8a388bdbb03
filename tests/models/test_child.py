"""Weights in a process of their own: the same replies, and gone when it is closed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convbench.engine import Caller, RetryPolicy
from convbench.errors import FatalModelError
from convbench.models import open_model
from convbench.models.devices import Placement
from convbench.models.local import LocalModel
from convbench.models.subprocess_model import SubprocessModel
from convbench.schema import Completion, ImagePart, Message, Sampling
from convbench.schema.reasoning import Reasoning
from tests.helpers import tiny_words as tiny
from tests.support.later import needs
from tests.support.processes import gone

needs("torch")

ROOT = Path(__file__).resolve().parents[2]
CPU = Placement(names=())


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("tiny"))


def asked(number: int) -> list[Message]:
    said = " ".join(tiny.WORDS[number : number + 7])
    thought = Reasoning(text="w1", tokens=1)
    return [
        {"role": "user", "content": said},
        {"role": "assistant", "content": "w2", "reasoning": thought},
        {"role": "user", "content": "w3"},
    ]


async def replies(model: LocalModel | SubprocessModel) -> list[Completion]:
    """Drawn one by one, so that no batch has a part in their numbers; then greedy, all at once."""
    drawn = Sampling(temperature=1.0, max_tokens=12, seed=5)
    one = [await model.complete(asked(n), drawn, key=f"q{n}") for n in range(12)]
    best = Sampling(temperature=0, max_tokens=12)
    calls = (model.complete(asked(n), best, key=f"q{n}") for n in range(40))
    return one + list(await asyncio.gather(*calls))


@pytest.mark.exhaustive
def test_the_same_replies_and_a_new_process_after_a_kill(weights: Path) -> None:
    notes: list[str] = []
    model = SubprocessModel(f"local:{weights}", CPU, note=notes.append)
    here = LocalModel(f"local:{weights}", device="cpu")

    async def work() -> list[int]:
        assert await replies(model) == await replies(here)
        assert model.resources == {"devices": "", "share": None}
        picture: list[Message] = [{"role": "user", "content": (ImagePart(file="a.png"),)}]
        with pytest.raises(FatalModelError, match="does not support images"):
            await model.complete(picture, Sampling(), key="k")
        long: list[Message] = [{"role": "user", "content": "w1 " * 600}]
        with pytest.raises(FatalModelError, match="context is 512") as error:
            await model.complete(long, Sampling(), key="k")
        assert not error.value.stops_run
        lost = asyncio.ensure_future(model.complete(asked(1), Sampling(), key="lost"))
        await asyncio.sleep(0)
        lost.cancel()
        return await killed(model)

    async def killed(model: SubprocessModel) -> list[int]:
        """A call in hand when the process dies is answered by the next process."""
        assert model._process is not None
        first = model._process.pid
        caller = Caller(retry=RetryPolicy(backoff_s=0.01))
        sampling = Sampling(temperature=0, max_tokens=450)
        os.kill(first, signal.SIGSTOP)  # so that it cannot have answered
        call = asyncio.ensure_future(caller.complete(model, asked(3), sampling, key="k"))
        while not model._pending:
            await asyncio.sleep(0.001)
        os.kill(first, signal.SIGKILL)
        assert await call == await here.complete(asked(3), sampling, key="k")
        return [first, model._process.pid]

    async def main() -> list[int]:
        try:
            return await work()
        finally:
            await model.aclose()
            await here.aclose()

    pids = asyncio.run(main())
    assert len(set(pids)) == 2
    assert all(map(gone, pids))
    assert len(notes) == 1
    assert "its process was killed by SIGKILL" in notes[0]


def test_a_process_that_never_answers_is_one_error(weights: Path, tmp_path: Path) -> None:
    """Not started again for ever: weights that do not load, and a process that breaks at once."""
    (tmp_path / "config.json").write_text("{}")
    model = SubprocessModel(f"local:{tmp_path}", CPU)

    async def ask(model: SubprocessModel) -> None:
        try:
            await Caller().complete(model, asked(1), Sampling(), key="k")
        finally:
            await model.aclose()

    with pytest.raises(FatalModelError, match="cannot be loaded"):
        asyncio.run(ask(model))
    broken = SubprocessModel(f"local:{weights}", CPU)
    broken.command_line = lambda: [sys.executable, "-c", "raise SystemError('no luck')"]  # type: ignore[method-assign]
    with pytest.raises(FatalModelError, match=r"ended with exit code 1: SystemError: no luck"):
        asyncio.run(ask(broken))
    loud = SubprocessModel(f"local:{weights}", CPU)
    loud.command_line = lambda: [sys.executable, "-c", "print('Hello')"]  # type: ignore[method-assign]
    with pytest.raises(FatalModelError, match="wrote a line that is not a reply"):
        asyncio.run(ask(loud))


SCRIPT = """
import asyncio, sys
from convbench.models.subprocess_model import SubprocessModel
from convbench.models.devices import Placement

async def main():
    model = SubprocessModel("local:" + sys.argv[1], Placement(names=()))
    await model.start()
    print(model._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_it_dies_with_its_parent(weights: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(weights)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    assert gone(pid)


def test_a_process_is_used_where_there_is_a_device_or_a_place(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = f"local:{weights}"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "2x80")
    assert isinstance(open_model(ref), SubprocessModel)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert isinstance(open_model(ref), LocalModel)
    assert isinstance(open_model(ref, placement=CPU), SubprocessModel)
    first = open_model(ref, placement=Placement(names=("1", "0")))
    assert isinstance(first, SubprocessModel)
    assert first.placement.extra_environment() == {"CUDA_VISIBLE_DEVICES": "1"}
    with pytest.raises(FatalModelError, match="expected vllm:"):
        open_model(ref, placement=Placement(vllm={}))
