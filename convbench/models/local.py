"""`local:PATH`: weights in this process, with batched calls, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convbench.errors import FatalModelError, MissingDependency
from convbench.models.model import Model
from convbench.models.replies import parse_tool_calls, split_reasoning
from convbench.models.weights_path import adapter_base, check_weights
from convbench.schema import Completion, ImagePart, Message, Reasoning, Sampling, TextPart, ToolCall
from convbench.schema.reasoning import Effort, Reads
from convbench.util.install import with_extra
from convbench.views import for_template, shows_system, shows_text, without_system

if TYPE_CHECKING:
    from convbench.models.local_engine import Engine

ROWS = 64
"""Most calls in one batch, and most conversations at once; each keeps its row."""
LOADING = threading.Lock()
"""Held while a model loads: transformers makes tensors without data for all threads meanwhile."""
EFFORT = "reasoning_effort"
CPU_MEMORY = 2 << 30
"""Bytes of the cache on CPU."""
CUDA_SHARE = 0.8
"""Share of the CUDA memory beside the weights that the cache may take."""


class LocalModel(Model):
    """A transformers model in this process. Weights load with the first call."""

    starts = True
    priced = True
    patient = True
    concurrency = ROWS

    def __init__(
        self,
        ref: str,
        *,
        context: int | None = None,
        device: str | None = None,
        reads: Reads = "field",
        template: Mapping[str, Any] | None = None,
        share: float | None = None,
    ) -> None:
        """`share` is the share of a CUDA device's memory for weights and cache, 0 to 1; None takes
        all that is free."""
        self.ref, self.reads = ref, reads
        self.path = check_weights(ref.removeprefix("local:"))
        self._options = dict(template or {})
        self._context, self._device, self._share = context, device, share
        self._starting = asyncio.Lock()
        self._engine: Engine | None = None
        self._tokenizer: Any = None
        self._folds_system = self._parts = False

    def check(self) -> None:
        """Raise MissingDependency if torch, transformers or, for an adapter, peft is not
        installed."""
        needed = ["torch", "transformers"]
        if adapter_base(self.path) is not None:
            needed.append("peft")
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            extra = with_extra("train" if "peft" in missing else "local")
            raise MissingDependency(" and ".join(missing), needed_for=self.ref, install=extra)

    async def start(self) -> None:
        """Load tokenizer and weights, unless they are loaded; calls at the same time wait for one
        loading.

        Raise FatalModelError if they do not load, MissingDependency if a package is missing.
        """
        async with self._starting:
            if self._engine is None:
                self._engine = await self._start_engine()

    async def _start_engine(self) -> Engine:
        self.check()
        from convbench.models.local_engine import Engine

        loop = asyncio.get_running_loop()
        engine = Engine(self._load_model, loop=loop, most=ROWS, memory=self._cache_bytes)
        try:
            await engine.ready
        except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
            line = str(error).strip().split("\n")[0]
            raise FatalModelError(f"{self.ref}: cannot be loaded: {line}") from error
        engine.ends, engine.top_k = self._ends, self._top_k
        return engine

    def _load_model(self) -> Any:
        """Return the model in evaluation mode, and note what its files say; runs in the engine's
        thread."""
        with LOADING:
            from convbench.models.weights import load_model, load_tokenizer

            self._tokenizer = load_tokenizer(self.path)
            model = load_model(self.path, self._device)
        self.read_template()
        self._limit = min(_longest_context(self.ref, model.config), self._context or 1 << 30)
        own = model.generation_config
        named = getattr(own, "eos_token_id", None)
        ids = {*(named if isinstance(named, list) else [named]), self._tokenizer.eos_token_id}
        self._ends = frozenset(i for i in ids if i is not None)
        top_k, self._top_p = getattr(own, "top_k", None), getattr(own, "top_p", None)
        # transformers' default of 50 was chosen by nobody
        self._top_k = None if top_k in (None, 0, 50) else int(top_k)
        self._memory = _memory_beside(model, self._share)
        return model

    def read_template(self) -> None:
        """Note how the tokenizer's chat template takes texts, and whether it shows the system
        prompt."""
        self._parts = not shows_text(self._render_template)
        self._folds_system = not shows_system(
            lambda messages: self._render_template(for_template(messages, parts=self._parts))
        )

    def _cache_bytes(self, model: Any) -> int:
        return self._memory

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the reply, which may be empty, with 0 dollars; weights are loaded at the first
        call.

        `completion_tokens` includes the end token and reasoning. The reply is cut at `max_tokens`
        or at the end of the context: then its `finish_reason` is `length`, else `stop`. Raise
        FatalModelError, which does not stop the run, if the prompt fills the context; for images,
        one that does.
        """
        from convbench.models.local_engine import Generation, uniforms_of

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
        if sampling.top_p is None and self._top_p is not None:
            sampling = sampling.model_copy(update={"top_p": self._top_p})
        call = Generation(
            prompt,
            min(sampling.max_tokens, room),
            sampling,
            uniforms_of(sampling.seed, key),
            asyncio.get_running_loop().create_future(),
        )
        self._engine.submit(call)
        await call.done
        reply = call.tokens[call.prompt :]
        words = reply[:-1] if call.ended else reply
        text = self._decode(words, skip=True)
        reasoning: Reasoning | None = None
        if self.reads == "tags":
            reasoning, text = self._split_reasoning(text)
        calls: tuple[ToolCall, ...] = ()
        raw: str | None = None
        if sampling.tools and sampling.tool_choice is None:
            whole = self._decode(words, skip=False)
            if reasoning is not None:  # it is returned separately
                whole = split_reasoning(whole)[1]
            names = {tool["function"]["name"] for tool in sampling.tools}
            around, calls = parse_tool_calls(whole, names, key)
            text, raw = (around, whole) if calls else (text, None)
        asked = sampling.reasoning_effort is not None
        unheard = asked and EFFORT not in str(self._tokenizer.chat_template)
        return Completion(
            text,
            "stop" if call.ended else "length",
            call.prompt,
            len(reply),
            0.0,
            self.ref,
            reasoning,
            (EFFORT,) if unheard else (),
            calls,
            raw,
        )

    def prompt_tokens(
        self,
        messages: Sequence[Message],
        effort: Effort | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Return the prompt's token ids by the model's own chat template, ready for the reply to
        follow.

        The system prompt moves to the first user message if the template ignores it. The tokenizer
        must be loaded. Raise FatalModelError for an image or if the template fails.
        """
        options = self._options | ({EFFORT: effort} if effort else {})
        if tools:
            options["tools"] = list(tools)
        texts = text_messages(self.ref, messages)
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
        except Exception as error:
            # templates are programs of their authors and raise what they like
            line = str(error).split("\n")[0]
            raise FatalModelError(f"{self.ref}: chat template: {line}") from error
        return ids

    def _render_template(self, messages: list[Any]) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False))

    def _decode(self, ids: list[int], *, skip: bool) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
        )
        return text

    def _split_reasoning(self, text: str) -> tuple[Reasoning | None, str]:
        """Return (thinking block at the start of a reply, with its token count, or None; rest)."""
        reasoning, rest = split_reasoning(text)
        if reasoning is None:
            return None, text
        ids = self._tokenizer(reasoning.text, add_special_tokens=False)["input_ids"]
        return reasoning.model_copy(update={"tokens": len(ids)}), rest

    async def aclose(self) -> None:
        """End the engine after its current pass, wait for that, and release the weights.

        Calls that have not ended get neither reply nor error. A later call loads the weights again.
        """
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


def text_messages(ref: str, messages: Sequence[Message]) -> list[Message]:
    """Return copies of the messages with contents as text, the text parts joined by line breaks.

    Raise FatalModelError, whose message begins with `ref`, if one has an image.
    """
    return [{**message, "content": _message_text(ref, message)} for message in messages]


def _message_text(ref: str, message: Message) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    if any(isinstance(part, ImagePart) for part in content):
        raise FatalModelError(
            f"{ref}: does not support images; serve a vision model and give its address"
        )
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _longest_context(ref: str, config: Any) -> int:
    """Return the longest context for which batches are exact. Raises FatalModelError for layers
    that cannot be batched."""
    config = config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds - {"full_attention", "sliding_attention"}:
        raise FatalModelError(
            f"{ref}: layers of kind {sorted(kinds)} cannot be batched here; serve it "
            "(vllm:PATH, or any server and --api-base)"
        )
    longest = int(getattr(config, "max_position_embeddings", None) or 1 << 20)
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True)
    return min(longest, int(window)) if window and used else longest


def _memory_beside(model: Any, share: float | None) -> int:
    """Return the bytes that the cache may take; on CUDA a rest is left for a pass's activations."""
    if model.device.type != "cuda":
        return CPU_MEMORY
    import torch

    free, total = torch.cuda.mem_get_info(model.device)
    used = torch.cuda.memory_allocated(model.device)
    room = free + torch.cuda.memory_reserved(model.device) - used
    return cache_bytes(room, int(total * share) - used if share else None)


def cache_bytes(room: int, allowed: int | None = None) -> int:
    """Return the bytes for the cache: 0.8 of the smaller of `room`, the free memory of the device,
    and `allowed`, the most besides the weights (None: no limit); at least 0."""
    return max(0, int(min(room, room if allowed is None else allowed) * CUDA_SHARE))
