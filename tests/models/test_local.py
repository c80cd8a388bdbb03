"""Weights in process: exact, batched, with a random stream for each call."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import FatalModelError
from convbench.models.local import LocalModel
from convbench.models.weights_path import check_weights, content_hash
from convbench.schema import Completion, ImagePart, Message, Sampling
from tests.helpers import tiny_words as tiny
from tests.support.later import later, needs
from tests.support.one_line import one_line

needs("torch")
torch = later("torch")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("tiny"))


def words(number: int, length: int) -> str:
    return " ".join(random.Random(number).choices(tiny.WORDS, k=length))


def prompt(number: int) -> list[Message]:
    """A prompt of a length of its own; all share a system message."""
    return [
        {"role": "system", "content": words(-1, 12)},
        {"role": "user", "content": words(number, 3 + number % 17)},
    ]


async def with_model(path: Path | str, work: Callable[[LocalModel], Awaitable[Any]]) -> Any:
    model = LocalModel(f"local:{path}", device="cpu")
    try:
        return await work(model)
    finally:
        await model.aclose()


def run(path: Path | str, work: Callable[[LocalModel], Awaitable[Any]]) -> Any:
    return asyncio.run(with_model(path, work))


async def ask_all(
    model: LocalModel, numbers: list[int], sampling: Sampling
) -> dict[int, Completion]:
    replies = await asyncio.gather(
        *(model.complete(prompt(n), sampling, key=f"q{n}/0") for n in numbers)
    )
    return dict(zip(numbers, replies, strict=True))


def generated(path: Path, messages: list[Message], most: int) -> str:
    """What transformers' own greedy generation says."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(path),
        AutoTokenizer.from_pretrained(path),
    )
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    out = model.generate(ids, max_new_tokens=most, do_sample=False, pad_token_id=2)
    return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))


def test_greedy_is_what_transformers_generates(weights: Path) -> None:
    sampling = Sampling(temperature=0, max_tokens=24)
    replies = run(weights, lambda model: ask_all(model, list(range(40)), sampling))
    for number in range(0, 40, 4):
        assert replies[number].content == generated(weights, prompt(number), 24)


def test_three_turns_reuse_the_cache_and_say_what_transformers_says(weights: Path) -> None:
    async def converse(model: LocalModel, number: int) -> list[Message]:
        messages = prompt(number)
        for turn in range(3):
            sampling = Sampling(temperature=0, max_tokens=9)
            reply = await model.complete(messages, sampling, key=f"q{number}/{turn}")
            messages = [
                *messages,
                {"role": "assistant", "content": reply.content},
                {"role": "user", "content": words(number * 7 + turn, 5)},
            ]
        return messages

    async def work(model: LocalModel) -> Any:
        return await asyncio.gather(*(converse(model, number) for number in range(30)))

    talks = run(weights, work)
    for messages in talks[::6]:
        for end in (2, 4, 6):
            assert messages[end]["content"] == generated(weights, messages[:end], 9)


def test_neither_order_nor_company_changes_a_sampled_reply(weights: Path) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=30, seed=3)
    numbers = list(range(50))
    there = run(weights, lambda model: ask_all(model, numbers, sampling))
    back = run(weights, lambda model: ask_all(model, numbers[::-1], sampling))
    few = run(weights, lambda model: ask_all(model, [7, 8], sampling))
    assert there == back
    assert few == {7: there[7], 8: there[8]}
    assert len({reply.content for reply in there.values()}) > 45


def test_seed_key_and_temperature_change_a_sampled_reply(weights: Path) -> None:
    async def work(model: LocalModel) -> list[Completion]:
        hot = Sampling(temperature=1.0, max_tokens=30, seed=1)
        return [
            await model.complete(prompt(1), hot, key="a"),
            await model.complete(prompt(1), hot, key="a"),
            await model.complete(prompt(1), hot, key="b"),
            await model.complete(prompt(1), hot.model_copy(update={"seed": 2}), key="a"),
        ]

    first, again, key, seed = run(weights, work)
    assert first == again
    assert len({first.content, key.content, seed.content}) == 3


