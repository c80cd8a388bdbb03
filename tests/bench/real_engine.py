"""One engine over the same three-turn conversations, in a process of its own: what it took.

python -m tests.bench.real_engine ENGINE WEIGHTS COUNT MAX_TOKENS FIRST, with ENGINE `convbench`,
`static-16`, `static-50` (transformers.generate), `llama-cpp` or `vllm`. Writes a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.bench.bench import high_water

SYSTEM = (
    "You are a helpful, accurate assistant who is an expert at answering multiple-choice "
    "questions. You MUST first state your final answer in the format: 'The answer is X' where X "
    "is A, B, C, or D. After the final answer clearly explain your reasoning."
)
LATER = (
    "That's a good start. Can you explain more about why some options might be incorrect? Also, "
    "are there any key concepts or facts that are relevant to answering this question?",
    "Thank you for your detailed explanations. What is your final answer (A, B, C, or D)? You "
    "MUST first state your final answer in the format: 'The answer is X' where X is A, B, C, or "
    "D. After the final answer clearly explain your reasoning.",
)
Talk = list[dict[str, Any]]
AT_ONCE = 50
"""Conversations under way in the local engine, as many as in the largest static batch."""
Took = tuple[float, float, float]
"""Seconds on the clock, CPU seconds and peak memory in MB; a server's processes are counted in."""


class Clock:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), _cpu()

    def seconds(self) -> Took:
        """Return what has passed, and the peak so far."""
        return (
            time.perf_counter() - self._wall,
            _cpu() - self._cpu,
            sum(high_water(one.pid) for one in _processes()),
        )


def _processes() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _cpu() -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _processes())


def talks(count: int, first: int = 0) -> list[Talk]:
    """Return the beginnings of conversations about questions of our own."""
    from convbench.tasks.demo import rows

    said = []
    drawn = [row for seed in range(3) for row in rows(seed=seed)][first : first + count]
    for number, row in enumerate(drawn, first):
        choices = zip(row["choices"]["label"], row["choices"]["text"], strict=True)
        lines = [f"Question ({number}): {row['question']}", "Choices:"]
        lines += [f"{label}. {text}" for label, text in choices]
        lines += ["", "Please think through this step by step and explain your initial thoughts "
                  "about the question."]  # fmt: skip
        said.append([{"role": "system", "content": SYSTEM},
                     {"role": "user", "content": "\n".join(lines)}])  # fmt: skip
    return said


def convbench(weights: str, said: list[Talk], most: int) -> tuple[Took, int]:
    """Hold all conversations through the local model; return what it took and new tokens."""
    from convbench.models.local import LocalModel

    return _held(lambda: LocalModel(f"local:{weights}", device="cpu"), said, most)


def vllm(weights: str, said: list[Talk], most: int) -> tuple[Took, int]:
    """The same with a vLLM server (CONVBENCH_VLLM_PYTHON) in float32, its start not counted."""
    from convbench.models import open_model
    from convbench.models.devices import Placement

    placed = Placement(vllm={"dtype": "float32", "enforce-eager": True, "max-model-len": 1024})
    with tempfile.TemporaryDirectory() as folder:
        opened = partial(open_model, f"vllm:{weights}", log_dir=Path(folder), placement=placed)
        return _held(opened, said, most)


def _held(opened: Callable[[], Any], said: list[Talk], most: int) -> tuple[Took, int]:
    """Hold all conversations through one of convbench's models."""
    from convbench.schema import Sampling

    sampling = Sampling(temperature=0, max_tokens=most)
    tokens = 0

    async def hold(model: Any, number: int, talk: Talk) -> None:
        async with room:
            await turns(model, number, talk)

    async def turns(model: Any, number: int, talk: Talk) -> None:
        nonlocal tokens
        for turn in range(3):
            reply = await model.complete(talk, sampling, key=f"{number}/{turn}")
            tokens += reply.completion_tokens
            talk.append({"role": "assistant", "content": reply.content})
            if turn < 2:
                talk.append({"role": "user", "content": LATER[turn]})

    room = asyncio.Semaphore(AT_ONCE)

    async def work() -> Took:
        model = opened()
        await model.start()
        started = Clock()
        await asyncio.gather(*(hold(model, *one) for one in enumerate(said)))
        took = started.seconds()
        await model.aclose()
        return took

    return asyncio.run(work()), tokens


def static(weights: str, said: list[Talk], most: int, size: int) -> tuple[Took, int]:
    """The same with `transformers.generate`, `size` conversations at a time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).eval()
    started, tokens = Clock(), 0
    for start in range(0, len(said), size):
        group = said[start : start + size]
        for turn in range(3):
            for talk, text, new in _answers(model, tokenizer, group, most):
                tokens += new
                talk.append({"role": "assistant", "content": text})
                if turn < 2:
                    talk.append({"role": "user", "content": LATER[turn]})
    return started.seconds(), tokens


def _answers(model: Any, tokenizer: Any, group: Sequence[Talk], most: int) -> Any:
    import torch

    with torch.inference_mode():
        batch = tokenizer.apply_chat_template(
            list(group), add_generation_prompt=True, padding=True, return_tensors="pt",
            return_dict=True,
        )  # fmt: skip
        out = model.generate(**batch, max_new_tokens=most, do_sample=False)
    end = tokenizer.eos_token_id
    for talk, ids in zip(group, out[:, batch["input_ids"].shape[1] :].tolist(), strict=True):
        new = ids.index(end) + 1 if end in ids else len(ids)
        yield talk, tokenizer.decode(ids[:new], skip_special_tokens=True), new


def llama_cpp(weights: str, said: list[Talk], most: int) -> tuple[Took, int]:
    """The same with llama.cpp's own server in this process (package `xllamacpp`): `AT_ONCE` slots,
    batched continuously, each turn reading only what is new. `weights` is a GGUF file."""
    from concurrent.futures import ThreadPoolExecutor

    import xllamacpp

    options = xllamacpp.CommonParams()
    options.model.path = weights
    options.n_parallel, options.n_ctx, options.n_batch = AT_ONCE, AT_ONCE * 1024, 2048
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = torch_threads()
    server = xllamacpp.Server(options)

    def hold(talk: Talk) -> int:
        tokens = 0
        for turn in range(3):
            reply = server.handle_chat_completions(
                {"messages": talk, "temperature": 0, "max_tokens": most}
            )
            tokens += reply["usage"]["completion_tokens"]
            talk.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
            if turn < 2:
                talk.append({"role": "user", "content": LATER[turn]})
        return tokens

    started = Clock()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        tokens = sum(threads.map(hold, said))
    return started.seconds(), tokens


def torch_threads() -> int:
    """Return how many threads this process is to have."""
    import os

    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def main() -> None:
    """Run one engine and write what it took."""
    engine, weights = sys.argv[1:3]
    count, most, first = (int(number) for number in sys.argv[3:6])
    said = talks(count, first)
    if engine == "convbench":
        took, tokens = convbench(weights, said, most)
    elif engine == "llama-cpp":
        took, tokens = llama_cpp(weights, said, most)
    elif engine == "vllm":
        took, tokens = vllm(weights, said, most)
    else:
        took, tokens = static(weights, said, most, int(engine.removeprefix("static-")))
    texts = [[one["content"] for one in talk if one["role"] == "assistant"] for talk in said]
    told = {"seconds": took[0], "cpu_s": took[1], "tokens": tokens, "peak_mb": took[2]}
    print(json.dumps(told | {"texts": texts}))


if __name__ == "__main__":
    main()
