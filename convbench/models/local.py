"""`local:PATH`: weights in this process, with batched calls, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convbench.errors import FatalModelError, MissingDependency
from convbench.models.model import Model
from convbench.models.replies import parse_tool_calls, split_reasoning
from convbench.models.weights_path import adapter_base, resolve_path
from convbench.schema import Completion, ImagePart, Message, Reasoning, Sampling, TextPart, ToolCall
from convbench.schema.reasoning import Effort, Reads
from convbench.util.install import with_extra
from convbench.views import for_template, shows_system, shows_text, without_system

if TYPE_CHECKING:
    from convbench.models.batcher import Batcher

ROWS = 160
"""Most calls in one batch, and most conversations at once; each keeps its slot."""
LOADING = threading.Lock()
"""Held while a model loads: transformers makes tensors without data for all threads meanwhile."""
EFFORT = "reasoning_effort"
CPU_MEMORY = 2 << 30
"""Bytes of the cache on CPU."""
CUDA_SHARE = 0.8
"""Share of the free CUDA memory that the cache may take."""


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
        self._options = dict(template or {})
        self.path = resolve_path(ref.removeprefix("local:"))
        self._context, self._device, self._share = context, device, share
        self._limit = 0
        self._starting = asyncio.Lock()
        self._batcher: Batcher | None = None
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
            raise MissingDependency(
                " and ".join(missing),
                needed_for=self.ref,
                install=with_extra("train" if "peft" in missing else "local"),
            )

    async def start(self) -> None:
        """Load tokenizer and weights, unless they are loaded; calls at the same time wait for one
        loading.

        Raise FatalModelError if they do not load, MissingDependency if a package is missing.
        """
        async with self._starting:
            if self._batcher is None:
                self._batcher = await self._start_batcher()

    async def _start_batcher(self) -> Batcher:
        self.check()
        from convbench.models.batcher import Batcher

        batcher = Batcher(
            self._load_model,
            loop=asyncio.get_running_loop(),
            most=ROWS,
            memory=lambda model: _cache_memory(model, self._share),
        )
        try:
            await batcher.ready
        except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
            line = str(error).strip().split("\n")[0]
            raise FatalModelError(f"{self.ref}: cannot be loaded: {line}") from error
        batcher.ends, batcher.top_k = self._end_ids(batcher.model), self._read_top_k(batcher.model)
        return batcher

    def _load_model(self) -> Any:
        """Return the model, in evaluation mode; runs in the batcher's thread."""
        with LOADING:
            from convbench.models.weights import load_model, load_tokenizer

            self._tokenizer = load_tokenizer(self.path)
            model = load_model(self.path, self._device)
        self.read_template()
        self._limit = _max_context(self.ref, model.config)
        if self._context is not None:
            self._limit = min(self._limit, self._context)
        return model

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
        from convbench.models.sampling import Generation, UniformStream

        if self._batcher is None:
            await self.start()
        assert self._batcher is not None
        prompt = self.prompt_tokens(messages, sampling.reasoning_effort, sampling.tools)
        room = self._limit - len(prompt)
        if room < 1:
            raise FatalModelError(
                f"{self.ref}: the conversation has {len(prompt)} tokens; the model's context is "
                f"{self._limit}",
                stops_run=False,
            )
        row = Generation(
            prompt,
            len(prompt),
            min(sampling.max_tokens, room),
            self._with_defaults(sampling),
            UniformStream(sampling.seed, key),
            asyncio.get_running_loop().create_future(),
            *_prefix_names(messages),
        )
        self._batcher.submit(row)
        await row.done
        reply = row.reply_ids
        text = self._tokenizer.decode(
            reply[:-1] if row.ended else reply,
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        reasoning, text = self._split_reasoning(text) if self.reads == "tags" else (None, text)
        calls: tuple[ToolCall, ...] = ()
        raw: str | None = None
        if sampling.tools and sampling.tool_choice is None:
            raw_text = self._tokenizer.decode(
                reply[:-1] if row.ended else reply, clean_up_tokenization_spaces=False
            )
            if reasoning is not None:  # it is returned separately
                raw_text = split_reasoning(raw_text)[1]
            names = {tool["function"]["name"] for tool in sampling.tools}
            words, calls = parse_tool_calls(raw_text, names, key)
            text, raw = (words, raw_text) if calls else (text, None)
        deaf = sampling.reasoning_effort is not None and EFFORT not in self._template_source()
        return Completion(
            text,
            "stop" if row.ended else "length",
            row.prompt,
            len(reply),
            0.0,
            self.ref,
            reasoning,
            (EFFORT,) if deaf else (),
            calls,
            raw,
        )

    def _split_reasoning(self, text: str) -> tuple[Reasoning | None, str]:
        """Return (thinking block at the start of a reply, with its token count, or None; rest)."""
        reasoning, rest = split_reasoning(text)
        if reasoning is None:
            return None, text
        ids = self._tokenizer(reasoning.text, add_special_tokens=False)["input_ids"]
        return reasoning.model_copy(update={"tokens": len(ids)}), rest

    def _template_source(self) -> str:
        return str(self._tokenizer.chat_template)

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

    def read_template(self) -> None:
        """Set whether the chat template shows system messages and takes content as text; return
        None."""
        self._parts = not shows_text(self._render_template)
        self._folds_system = not shows_system(
            lambda messages: self._render_template(for_template(messages, parts=self._parts))
        )

    def _render_template(self, messages: list[Any]) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False))

    async def aclose(self) -> None:
        """End the thread after its current pass, wait for that, and release the weights and, on a
        card, their memory; CUDA's own context stays with this process.

        Calls that have not ended get neither reply nor error: their futures are left as they are.
        Nothing is done without a thread. A later call loads the weights again.
        """
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            batcher.close()
            del batcher
            _empty_card()

    def _end_ids(self, model: Any) -> frozenset[int]:
        """Return the token ids that end a reply: generation_config's and the tokenizer's."""
        named = getattr(model.generation_config, "eos_token_id", None)
        ids = set(named) if isinstance(named, list) else {named}
        ids.add(self._tokenizer.eos_token_id)
        return frozenset(i for i in ids if i is not None)

    def _read_top_k(self, model: Any) -> int | None:
        """Return generation_config's top_k; None for its default of 50, which nobody chose."""
        self._top_p = getattr(model.generation_config, "top_p", None)
        top = getattr(model.generation_config, "top_k", None)
        return None if top in (None, 0, 50) else int(top)

    def _with_defaults(self, sampling: Sampling) -> Sampling:
        """Return the sampling, with the model's own top_p if none is requested."""
        if sampling.top_p is None and self._top_p is not None:
            return sampling.model_copy(update={"top_p": self._top_p})
        return sampling