def test_sampling_follows_the_models_own_chances(weights: Path) -> None:
    """The first token's frequencies over many keys against softmax(logits / 0.7)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sampling = Sampling(temperature=0.7, max_tokens=1)

    async def work(model: LocalModel) -> list[Completion]:
        return await asyncio.gather(
            *(model.complete(prompt(2), sampling, key=f"k{i}") for i in range(1500))
        )

    said = [reply.content for reply in run(weights, work)]
    tokenizer = AutoTokenizer.from_pretrained(weights)
    ids = tokenizer.apply_chat_template(
        prompt(2), add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(weights)(ids).logits[0, -1]
    chances = torch.softmax(logits / 0.7, -1)
    likely = chances.argmax()
    share = said.count(tokenizer.decode([likely])) / len(said)
    p = float(chances[likely])
    assert abs(share - p) < 4 * (p * (1 - p) / len(said)) ** 0.5


def test_top_p_keeps_to_the_nucleus(weights: Path) -> None:
    sampling = Sampling(temperature=2.0, top_p=1e-6, max_tokens=12)
    greedy = Sampling(temperature=0, max_tokens=12)
    nucleus = run(weights, lambda model: ask_all(model, [1, 2, 3], sampling))
    best = run(weights, lambda model: ask_all(model, [1, 2, 3], greedy))
    assert nucleus == best


def test_a_reply_ends_at_the_end_of_turn_or_is_marked_as_cut(weights: Path) -> None:
    sampling = Sampling(temperature=1.5, max_tokens=40, seed=1)
    replies = run(weights, lambda model: ask_all(model, list(range(40)), sampling)).values()
    kinds = {reply.finish_reason for reply in replies}
    assert kinds == {"stop", "length"}
    for reply in replies:
        cut = reply.finish_reason == "length"
        assert reply.completion_tokens == 40 if cut else reply.completion_tokens <= 40
        assert "<end>" not in reply.content
        assert reply.cost_usd == 0.0


def test_more_calls_than_slots_and_longer_than_the_first_columns(tmp_path: Path) -> None:
    from convbench.models.local_engine import ROWS

    path = tiny.save(tmp_path, window=4096)
    sampling = Sampling(temperature=0, max_tokens=8)
    long: list[Message] = [{"role": "user", "content": words(1, 1500)}]

    async def work(model: LocalModel) -> Any:
        many = ask_all(model, list(range(ROWS * 2)), sampling)
        return await asyncio.gather(many, model.complete(long, sampling, key="long"))

    replies, reply = run(path, work)
    assert len(replies) == ROWS * 2
    assert reply.content == generated(path, long, 8)
    assert replies[100].content == generated(path, prompt(100), 8)


def test_one_that_waits_for_its_next_turn_keeps_what_was_read(weights: Path) -> None:
    """Thirty conversations of three turns that come back one by one read only what is new: tokens
    of prompts that went through the model, counted."""
    read, least = run(weights, talked)
    # a reply is other tokens where it is read again: this tokenizer fuses its words
    assert 0 < read <= least + 30 * 2 * 4


async def talked(model: LocalModel) -> tuple[int, int]:
    """Return the tokens of prompts that went through the model, and those of the last prompts."""
    await model.start()
    assert model._engine is not None
    read: list[int] = []
    least: list[int] = []

    def note(_: Any, args: Any, passed: Any) -> None:
        read.append(passed["input_ids"].shape[1])

    model._engine.model.register_forward_pre_hook(note, with_kwargs=True)

    async def converse(number: int) -> None:
        messages = prompt(number)
        sampling = Sampling(temperature=0, max_tokens=4)
        for turn in range(3):
            reply = await model.complete(messages, sampling, key=f"q{number}/{turn}")
            messages += [{"role": "assistant", "content": reply.content},
                         {"role": "user", "content": words(turn, 5)}]  # fmt: skip
            await asyncio.sleep(number / 500)
        least.append(reply.prompt_tokens or 0)

    await asyncio.gather(*(converse(number) for number in range(30)))
    return sum(tokens for tokens in read if tokens > 1), sum(least)


def test_cancelled_calls_leave_and_others_go_on(weights: Path) -> None:
    async def work(model: LocalModel) -> Completion:
        sampling = Sampling(temperature=0, max_tokens=300)
        lost = [
            asyncio.ensure_future(model.complete(prompt(n), sampling, key=str(n)))
            for n in range(20)
        ]
        await asyncio.sleep(0.3)
        for task in lost:
            task.cancel()
        short = Sampling(temperature=0, max_tokens=5)
        return await asyncio.wait_for(model.complete(prompt(3), short, key="x"), 120)

    assert run(weights, work).content == generated(weights, prompt(3), 5)


def test_a_pass_that_fails_fails_its_calls_and_no_later_one(weights: Path) -> None:
    """As for lack of memory on a card."""

    async def work(model: LocalModel) -> Completion:
        await model.start()
        assert model._engine is not None
        passes: list[int] = []

        def fail(*_: Any) -> None:
            passes.append(1)
            if len(passes) in (1, 4):
                raise RuntimeError("out of memory")

        failing = model._engine.model.register_forward_pre_hook(fail)
        short = Sampling(temperature=0, max_tokens=5)
        calls = (model.complete(prompt(n), short, key=str(n)) for n in range(3))
        ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 120)
        assert "out of memory" in [str(end) for end in ends]
        failing.remove()
        return await asyncio.wait_for(model.complete(prompt(3), short, key="x"), 120)

    assert run(weights, work).content == generated(weights, prompt(3), 5)


def test_too_long_a_conversation_is_its_own_failure(weights: Path) -> None:
    async def work(model: LocalModel) -> None:
        await model.complete([{"role": "user", "content": words(1, 600)}], Sampling(), key="k")

    with pytest.raises(
        FatalModelError, match=r"has 60. tokens; the model's context is 512"
    ) as error:
        run(weights, work)
    assert not error.value.stops_run


def test_a_reply_is_cut_where_the_context_ends(weights: Path) -> None:
    async def work(model: LocalModel) -> Completion:
        messages: list[Message] = [{"role": "user", "content": words(1, 500)}]
        return await model.complete(messages, Sampling(temperature=0), key="k")

    reply = run(weights, work)
    assert reply.prompt_tokens + reply.completion_tokens <= 512


def test_an_adapter_folder_is_base_and_adapter(weights: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = tiny.save_adapter(tmp_path / "lora", weights)
    whole = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(weights), folder)
    merged = whole.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (weights / name).exists():
            (tmp_path / "merged" / name).write_bytes((weights / name).read_bytes())
    sampling = Sampling(temperature=0, max_tokens=12)
    adapted = run(folder, lambda model: ask_all(model, [1, 2], sampling))
    plain = run(weights, lambda model: ask_all(model, [1, 2], sampling))
    same = run(tmp_path / "merged", lambda model: ask_all(model, [1, 2], sampling))
    assert {n: r.content for n, r in adapted.items()} == {n: r.content for n, r in same.items()}
    assert adapted[1].content != plain[1].content


def test_a_hub_id_is_loaded_through_the_hub_s_cache(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the network."""
    repo, commit = tmp_path / "models--org--tiny", "0" * 40
    shutil.copytree(weights, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sampling = Sampling(temperature=0, max_tokens=8)
    said = run("org/tiny", lambda model: ask_all(model, [1], sampling))
    assert said[1].content == generated(weights, prompt(1), 8)
    assert content_hash("org/tiny") == commit


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(FatalModelError, match=r"found no config\.json"):
        LocalModel(f"local:{tmp_path}/none/here")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FatalModelError, match="cannot be loaded"):
        run(tmp_path, lambda model: model.start())
    assert check_weights("org/name") == "org/name"


