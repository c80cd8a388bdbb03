"""Pairs of replies that call tools: told apart by their calls, under what both saw, and exported as
TRL's own DPOTrainer reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.formats.export import export_pairs
from convbench.learn import pairs
from convbench.learn.export import export_paired
from convbench.learn.pairs import Pairs, PolicyReply
from convbench.learn.rows import pair_rows
from convbench.learn.select import Selection, select
from convbench.learn.sweet.candidates import iter_histories, reply_key, reply_of
from convbench.learn.sweet.pairs import Candidate, SweetArgs, policy_pairs
from convbench.learn.tokens import ChatTokens
from convbench.rollout.candidates import CandidatePosition as Wanted
from convbench.rollout.candidates import candidate_row
from convbench.rollout.plan import call_key, sample_candidate, seen_before
from convbench.schema import (
    Completion,
    Conversation,
    Message,
    ProtocolSpec,
    Sampling,
    ToolCall,
    ToolResult,
    ToolRound,
)
from convbench.schema.recipe import Data, Recipe
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.tokenizers import TOOL, tokenizer

PROTOCOL = tiny.PROTOCOL.model_dump(mode="json")
PROTOCOL["speakers"]["student"] |= {"tools": [TOOL.model_dump(mode="json")]}
TOOLED = ProtocolSpec.model_validate(PROTOCOL)


def called(mark: str, *items: str, said: str = "") -> ToolRound:
    calls = tuple(
        ToolCall(id=f"{mark}{i}", name="lookup", arguments=json.dumps({"item": item}))
        for i, item in enumerate(items)
    )
    results = tuple(
        ToolResult(id=c.id, name="lookup", content=f"RESULT {item}{said}")
        for c, item in zip(calls, items, strict=True)
    )
    return ToolRound(calls=calls, results=results)


def talk(sample: int, end: str, *rounds: ToolRound, **more: Any) -> Conversation:
    found = tiny.conversation("q0", sample, [end], **more)
    turns = (found.turns[0], found.turns[1].model_copy(update={"rounds": rounds}))
    return found.model_copy(update={"turns": turns})


def tooled(folder: Path, *judged: tuple[Conversation, float]) -> Run:
    """A judged run whose policy has a tool."""
    found = [(item, [tiny.verdict(item, reward)]) for item, reward in judged]
    run = tiny.make_run(folder, found, [tiny.example("q0")])
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**manifest, "protocol": PROTOCOL}))
    return Run.open(run.path)


def two(folder: Path, winner: tuple[Any, ...], loser: tuple[Any, ...]) -> Selection:
    return select(tooled(folder, (talk(0, *winner), 1.0), (talk(1, *loser), 0.0)), Data())


def contents(messages: tuple[Message, ...]) -> list[str]:
    return [str(m["content"]) for m in messages if m["role"] != "system"]


def test_step_dpo_pairs_reply_by_reply(tmp_path: Path) -> None:
    """Calls of empty text are told apart; results are context, never what is learnt."""
    won = ("WON", called("a", "eggs"), called("b", "figs"))
    lost = ("LOST", called("c", "eggs"), called("d", "nuts"))
    found = pairs.logged_turns(two(tmp_path / "run", won, lost))
    second, last = found.items
    assert found.skipped == {"pairs of the same text": 1}, "the same call under another id"
    assert [json.loads(r.calls[0].arguments)["item"] for r in (second.chosen, second.rejected)] == [
        "figs", "nuts",
    ]  # fmt: skip
    assert contents(second.messages) == ["q0 ask 0", "", "RESULT eggs"]
    assert (last.chosen.text, last.rejected.text) == ("WON", "LOST")
    assert contents(last.messages)[-1] == "RESULT figs", "the winner's history"

    chat = ChatTokens(tokenizer("qwen3"), options={"tools": [TOOL.wire]})
    row, other = pair_rows(found, chat).rows
    prompt, good, bad = (chat.tokenizer.decode(ids) for ids in row.trainer_fields().values())
    assert "Looks up." in prompt, "the tools are offered as they were served"
    assert "RESULT eggs" in prompt
    assert '"figs"' in good
    assert '"nuts"' in bad
    assert "RESULT" not in good + bad
    assert "RESULT figs" in chat.tokenizer.decode(other.prompt_ids)


def test_final_replies_part_where_what_they_saw_is_equal(tmp_path: Path) -> None:
    won = ("WON", called("a", "eggs"))
    both = two(tmp_path / "dpo", won, ("GUESS",))
    with pytest.raises(TrainError, match=r"other tools.*pairing.protocol=talk.*step-dpo"):
        pairs.final_replies(both, catalog.load_spec(ProtocolSpec, "protocols", "direct"))
    steps = (tiny.PROTOCOL.all_steps()[0], tiny.PROTOCOL.all_steps()[1])
    (pair,) = pairs.final_replies(both, TOOLED.model_copy(update={"steps": steps})).items
    assert pair.chosen.calls
    assert pair.rejected.text == "GUESS"


class Caller:
    """Answers with a call, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sampling]] = []

    async def complete(
        self, model: object, messages: list[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        self.asked.append((key, sampling))
        call = ToolCall(id="x", name="lookup", arguments='{"item": "kale"}')
        return Completion("", tool_calls=(call,))


async def candidates_of(selection: Selection, caller: Caller) -> list[dict[str, Any]]:
    rows = []
    for item, turn, rounds in iter_histories(selection, SweetArgs(held_out=0)):
        reply = await sample_candidate(
            selection.run.manifest, item.conversation, turn, 0, object(), caller,  # type: ignore[arg-type]
            temperature=1.0, rounds=rounds,
        )  # fmt: skip
        at = Wanted(conversation_id=item.conversation_id, turn=turn, rounds=rounds, candidate=0)
        rows.append(candidate_row(at, reply))
    return rows


def test_sweet_samples_ranks_and_pairs_at_every_reply(tmp_path: Path) -> None:
    import asyncio

    won, lost = ("WON", called("a", "eggs")), ("LOST", called("b", "nuts"))
    selection = two(tmp_path / "run", won, lost)
    caller = Caller()
    rows = json.loads(json.dumps(asyncio.run(candidates_of(selection, caller))))
    assert [reply_key(row)[1:] for row in rows] == [(1, 0), (1, 1), (1, 1)], "equal histories once"
    assert [key for key, _ in caller.asked] == ["q0/0~1.0@1", "q0/0~1.0@1.1", "q0/1~1.0@1.1"]
    assert all(sampling.tools == (TOOL.wire,) for _, sampling in caller.asked)
    assert reply_of(rows[0]).calls[0].arguments == '{"item": "kale"}'
    talk = selection.logged[0].conversation
    assert call_key(talk, 1, 0) == "q0/0~1.0@1", "as it was without tools"
    turns = {
        reply_key(row): [
            Candidate(reply_of(row), 2.0),
            Candidate(PolicyReply("", False, calls=talk.turns[1].rounds[0].calls), 1.0),
        ]
        for row in rows[:2]
    }
    first, second, *_ = policy_pairs(selection, turns, SweetArgs(pairs=1), 0).items
    assert first.chosen.calls
    assert first.rejected.calls
    assert list(second.messages) == seen_before(TOOLED, talk, 1, 1)


@pytest.fixture
def exported(tmp_path: Path) -> Pairs:
    won = ("WON", called("a", "eggs"))
    return pairs.logged_turns(two(tmp_path / "run", won, ("LOST", called("b", "nuts"))))


def test_trls_own_trainer_reads_exported_pairs_of_calls(exported: Pairs, tmp_path: Path) -> None:
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    recipe = catalog.load_spec(Recipe, "recipes", "step-dpo")
    done = export_paired(exported, "trl", tmp_path / "trl", recipe, None)
    data = load_dataset(
        "json", data_files=str(done.files["train"]), split="train", cache_dir=str(tmp_path / "c")
    )
    folder = tiny.save_model(tmp_path / "model")
    words = tokenizer("qwen2_5")
    config = DPOConfig(
        str(tmp_path / "out"), max_steps=1, use_cpu=True, per_device_train_batch_size=2,
        report_to="none", save_strategy="no", bf16=False, gradient_checkpointing=False,
        disable_tqdm=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(folder)
    trainer = DPOTrainer(model, args=config, train_dataset=data, processing_class=words)
    ours = pair_rows(exported, ChatTokens(words, options={"tools": [TOOL.wire]})).rows
    # The line whose messages have most keys is written first: both pairs, in either order.
    theirs = sorted(trainer.train_dataset, key=lambda row: len(row["prompt_ids"]))
    mine_first = sorted(ours, key=lambda row: len(row.prompt_ids))
    for row, mine in zip(theirs, mine_first, strict=True):
        assert words.decode(row["prompt_ids"]) == words.decode(mine.prompt_ids)
        assert words.decode(row["chosen_ids"]).strip() == words.decode(mine.chosen_ids).strip()
        assert words.decode(row["rejected_ids"]).strip() == words.decode(mine.rejected_ids).strip()
    trainer.train()


def test_pairs_as_openai_and_ms_swift_take_them(exported: Pairs, tmp_path: Path) -> None:
    recipe = catalog.load_spec(Recipe, "recipes", "step-dpo")

    def rows(target: Any) -> list[dict[str, Any]]:
        done = export_paired(exported, target, tmp_path / target, recipe, None)
        return [json.loads(line) for line in done.files["train"].read_text().splitlines()]

    first, last = rows("openai")
    assert first["input"]["tools"] == [TOOL.wire]
    call = first["preferred_output"][0]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"item": "eggs"}
    assert last["preferred_output"] == [{"role": "assistant", "content": "WON"}]
    assert last["input"]["messages"][-1]["role"] == "tool"
    first, last = rows("ms-swift")
    assert [m["role"] for m in first["messages"]][-1] == "tool_call"
    assert json.loads(first["rejected_messages"][-1]["content"])["arguments"] == {"item": "nuts"}
    assert first["tools"] == first["rejected_tools"] == json.dumps([TOOL.wire])
    assert last["rejected_response"] == "LOST"
    assert [m["role"] for m in last["messages"]][-3:] == ["tool_call", "tool_response", "assistant"]
    assert "tools" not in json.loads(
        export_pairs("trl", tmp_path / "none", [
            ([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"},
             {"role": "assistant", "content": "c"})
        ]).files["train"].read_text()
    )  # fmt: skip
