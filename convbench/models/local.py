"""`local:PATH`: weights in this process, with batched calls, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from convbench.errors import FatalModelError, MissingDependency
from convbench.models.model import Model
from convbench.models.replies import parse_tool_calls, split_reasoning
from convbench.models.weights_path import adapter_base, check_weights, own_sampling
from convbench.schema import Completion, FinishReason, ImagePart, Message, Sampling, ToolCall
from convbench.schema.chat import text_of
from convbench.schema.reasoning import Effort, Reads
from convbench.util.install import with_extra
from convbench.views import for_template, shows_system, shows_text, without_system

if TYPE_CHECKING:
    from convbench.models.local_engine import Engine

LOADING = threading.Lock()
"""Held while a model loads: transformers makes tensors without data for all threads meanwhile."""
EFFORT = "reasoning_effort"


class LocalModel(Model):
    """A transformers model in this process. Weights load with the first call."""

    starts = True
    priced = True
    patient = True
    concurrency = 64

    def __init__(
        self,
        ref: str,
        *,
        device: str | None = None,
        reads: Reads = "field",
        template: Mapping[str, Any] | None = None,
        share: float | None = None,
    ) -> None:
        """`share` is that of a CUDA device's memory for weights and cache, 0 to 1; None: all."""
        self.ref, self.reads = ref, reads
        self.path = check_weights(ref.removeprefix("local:"))
        self._device, self._template, self._share = device, dict(template or {}), share
        self._starting = asyncio.Lock()
        self._engine: Engine | None = None
        self._tokenizer: Any = None
        self._folds_system = self._parts = False

    def check(self) -> None:
        """Raise MissingDependency without torch, transformers or, for an adapter, peft."""
        needed = ["torch", "transformers"] + (["peft"] if adapter_base(self.path) else [])
        if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
            extra = with_extra("train" if "peft" in missing else "local")
            raise MissingDependency(" and ".join(missing), needed_for=self.ref, install=extra)

    async def start(self) -> None:
        """Load tokenizer and weights, once. Raise FatalModelError if they do not load,
        MissingDependency if a package is missing."""
        async with self._starting:
            if self._engine is not None:
                return
            self.check()
            try:
                self._engine = await asyncio.to_thread(self._load)
            except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
                line = str(error).strip().split("\n")[0]
                raise FatalModelError(f"{self.ref}: cannot be loaded: {line}") from error

    def _load(self) -> Engine:
        with LOADING:
            from convbench.models.local_engine import Engine, cache_memory
            from convbench.models.weights import load_model, load_tokenizer

            self._tokenizer = load_tokenizer(self.path)
            model = load_model(self.path, self._device)
        self.read_template()
        self._limit = _longest_context(self.ref, model.config.get_text_config())
        named = model.generation_config.eos_token_id
        ids = {*(named if isinstance(named, list) else [named]), self._tokenizer.eos_token_id}
        own = own_sampling(self.path)
        self._top_p, top_k = own.get("top_p"), own.get("top_k")
        memory = cache_memory(model, self._share)
        return Engine(model, frozenset(ids - {None}), int(top_k) if top_k else None, memory)

    def read_template(self) -> None:
        """Note how the chat template takes texts, and whether it shows the system prompt."""
        render = partial(self._tokenizer.apply_chat_template, tokenize=False)
        self._parts = not shows_text(render)
        self._folds_system = not shows_system(
            lambda messages: render(for_template(messages, parts=self._parts))
        )

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, which may be empty, with 0 dollars; weights load at the first call.

        `completion_tokens` includes the end token and reasoning. A reply that is cut at
        `max_tokens` or where the context ends has the `finish_reason` `length`. Raise
        FatalModelError, which does not stop the run, if the prompt fills the context; for images,
        one that does.
        """
        await self.start()
        assert self._engine is not None
        prompt = self.prompt_tokens(messages, sampling.reasoning_effort, sampling.tools)
        room = self._limit - len(prompt)
        if room < 1:
            raise FatalModelError(
                f"{self.ref}: the conversation has {len(prompt)} tokens; the model's context is "
                f"{self._limit}",
                stops_run=False,
            )
        if sampling.top_p is None:
            sampling = sampling.model_copy(update={"top_p": self._top_p})
        limit = min(sampling.max_tokens, room)
        reply, ended = await self._engine.generate(prompt, limit, sampling, key)
        words = reply[:-1] if ended else reply
        decode = partial(self._tokenizer.decode, words, clean_up_tokenization_spaces=False)
        text = decode(skip_special_tokens=True)
        reasoning, rest = split_reasoning(text) if self.reads == "tags" else (None, text)
        if reasoning is not None:
            ids = self._tokenizer(reasoning.text, add_special_tokens=False)["input_ids"]
            reasoning, text = reasoning.model_copy(update={"tokens": len(ids)}), rest
        calls: tuple[ToolCall, ...] = ()
        raw: str | None = None
        if sampling.tools and sampling.tool_choice is None:
            whole = decode(skip_special_tokens=False)
            if reasoning is not None:
                whole = split_reasoning(whole)[1]
            names = {tool["function"]["name"] for tool in sampling.tools}
            around, calls = parse_tool_calls(whole, names, key)
            if calls:
                text, raw = around, whole
        unheard = sampling.reasoning_effort and EFFORT not in str(self._tokenizer.chat_template)
        finish: FinishReason = "stop" if ended else "length"
        left = (EFFORT,) if unheard else ()
        return Completion(
            text, finish, len(prompt), len(reply), 0.0, self.ref, reasoning, left, calls, raw
        )

    def prompt_tokens(
        self,
        messages: Sequence[Message],
        effort: Effort | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Return the prompt's token ids by the model's own chat template; the tokenizer must be
        loaded. The system prompt moves to the first user message if the template ignores it. Raise
        FatalModelError for an image or if the template fails."""
        options = self._template | ({EFFORT: effort} if effort else {})
        if tools:
            options["tools"] = list(tools)
        if any(isinstance(part, ImagePart) for one in messages for part in one["content"]):
            raise FatalModelError(
                f"{self.ref}: does not support images; serve a vision model and give its address"
            )
        texts: list[Message] = [{**one, "content": text_of(one["content"])} for one in messages]
        if self._folds_system:
            texts = without_system(texts)
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                for_template(texts, parts=self._parts),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **options,
            )
        except Exception as error:  # templates are programs, which raise what they like
            line = str(error).split("\n")[0]
            raise FatalModelError(f"{self.ref}: chat template: {line}") from error
        return ids

    async def aclose(self) -> None:
        """End the engine after its current pass, wait for that, and release the weights. Calls that
        have not ended get neither reply nor error. A later call loads the weights again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


def _longest_context(ref: str, config: Any) -> int:
    """Return the longest context for which batches are exact. Raises FatalModelError for layers
    that cannot be batched."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"}:
        raise FatalModelError(
            f"{ref}: layers of kind {sorted(kinds)} cannot be batched here; serve it "
            "(vllm:PATH, or any server and --api-base)"
        )
    longest = int(getattr(config, "max_position_embeddings", None) or 1 << 20)
    window = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    return min(longest, int(window or longest))