def _prefix_names(messages: Sequence[Message]) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return (keys of calls that may share this one's prefix: the previous turn, the same messages,
    the same first message; keys under which later calls find this one)."""
    conversation = tuple((message["role"], message["content"]) for message in messages)
    return (conversation[:-2], conversation, conversation[:1]), (conversation, conversation[:1])


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


def _max_context(ref: str, config: Any) -> int:
    """Return the longest context for which the batcher is exact. Raises FatalModelError for layers
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


def _empty_card() -> None:
    """Return the memory of what this process dropped to the card; do nothing without CUDA."""
    import torch

    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def _cache_memory(model: Any, share: float | None) -> int:
    """Return the bytes that the cache may take."""
    if model.device.type != "cuda":
        return CPU_MEMORY
    import torch

    free, total = torch.cuda.mem_get_info(model.device)
    held, used = (
        torch.cuda.memory_reserved(model.device),
        torch.cuda.memory_allocated(model.device),
    )
    return cache_bytes(free + held - used, int(total * share) - used if share else None)


def cache_bytes(room: int, allowed: int | None = None) -> int:
    """Return the bytes for the cache: 0.8 of the smaller of `room` and `allowed`, at least 0.

    `room` is the free memory of the device, `allowed` the most besides the weights (None: no
    limit), both in bytes. The rest is left for a pass's activations.
    """
    return max(0, int(min(room, room if allowed is None else allowed) * CUDA_SHARE))
