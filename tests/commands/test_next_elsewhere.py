"""Lines printed to be typed next that need a Hub: each is run to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.cli import convbench
from tests.support.exhaustive import exhaustive
from tests.support.hub_server import HubServer
from tests.support.next_lines import next_words
from tests.support.next_runs import run_to_end

BUILD = "build demo --samples 2 --temperatures 0.5 --run runs/one --model"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("model", "trains"), [exhaustive(("scripted:policy", False)), ("local:pocket", True)]
)
def test_what_pull_prints(model: str, trains: bool, tmp_path: Path) -> None:
    """A set says where its policy's weights lie, or a base model is to be named."""
    with HubServer({"hf_alice": "alice"}) as hub:
        hf = {**hub.client_env(tmp_path / "hf"), "HF_TOKEN": "hf_alice"}
        words = BUILD.replace("demo", "pocket").split()  # the embedded policy knows this world
        run_to_end([*words, model, "--tasks", "12"], tmp_path)
        run_to_end(["judge", "--judge", "rules"], tmp_path)
        sent = convbench(tmp_path, "publish", "alice/set", "--public", extra=hf)
        assert sent.code == 0, sent.err
        done = run_to_end(["pull", "alice/set", "--run", "back"], tmp_path, hf)
    lines = next_words(done.out)
    assert [words[0] for words in lines] == ["query", *["train"] * trains]
    assert ("train swift --model MODEL --run back" in done.out) is not trains
    for words in lines:
        few = ["--dry-run"] if words[0] == "train" else []
        run_to_end([*words, *few], tmp_path)
