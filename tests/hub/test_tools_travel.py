"""Calls of tools, results and reasoning to the Hub and back; as `datasets` and TRL read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.formats.export import export_conversations
from convbench.store import Run
from tests.helpers import stages, tiny
from tests.helpers.hub_client import Client
from tests.helpers.published import RECORDS, fetch, load, push
from tests.helpers.tokenizers import tokenizer
from tests.support.chat.plan import Plan
from tests.support.chat.shopper import shopper
from tests.support.provider import Provider

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Four dialogues with a model that thinks before it calls, and wants to have it back."""
    (tmp_path / "mine").mkdir()
    models = {"models": {"thinker": {"ref": "openai/v4", "replay": "always"}}}
    (tmp_path / "mine" / "models.yaml").write_text(json.dumps(models))
    with Provider(Plan(thinks="deepseek-v4"), reply=shopper) as server:
        stages.build(
            "market",
            model="thinker",
            tasks=4,
            run=tmp_path / "run",
            mode="standard",
            samples=1,
            temperatures=(0.7,),
            specs=(tmp_path / "mine",),
            set=("task.sample.train=0.75",),
            api_base=server.api_base,
        )
        assert server.stats.status["400"] == 0
    return Run.open(tmp_path / "run")


def test_they_come_back_bit_by_bit_and_load(run: Run, hub: Client, tmp_path: Path) -> None:
    hub(push, run.path, "alice/market")
    back = Run.open(Path(hub(fetch, "alice/market", tmp_path / "back")))
    for name in RECORDS[:2]:
        assert (back.path / name).read_bytes() == (run.path / name).read_bytes()
    talks = list(back.conversations())
    assert all(one.reasoning for talk in talks for one in talk.turns[-1].rounds)
    rows = hub(load, "alice/market")
    for row in rows["train"]:
        roles = [message["role"] for message in row["messages"]]
        assert roles[-6:] == ["assistant", "tool", "tool", "assistant", "tool", "assistant"]
        calling = row["messages"][-6]
        first, second = calling["tool_calls"]
        assert json.loads(first["function"]["arguments"]).keys() == {"item"}
        assert row["messages"][-5]["tool_call_id"] == first["id"]
        assert row["messages"][-4]["tool_call_id"] == second["id"]
        assert "Let me see. Case" in calling["reasoning_content"]
        assert [tool["function"]["name"] for tool in json.loads(row["tools"])] == [
            "lookup", "calculate",
        ]  # fmt: skip


def test_trls_own_trainer_reads_the_same_tokens(run: Run, tmp_path: Path) -> None:
    """Arguments of two tools differ; no key of one may come into the other's call as null."""
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    done = export_conversations(
        run, "trl", tmp_path / "trl", [(talk, None, 1) for talk in run.conversations()]
    )
    data = load_dataset(
        "json", data_files=str(done.files["train"]), split="train", cache_dir=str(tmp_path / "c")
    )
    words = tokenizer("qwen2_5")
    model = AutoModelForCausalLM.from_pretrained(tiny.save_model(tmp_path / "model"))
    config = SFTConfig(
        str(tmp_path / "out"), max_steps=1, use_cpu=True, report_to="none", save_strategy="no",
        bf16=False, gradient_checkpointing=False, disable_tqdm=True, max_length=None,
    )  # fmt: skip
    trainer = SFTTrainer(model, config, train_dataset=data, processing_class=words)
    talks = [talk for talk in run.conversations() if run.examples[talk.example_id].split == "train"]
    assert len(talks) == 3
    for row, talk in zip(trainer.train_dataset, talks, strict=True):
        theirs = words.decode(row["input_ids"])
        assert "null" not in theirs
        assert "Look up today's price" in theirs, "the tools are told"
        for one in talk.turns[-1].rounds:
            for call, result in zip(one.calls, one.results, strict=True):
                told = {"name": call.name, "arguments": json.loads(call.arguments)}
                assert f"<tool_call>\n{json.dumps(told)}\n</tool_call>" in theirs
                assert result.content in theirs
