"""`convbench plan`: arithmetic over a config.json, an exit code, and nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.runs import write_run
from tests.helpers.shapes import QWEN_7B, write_config
from tests.helpers.typed import Typist

ONE = ("--cards", "1x80")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A folder with Llama-3.1-8B's config.json alone."""
    return write_config(tmp_path / "llama")


def test_a_plan_that_fits(typist: Typist, llama: Path, tmp_path: Path) -> None:
    words = ("plan", "swift", "--model", "llama", *ONE, "--host", "256")
    plan = typist.json(*words)["result"]
    assert (plan["fits"], plan["launch"], plan["offloaded"]) == (True, "zero2", ["optimizer"])
    assert plan["tokens"] == 2048
    assert "assumed" in plan["lengths"]
    assert list(plan["trainings"]) == ["swift"]
    training = plan["trainings"]["swift"]
    parts = ("weights", "gradients", "optimizer", "activations", "logits", "reference", "adapters")
    total = sum(training[part] for part in (*parts, "margin", "context"))
    assert total == pytest.approx(training["card"], abs=0.01)
    assert plan["card_needed_gb"] == training["card"] < 80
    assert 128 < plan["host_needed_gb"] < 256
    assert plan["hours"] > 0
    assert plan["throughput"].startswith("stated: ")
    assert plan["usd"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama"]

    shown = typist(*words, "--price", "2.5")
    assert shown.code == 0
    for text in (
        "optimiser",
        "activations",
        "placed",
        "does not fit: none on 1 card",
        "2,048 tokens (assumed: neither --run nor --tokens)",
        "dollars",
    ):
        assert text in shown.out
    priced = typist.json(*words, "--price", "2.5")["result"]
    assert priced["usd"] == pytest.approx(2.5 * plan["hours"])


def test_where_nothing_fits_the_exit_code_is_1_and_nothing_is_written(
    typist: Typist, llama: Path, tmp_path: Path
) -> None:
    words = ("plan", "swift", "--model", "llama", *ONE, "--host", "64")
    shown = typist(*words)
    assert shown.code == 1
    assert "nothing fits; the least is zero2 on 1 card, optimiser in host memory" in shown.out
    assert "missing: 67 GB of host memory" in shown.out
    plan = typist.json(*words)["result"]
    assert not plan["fits"]
    assert len(plan["reasons"]) >= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama"]


def test_named_launches_settings_and_lengths(typist: Typist, llama: Path) -> None:
    base = ("plan", "swift", "--model", "llama", "--host", "256")
    four = typist.json(
        *base,
        "--cards",
        "4x80",
        "--launch",
        "zero3",
        "--set",
        "launch.num_processes=4",
        "--tokens",
        "8192",
    )["result"]
    assert (four["launch"], four["processes"], four["tokens"]) == ("zero3", 4, 8192)
    adapter = typist.json(*base, *ONE, "--set", "lora.r=16")["result"]
    assert (adapter["launch"], adapter["trainings"]["swift"]["adapters"] > 0) == ("none", True)
    short = typist.json(*base, *ONE, "--tokens", "100000", "--set", "data.max_length=512")
    assert short["result"]["tokens"] == 512


def test_sweet_and_the_readings_of_a_student(typist: Typist, llama: Path) -> None:
    sweet = typist.json(
        "plan",
        "sweet",
        "--model",
        "llama",
        "--cards",
        "8x80",
        "--host",
        "1000",
        "--tokens",
        "16384",
    )["result"]
    assert sweet["fits"]
    assert list(sweet["trainings"]) == ["critic", "sweet", "ranking"]
    shown = typist("plan", "star-gate-d", "--model", "llama", *ONE, "--host", "256")
    assert "at least 128 GB" in shown.err
    few = typist("plan", "star-gate-d-first8", "--model", "llama", *ONE, "--host", "256")
    assert "none on 1 card" in few.out


def test_a_run_says_how_long_its_rows_are(typist: Typist, tmp_path: Path) -> None:
    write_config(tmp_path / "qwen", QWEN_7B)
    run = write_run(tmp_path / "run", count=8)
    plan = typist.json("plan", "refit", "run", "--model", "qwen", *ONE, "--host", "256")["result"]
    assert plan["lengths"] == "recorded in run"
    assert 0 < plan["tokens"] < 2048
    assert 0 < plan["rows"] < 100

    folder = run.checkpoints_folder / "refit"
    folder.mkdir(parents=True)
    record = {
        "recipe": "refit",
        "base": "qwen",
        "processes": plan["processes"],
        "unit": "turn",
        "log": [{"loss": 1.0}, {"train_samples_per_second": 2.0}],
    }
    (folder / "training.json").write_text(json.dumps(record))
    (folder / "training.json").write_text(json.dumps({**record, "unit": "conversation"}))
    other = typist.json("plan", "refit", "run", "--model", "qwen", *ONE, "--host", "256")
    assert other["result"]["throughput"].startswith("stated: ")
    (folder / "training.json").write_text(json.dumps(record))
    measured = typist.json("plan", "refit", "run", "--model", "qwen", *ONE, "--host", "256")
    assert measured["result"]["throughput"] == "measured: 2 rows a second by refit"
    assert measured["result"]["hours"] == pytest.approx(plan["rows"] * 4 / 2 / 3600)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--cards", "80"), "found '80'; expected COUNTxGB, e.g. 4x80"),
        (("--model", "nowhere"), "found no config.json of a known form"),
        ((), "no model; expected --model REF"),
        (("--model", "llama", "--launch", "zero9"), "zero9"),
    ],
)
def test_what_cannot_be_planned_is_one_clear_line(
    typist: Typist, llama: Path, words: tuple[str, ...], line: str
) -> None:
    done = typist("plan", "swift", *words)
    assert done.code in (1, 2)
    assert line in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err


def test_a_plan_loads_no_torch_and_no_transformers(llama: Path) -> None:
    code = (
        "import sys\n"
        "from convbench.__main__ import main\n"
        "sys.argv = ['convbench', 'plan', 'sweet', '--model', 'llama', '--cards', '8x80']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('loaded', [n for n in ('torch', 'transformers', 'trl') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=llama.parent, capture_output=True, text=True, check=False
    )
    assert "GB at the peak" in done.stdout
    assert "loaded []" in done.stdout
