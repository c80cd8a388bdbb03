"""What is placed where, and what each process is given of the devices."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from convbench import catalog
from convbench.errors import FatalModelError, SpecError
from convbench.learn import launch as launching
from convbench.models import open_model
from convbench.models.devices import Placement, check_apart, list_devices, placement_of
from convbench.options.shared import CallOptions, SpecOptions, devices_as_pairs, parse_devices
from convbench.rollout.calls import device_placement
from convbench.schema import Sampling
from convbench.schema.recipe import LaunchSpec, Recipe
from convbench.schema.run import Devices, Role
from tests.helpers.cards import nvidia_smi, simulate
from tests.helpers.vllm import python

__all__ = ["python"]


@pytest.fixture(autouse=True)
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, 4)


def test_devices_are_counted_among_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(one.name, one.memory) for one in list_devices()][3] == ("3", 80 * 10**9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 1")
    assert [one.name for one in list_devices()] == ["3", "1"]
    devices = parse_devices(["policy=1", "judge=[]"])
    assert placement_of(devices, "policy") == Placement(names=("1",)), (
        "our second one is its number 1"
    )
    assert placement_of(devices, "judge") == Placement(names=())
    assert placement_of(devices, "trainer") is None
    assert placement_of(parse_devices(["policy=1", "policy=null"]), "policy") is None, (
        "said no more"
    )
    with pytest.raises(SpecError, match="policy: found 2; this machine has devices 0 to 1"):
        placement_of(parse_devices(["policy=2"]), "policy")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(SpecError, match="no device that can be seen"):
        placement_of(parse_devices(["policy=0"]), "policy")


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("polcy=0", "polcy"),
        ("policy=[0,0]", "each device once"),
        ("policy=-1", "greater than or equal to 0"),
        ("share.judge=1.5", "above 0 and up to 1"),
        ("share.judge=0", "above 0 and up to 1"),
        ("share.trainer=0.5", "training uses complete devices"),
        ("vllm.judge.x=[1]", "vllm.judge.x"),
        ("policy", "expected key=value"),
    ],
)
def test_a_wrong_word_on_devices_is_one_line(pair: str, said: str) -> None:
    with pytest.raises(SpecError, match=r"^--devices") as error:
        parse_devices([pair])
    assert said in str(error.value)


def test_what_a_file_says_and_what_is_typed_are_one(tmp_path: Path) -> None:
    said = {"policy": 0, "trainer": [0, 1], "share": {"judge": 0.4},
            "vllm": {"judge": {"max-model-len": 64, "trust-remote-code": True}}}  # fmt: skip
    file = Devices.model_validate(said)
    assert parse_devices(devices_as_pairs(file)) == file
    assert devices_as_pairs(Devices()) == ()
    both = parse_devices((*devices_as_pairs(file), "policy=[1]", "vllm.judge.max-model-len=32"))
    assert both.policy == (1,)
    assert both.vllm["judge"] == {"max-model-len": 32, "trust-remote-code": True}


def test_a_server_gets_its_devices_share_and_arguments(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in refuses an argument that it does not know."""
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(python))
    devices = parse_devices(
        ["judge=[2,3]", "share.judge=0.4", "vllm.judge.enable_prefix_caching=true",
         "vllm.judge.max-model-len=64"]
    )  # fmt: skip

    async def main() -> str:
        model = open_model(
            "vllm:org/judge", log_dir=tmp_path,
            placement=placement_of(devices, "judge"),
        )  # fmt: skip
        try:
            said = [{"role": "user", "content": "hello"}]
            return str((await model.complete(said, Sampling(), key="k")).content)
        finally:
            await model.aclose()

    assert asyncio.run(main())
    assert "devices 2,3\nengines 2 of 1\n" in (tmp_path / "vllm-org-judge.log").read_text()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ, "the child's alone"


def engines(*pairs: str) -> list[tuple[str, Placement | None]]:
    """A checkpoint and its base as teacher, placed by these pairs."""
    calls = CallOptions(devices=pairs)
    roles: tuple[Role, ...] = ("policy", "teacher")
    return [(f"vllm:{role}", device_placement(calls, role)) for role in roles]


@pytest.mark.parametrize(
    "pairs",
    [
        ("policy=[0]", "teacher=[1]"),
        ("policy=[]",),
        ("share.policy=0.45", "share.teacher=0.45"),
        ("policy=[0]", "share.policy=0.45", "share.teacher=0.45"),
    ],
)
def test_two_models_at_once_have_cards_of_their_own_or_shares(pairs: tuple[str, ...]) -> None:
    check_apart(engines(*pairs))


@pytest.mark.parametrize(
    "pairs", [(), ("policy=[0]",), ("policy=[0]", "teacher=[1,0]"), ("share.teacher=0.45",)]
)
def test_two_models_at_once_on_one_card_are_refused(
    pairs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FatalModelError, match=r"run at once on this machine; .* --devices"):
        check_apart(engines(*pairs))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if not any("[" in pair for pair in pairs):
        check_apart(engines(*pairs))


def test_a_teacher_runs_on_the_policys_devices() -> None:
    both = engines("policy=[2]", "share.teacher=0.3")
    assert both[1][1] == Placement(("2",), 0.3)
    one = [(ref.replace("teacher", "policy"), placement) for ref, placement in engines()]
    check_apart(one)


def test_a_local_model_gets_the_first_of_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which counts the cards that it sees."""
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,0")
    found = [Placement(names).torch_device for names in (None, (), ("3",), ("0", "3"))]
    assert found == [None, "cpu", "cuda:0", "cuda:1"]
    with pytest.raises(FatalModelError, match="expected vllm:pocket, or none"):
        open_model("local:pocket", placement=Placement(vllm={"max-model-len": 64}))


@pytest.mark.parametrize(
    ("launch", "devices", "seen"),
    [("ddp", "[1,2]", "1,2"), ("none", "[1,2]", "1"), ("none", "[]", "")],
)
def test_training_gets_its_devices_and_a_port_of_its_own(
    launch: str, devices: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = [sys.executable, "-c", "import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])"]
    monkeypatch.setattr(launching, "guard_command", lambda command: show)
    calls = CallOptions(devices=(f"trainer={devices}",))
    recipe = catalog.load_spec(Recipe, "recipes", "swift")
    spec = catalog.load_spec(LaunchSpec, "launch", launch)
    context = launching.Context("pocket", None, calls, SpecOptions())
    launching.start_program("weighted_sft", tmp_path, recipe, context, spec)
    assert (tmp_path / "train.log").read_text() == f"sees {seen}\n"
    if launch == "ddp":
        ports = yaml.safe_load((tmp_path / "accelerate.yaml").read_text())
        assert ports["main_process_port"] > 0


@pytest.mark.parametrize(("share", "bytes_"), [(None, 40), (0.5, 32), (0.05, -4)])
def test_a_share_of_a_device_is_weights_and_cache_together(
    share: float | None, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of 100 bytes, 50 of them free, 10 taken by the weights."""
    torch = pytest.importorskip("torch")
    from convbench.models.local_engine import cache_memory

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (50, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 10)
    model = SimpleNamespace(device=torch.device("cuda:0"))
    assert cache_memory(model, share) == bytes_


def test_list_devices_asks_once_a_process(tmp_path: Path) -> None:
    code = (
        "from convbench.models.devices import list_devices;"
        "print([[one.memory for one in list_devices()] for _ in range(3)])"
    )
    env = {**os.environ, **nvidia_smi(tmp_path, 2)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{[[81920 << 20] * 2] * 3}\n"
    assert (tmp_path / "asked").read_text() == "once\n"
