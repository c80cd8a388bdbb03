"""SmolLM2 from questions to a report, and its replies beside transformers' own: `make real`.

Needs the weights (`python -m tests.lab.smollm2`) and minutes, so the suite leaves it out.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from convbench.schema import Sampling
from tests.bench.bench import convbench
from tests.bench.real_engine import talks
from tests.lab.smollm2 import FOLDER, is_fetched

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not os.environ.get("CONVBENCH_REAL") or not is_fetched(),
        reason="minutes with a real model: make real",
    ),
]


def test_the_whole_chain_ends_in_a_report(tmp_path: Path) -> None:
    convbench(
        ["build", "demo", "--mode", "standard", "--model", f"local:{FOLDER}", "--tasks", "6",
         "--samples", "2", "--temperatures", "0.7", "--max-tokens", "12", "--run", "run",
         "--set", "task.sample.train=0.67"], tmp_path,
    )  # fmt: skip
    convbench(["judge", "--judge", "answer", "--run", "run"], tmp_path)
    convbench(
        ["train", "swift", "--run", "run", "--judge", "answer", "--out", "checkpoint", "--set",
         "launch=none", "--set", "data.unit=conversation", "--set", "fit.max_steps=2", "--set",
         "fit.batch_size=2", "--set", "fit.accumulation=1", "--set", "fit.learning_rate=1e-5",
         "--set", "fit.gradient_checkpointing=false", "--set", "weighting.center=false", "--set",
         "weighting.scale=false", "--set", "fit.save=end"], tmp_path,
    )  # fmt: skip
    convbench(["eval", "checkpoint", "--run", "run"], tmp_path)
    convbench(["report", "run", "--format", "markdown"], tmp_path)
    assert (tmp_path / "checkpoint" / "model.safetensors").is_file()
    assert len(list((tmp_path / "run" / "evals").iterdir())) == 1


def test_replies_at_temperature_0_are_those_of_transformers() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from convbench.models.local import LocalModel

    said = talks(4)

    async def ask() -> list[str]:
        model = LocalModel(f"local:{FOLDER}", device="cpu")
        sampling = Sampling(temperature=0, max_tokens=16)
        calls = [model.complete(talk, sampling, key=str(n)) for n, talk in enumerate(said)]  # type: ignore[arg-type]
        found = [reply.content for reply in await asyncio.gather(*calls)]
        await model.aclose()
        return found

    ours = asyncio.run(ask())
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForCausalLM.from_pretrained(FOLDER).eval()
    for talk, text in zip(said, ours, strict=True):
        ids = tokenizer.apply_chat_template(
            talk, add_generation_prompt=True, return_tensors="pt", return_dict=False
        )
        out = model.generate(ids, max_new_tokens=16, do_sample=False)
        assert tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True) == text