def test_an_image_is_refused_in_one_line(weights: Path) -> None:
    async def work(model: LocalModel) -> None:
        messages: list[Message] = [{"role": "user", "content": (ImagePart(file="a.png"),)}]
        await model.complete(messages, Sampling(), key="k")

    with pytest.raises(FatalModelError, match="does not support images") as caught:
        run(weights, work)
    one_line(caught.value)


def test_the_end_waits_for_the_pass_that_runs(weights: Path) -> None:
    """However long: an interpreter that ends while torch computes in a thread aborts."""

    async def work() -> None:
        model = LocalModel(f"local:{weights}", device="cpu")
        await model.start()
        assert model._engine is not None
        thread, end = model._engine._thread, threading.Event()
        began = threading.Event()

        def long(*_: Any) -> None:
            began.set()
            end.wait(60)

        model._engine.model.register_forward_pre_hook(long)
        asking = asyncio.ensure_future(model.complete(prompt(1), Sampling(max_tokens=4), key="q/0"))
        await asyncio.to_thread(began.wait, 60)
        threading.Timer(3.3, end.set).start()  # longer than the 3 s that weights have to load
        await model.aclose()
        assert end.is_set()
        assert not thread.is_alive()
        asking.cancel()

    asyncio.run(work())


def test_models_of_several_threads_load_at_once() -> None:
    """Each in an event loop of its own, as the cells of an experiment have."""
    together = threading.Barrier(4)

    async def load(model: LocalModel) -> None:
        together.wait(60)
        await model.start()

    with ThreadPoolExecutor(4) as threads:
        for _ in range(8):
            list(threads.map(lambda _: run("pocket", load), range(4)))
