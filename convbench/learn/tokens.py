"""Turn messages into token ids and a mask of what the policy wrote.

The policy is trained on exactly what it was served: every prompt is rendered by the chat template
as the engine rendered it, the reply is tokenised as its continuation, and a reply that was cut gets
no end of turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from convbench.answers.tags import TAG
from convbench.errors import TrainError
from convbench.learn.pairs import Reply
from convbench.schema import Message
from convbench.schema.recipe import Unit
from convbench.views import (
    SENTINEL,
    THOUGHT_KEYS,
    for_template,
    shows_late_system,
    shows_system,
    shows_text,
    without_late_system,
    without_system,
)

_NOW = re.compile(r"""strftime_now\(\s*+(['"])((?:(?!\1).)*+)\1\s*+\)""")
_OPENING = re.compile(r"(?:" + TAG.pattern + r")\s*\Z", TAG.flags)
THOUGHT = SENTINEL + "thought"
QUESTION: Message = {"role": "user", "content": "hello"}


class Unrenderable(TrainError):
    """The chat template does not render a conversation, which then is not learnt."""


@dataclass(frozen=True, slots=True)
class PromptedReply:
    """One reply of the policy and the messages before it."""

    messages: tuple[Message, ...]
    reply: Reply
    turn: int = 0
    """Number of its turn among the policy's own."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Token ids of one row, and for each the number of the reply it is of (-1: context)."""

    ids: tuple[int, ...]
    replies: tuple[int, ...]

    @property
    def mask(self) -> list[bool]:
        """Whether the policy wrote each token."""
        return [mark >= 0 for mark in self.replies]


@dataclass(frozen=True, slots=True)
class ReasoningFrame:
    """How a model writes a reply under its template: `opens`, reasoning, `closes`, reply. `head`
    stands before a reply without reasoning, in templates that name the channel of each reply."""

    opens: str
    closes: str
    head: str = ""


USUAL = ReasoningFrame("<think>\n", "\n</think>\n\n")
"""Frame under a template that shows no reasoning."""
BY_MARK = {"<|channel>thought\n": ReasoningFrame("<|channel>thought\n", "\n<channel|>")}
"""Frames of templates that show reasoning only before a call of a tool, by a text they contain."""


class ChatTokens:
    """A tokenizer with its chat template."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        reasoning: str = "loss",
        options: Mapping[str, Any] | None = None,
        calls: bool = False,
    ) -> None:
        """`options` are the variables that the template gets besides the messages, as when the
        policy was served (`tools` among them); `calls` says that there are calls of tools, of which
        a template of its own may know. Raise TrainError without a chat template."""
        self.tokenizer, self._options = tokenizer, dict(options or {})
        self.drops_reasoning = reasoning == "drop"
        self._template = _template_of(tokenizer, with_tools=calls or "tools" in self._options)
        self._parts = not shows_text(self._apply)
        self.folds_system = not shows_system(self.render_messages)
        self._late_system = not self.folds_system and shows_late_system(self.render_messages)
        self.end_of_turn = self._end_of_turn()

    def render_prompt(self, messages: Sequence[Message], day: str = "") -> str:
        """Return the prompt as text; a template that prints the date prints `day` (ISO). Raise
        Unrenderable if the template refuses these messages."""
        shown = without_system(messages) if self.folds_system else list(messages)
        if any(message["role"] == "system" for message in shown[1:]) and not self._late_system:
            shown = without_late_system(shown)
        return self.render_messages(shown, day=day, add_generation_prompt=True)

    def prompt_ids(self, messages: Sequence[Message], day: str = "") -> list[int]:
        """Return the token ids of the prompt."""
        return self.encode(self.render_prompt(messages, day))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens around it."""
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def reply_ids(self, prompt: str, prompt_ids: Sequence[int], reply: Reply) -> list[int]:
        """Return the ids of a reply with the reasoning before it, tokenised as a continuation of
        the prompt, and the end of turn unless it was cut."""
        if reply.raw is not None:
            reply = replace(reply, text=reply.raw, calls=())
        elif reply.calls:
            reply = replace(reply, text=self._calls_as_text(reply), calls=())
        text = self._written(prompt, reply)
        both = self.encode(prompt + text)
        if both[: len(prompt_ids)] == list(prompt_ids):
            ids = both[len(prompt_ids) :]
        else:  # a token would merge across the border, and none is sampled so
            ids = self.encode(text)
        return ids if reply.cut else [*ids, self.end_of_turn]

    def token_rows(
        self, replies: Sequence[PromptedReply], day: str = "", unit: Unit = "conversation"
    ) -> list[TokenRow]:
        """Return the rows of one conversation's replies, which are numbered from 0.

        For unit `conversation` it is a single row if the template is prefix-stable (each prompt
        begins with the ids of the row so far), else one a reply.
        """
        row_ids: list[int] = []
        marks: list[int] = []
        by_reply: list[TokenRow] = []
        is_stable = True
        for number, prompted in enumerate(replies):
            prompt = self.render_prompt(prompted.messages, day)
            ids = self.encode(prompt)
            own = self.reply_ids(prompt, ids, prompted.reply)
            by_reply.append(TokenRow((*ids, *own), tuple([-1] * len(ids) + [number] * len(own))))
            is_stable = is_stable and ids[: len(row_ids)] == row_ids
            marks += [-1] * (len(ids) - len(row_ids)) + [number] * len(own)
            row_ids = [*ids, *own]
            if prompted.reply.cut:  # the prompt after a cut reply ends it, as the policy did not
                row_ids.append(self.end_of_turn)
                marks.append(-1)
        if unit == "turn" or not is_stable or len(by_reply) < 2:
            return by_reply
        size = len(row_ids) - replies[-1].reply.cut
        return [TokenRow(tuple(row_ids[:size]), tuple(marks[:size]))]

    def _calls_as_text(self, reply: Reply) -> str:
        """Return a reply that calls tools as the template writes it, between the generation prompt
        and the end of the turn. Raise Unrenderable if the template does not show calls."""
        question: list[Message] = [{"role": "user", "content": SENTINEL}]
        calling: Message = {"role": "assistant", "content": reply.text, "tool_calls": reply.calls}
        prompt = self.render_messages(question, add_generation_prompt=True)
        full = self.render_messages([*question, calling])
        if not full.startswith(prompt):
            prompt = self.render_messages(question)
        end = self.tokenizer.decode([self.end_of_turn])
        text, separator, _ = full[len(prompt) :].rpartition(end)
        shown = all(call.name in text for call in reply.calls)
        if not full.startswith(prompt) or not separator or not shown:
            raise Unrenderable("whose calls of tools the chat template does not show")
        return text

    def _written(self, prompt: str, reply: Reply) -> str:
        """Return reasoning and reply exactly as the model wrote them after this prompt."""
        reasoning = reply.reasoning
        if reasoning is None or not (reasoning.text or reasoning.frame):
            return self.frame.head + reply.text
        is_open = bool(self.frame.opens) and prompt.endswith(self.frame.opens)
        before, after = "" if is_open else self.frame.opens, self.frame.closes
        thought, text = reasoning.text.strip("\n"), reply.text.lstrip("\n")
        if reasoning.frame is not None:
            first, after = reasoning.frame
            before = (first or before) if before else ""
            thought, text = reasoning.text, reply.text
        if self.drops_reasoning:
            return self.frame.head + text if before else after + text
        return before + thought + after + text

    def render_messages(self, messages: Sequence[Message], *, day: str = "", **options: Any) -> str:
        if not all(isinstance(message["content"], str) for message in messages):
            raise Unrenderable("with an image; the trainers take text only")
        if self.drops_reasoning:
            messages = [{**m, "reasoning": None} for m in messages]  # type: ignore[typeddict-item]
        return self._apply(for_template(messages, parts=self._parts), day=day, **options)

    def _apply(
        self, messages: Sequence[Mapping[str, Any]], *, day: str = "", **options: Any
    ) -> str:
        """Return the text of messages under the template, whose clock stands at `day`."""
        template = self._template
        if day and "strftime_now" in template:
            shown = date.fromisoformat(day)
            template = _NOW.sub(lambda match: repr(shown.strftime(match.group(2))), template)
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, chat_template=template, **self._options | options
            )
        except Exception as error:  # noqa: BLE001 - a template raises whatever it likes
            line = str(error).split("\n")[0]
            raise Unrenderable(f"that the chat template refuses ({line[:120]})") from None
        return text

    def _end_of_turn(self) -> int:
        """Return the token that ends an assistant turn: the first special one that the template
        writes after it, else the tokenizer's end of text."""
        tail = self.render_messages([QUESTION, {"role": "assistant", "content": SENTINEL}])
        added = self.tokenizer.added_tokens_decoder.items()
        special = {self.tokenizer.eos_token_id, *(i for i, token in added if token.special)}
        ids = self.encode(tail.rpartition(SENTINEL)[2])
        end = next((token for token in ids if token in special), self.tokenizer.eos_token_id)
        if end is None:
            raise TrainError("the tokenizer has no end-of-turn and no end-of-text token")
        return int(end)

    @cached_property
    def frame(self) -> ReasoningFrame:
        """What the template writes around a reply and its reasoning, found by rendering a reply
        with and without.

        Templates differ in whether they open the thought in the generation prompt (`<think>`), how
        they close it, and whether a reply has a channel of its own.
        """
        prompt = self._probe([QUESTION], add_generation_prompt=True)
        reply = {"role": "assistant", "content": SENTINEL}
        bare = self._probe([QUESTION, reply])
        full = self._probe([QUESTION, {**reply, **dict.fromkeys(THOUGHT_KEYS, THOUGHT)}])
        if THOUGHT not in full:
            source = self._template.replace("\\n", "\n")
            named = next((frame for mark, frame in BY_MARK.items() if mark in source), None)
            return named or replace(USUAL, opens=_opening_tag(prompt) or USUAL.opens)
        before, _, rest = full.partition(THOUGHT)
        same = takewhile(lambda both: both[0] == both[1], zip(prompt, before, strict=False))
        common = sum(1 for _ in same)
        opens = _opening_tag(before[:common]) + before[common:]
        closes = rest[: rest.index(SENTINEL)] if SENTINEL in rest else USUAL.closes
        head = ""
        if bare.startswith(prompt) and SENTINEL in bare:
            head = bare[len(prompt) : bare.rindex(SENTINEL)]
            # a thinking block that the template inserts does not count: no model wrote it
            head = head if head.strip() and closes.endswith(head) and not TAG.search(head) else ""
        return ReasoningFrame(opens, closes, head)

    def _probe(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        if self._parts:
            messages = [
                {**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages
            ]
        return self._apply(messages, **options)


def load_tokenizer(model: str) -> Any:
    """Return the tokenizer of a model, by path or Hub id. Raise TrainError if it cannot be
    loaded."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(Path(model).expanduser()))
    except (OSError, ValueError) as error:
        raise TrainError(f"model {model!r}: tokenizer: {str(error).splitlines()[0]}") from None


def _template_of(tokenizer: Any, *, with_tools: bool) -> str:
    """Return the chat template, of several the one that serving takes: `tool_use` with tools, else
    `default`. Raise TrainError if there is none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        named = template.get("tool_use") if with_tools else None
        template = named or template.get("default")
    if not template:
        raise TrainError(
            f"{getattr(tokenizer, 'name_or_path', 'tokenizer')}: found no chat template; expected "
            "a chat model; give --model an instruction-tuned one"
        )
    return str(template)


def _opening_tag(text: str) -> str:
    """Return the opening reasoning tag at the end of a text with the blanks after it, or ""."""
    match = _OPENING.search(text)
    return match[0] if match and not any(match.groups()) else ""
