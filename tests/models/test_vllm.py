"""The server we start: waited for, used, and gone afterwards whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from convbench.errors import FatalModelError
from convbench.models import open_model, policy_or_default
from convbench.models.devices import Placement
from convbench.models.parameters import Parameters
from convbench.models.vllm import VLLMModel
from convbench.schema import Completion, Sampling
from tests.helpers.vllm import ROOT, python
from tests.support.processes import gone

__all__ = ["python"]


def vllm(name: str, folder: Path, placement: Placement | None = None) -> VLLMModel:
    placement = placement or Placement()
    return VLLMModel(f"vllm:{name}", Parameters(f"vllm:{name}"), folder, placement=placement)


@pytest.fixture(autouse=True)
def _python(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))


HELLO = [{"role": "user", "content": "hello"}]


def test_it_answers_and_is_stopped(python: Path, tmp_path: Path) -> None:
    async def main() -> tuple[Completion, int]:
        model = open_model("vllm:org/name", log_dir=tmp_path / "run")
        try:
            reply = await model.complete(HELLO, Sampling(), key="k")
            return reply, int((tmp_path / "pid").read_text())
        finally:
            await model.aclose()

    reply, pid = asyncio.run(main())
    assert reply.content
    assert (reply.cost_usd, reply.model) == (0.0, "org/name")
    assert gone(pid)
    assert "starting org/name" in (tmp_path / "run" / "vllm-org-name.log").read_text()


def test_a_server_gets_the_cards_of_its_role(python: Path, tmp_path: Path) -> None:
    """A copy on each, or on as many as the user says that each is split over."""
    four = Placement(tuple("0123"))
    model = vllm("m", tmp_path, four)
    assert model.copies == 4
    assert model.command_line(1)[-2:] == ["--data-parallel-size", "4"]
    split = vllm("m", tmp_path, Placement(tuple("0123"), vllm={"tensor-parallel-size": 2}))
    assert split.copies == 2
    assert split.command_line(1)[-4:] == [
        "--data-parallel-size", "2", "--tensor-parallel-size", "2",
    ]  # fmt: skip


def test_an_engine_s_own_error_is_told_before_what_follows_from_it(
    python: Path, tmp_path: Path
) -> None:
    model = vllm("x", tmp_path)
    model.log.write_text(
        "INFO no error so far\n(Worker pid=9) ERROR [executor.py:953]     raise ValueError(\n"
        "(Worker pid=9) ERROR [executor.py:953] ValueError: Available memory (15/23 GiB) is less\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert model._log_summary() == (
        f"log {model.log}: ValueError: Available memory (15/23 GiB) is less | RuntimeError: Engine "
        "core initialization failed. See root cause above."
    )


def test_a_server_that_does_not_start_says_why(python: Path, tmp_path: Path) -> None:
    model = vllm("broken", tmp_path)
    with pytest.raises(FatalModelError, match=r"did not start; log .*broken is not a local folder"):
        asyncio.run(model.start())


def test_a_server_that_dies_says_so(python: Path, tmp_path: Path) -> None:
    async def main() -> None:
        model = vllm("m", tmp_path)
        await model.start()
        try:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            await asyncio.to_thread(model._process.wait, 60)
            await model.complete(HELLO, Sampling(), key="k")
        finally:
            await model.aclose()

    with pytest.raises(FatalModelError, match="the vLLM server ended"):
        asyncio.run(main())


SCRIPT = """
import asyncio, sys
from pathlib import Path
from convbench.engine import run_in_loop
from convbench.models.parameters import Parameters
from convbench.models.vllm import VLLMModel

async def main():
    model = VLLMModel("vllm:m", Parameters("vllm:m"), Path(sys.argv[2]))
    await model.start()
    print("up", flush=True)
    await asyncio.sleep(60)

run_in_loop(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_we_end_it_ends_too(python: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(60) != 0
    assert gone(int((tmp_path / "pid").read_text()))
    process.stdout.close()


def test_without_vllm_the_line_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for named in (sys.executable, "/nowhere/python"):
        monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", named)
        with pytest.raises(FatalModelError, match=f"set CONVBENCH_VLLM_PYTHON .*found {named}"):
            open_model("vllm:org/name")
    monkeypatch.delenv("CONVBENCH_VLLM_PYTHON")
    with pytest.raises(FatalModelError, match=r"found no vLLM, .*set CONVBENCH_VLLM_PYTHON"):
        open_model("vllm:org/name")


def test_the_default_policy_names_the_ways_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONVBENCH_MODEL", "CONVBENCH_VLLM_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FatalModelError, match=r"llama-3\.1-8b .*--api-base.*convbench demo"):
        policy_or_default()
    monkeypatch.setenv("CONVBENCH_MODEL", "openai/gpt-4o-mini")
    assert policy_or_default() == "openai/gpt-4o-mini"
    assert policy_or_default("local:x") == "local:x"


@pytest.mark.parametrize(("rank", "taken"), [(4, "8"), (9, "16"), (64, "64"), (100, "128")])
def test_an_adapter_is_served_on_its_base(
    python: Path,
    tmp_path: Path,
    asserted: Callable[[list[str], str, str], None],
    rank: int,
    taken: str,
) -> None:
    """vLLM takes some ranks only; the next larger one serves an adapter of any."""
    config = f'{{"base_model_name_or_path": "org/base", "r": {rank}}}'
    (tmp_path / "adapter_config.json").write_text(config)
    command = vllm(str(tmp_path), tmp_path).command_line(7)
    asserted(command, "--model", "org/base")
    asserted(command, "--max-lora-rank", taken)
    asserted(command, "--lora-modules", f"{tmp_path}={tmp_path}")


def test_pocket_names_the_shipped_weights(
    python: Path, tmp_path: Path, asserted: Callable[[list[str], str, str], None]
) -> None:
    from convbench.models.weights_path import weights_of

    command = vllm("pocket", tmp_path).command_line(7)
    weights = command[command.index("--model") + 1]
    assert (Path(weights) / "model.safetensors").is_file()
    assert weights_of("vllm:pocket") == weights
    asserted(command, "--served-model-name", "pocket")


@pytest.fixture
def asserted() -> Callable[[list[str], str, str], None]:
    """Checks that an option has a value."""

    def check(command: list[str], option: str, value: str) -> None:
        assert command[command.index(option) + 1] == value

    return check
