"""Turn messages into token ids and a mask of what the policy wrote, and align recorded
log-probabilities with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from convbench.errors import MissingDependency, TrainError
from convbench.learn.frames import ReasoningFrame, frame_of, shared_prefix_length
from convbench.learn.pairs import PolicyReply
from convbench.schema import Message
from convbench.schema.reasoning import Trained
from convbench.schema.recipe import Unit
from convbench.util.install import with_extra
from convbench.views import (
    SENTINEL,
    for_template,
    shows_late_system,
    shows_system,
    shows_text,
    without_late_system,
    without_system,
)

_NOW = re.compile(r"""strftime_now\(\s*+(['"])((?:(?!\1).)*+)\1\s*+\)""")


@dataclass(frozen=True, slots=True)
class PromptedReply:
    """One policy turn: the messages before it and the reply."""

    messages: tuple[Message, ...]
    reply: PolicyReply


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Token ids and mask of one row, both of shape (tokens,); mask 1 for the policy's tokens."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]


class ChatTokens:
    """A tokenizer with its chat template, and what is known of the template's behaviour."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        reasoning: Trained = "loss",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`tokenizer` is a transformers tokenizer; TrainError if it has no chat template.
        `reasoning` says how reasoning is trained on. `options` are the variables that the template
        gets besides the messages, as when the policy was served.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise TrainError(
                f"{getattr(tokenizer, 'name_or_path', 'tokenizer')}: found no chat template; "
                "expected a chat model; give --model an instruction-tuned one"
            )
        self.tokenizer = tokenizer
        self.reasoning = reasoning
        self._options = dict(options or {})
        self._parts = not shows_text(self._apply_template)
        self.folds_system = not shows_system(self._render_messages)
        self._late_system = not self.folds_system and shows_late_system(self._render_messages)
        self.end_of_turn = self._end_of_turn()

    def render_prompt(self, messages: Sequence[Message], day: str = "") -> str:
        """Return the prompt as text; a template that shows the date shows `day` (ISO)."""
        shown = without_system(messages) if self.folds_system else messages
        if any(message["role"] == "system" for message in shown[1:]) and not self._late_system:
            shown = without_late_system(shown)
        return self._render_messages(shown, day=day, add_generation_prompt=True)

    def prompt_ids(self, messages: Sequence[Message], day: str = "") -> list[int]:
        """Return the token ids of the prompt."""
        return self._encode_text(self.render_prompt(messages, day))

    @cached_property
    def frame(self) -> ReasoningFrame:
        """What the template writes around a reply and its reasoning."""
        return frame_of(self._render_probe, self._dated_template("").replace("\\n", "\n"))

    def reply_ids(self, prompt: str, prompt_ids: Sequence[int], reply: PolicyReply) -> list[int]:
        """Return the reply's ids, tokenised as a continuation of the prompt, without the
        end-of-turn token."""
        return self.encode_reply(prompt, prompt_ids, reply)[0]

    def encode_reply(
        self, prompt: str, prompt_ids: Sequence[int], reply: PolicyReply
    ) -> tuple[list[int], list[int]]:
        """Return (ids, mask) of a reply with the reasoning before it, tokenised as a continuation
        of the prompt, without the end-of-turn token. A token that holds both reasoning and reply
        counts as the reply's."""
        if reply.raw is not None:
            reply = replace(reply, text=reply.raw, calls=())
        elif reply.calls:
            reply = replace(reply, text=self._render_calls(reply), calls=())
        thought, text = self._written_reply(prompt, reply)
        ids = self._ids_after(prompt, prompt_ids, thought + text)
        if self.reasoning == "loss" or not thought:
            return ids, [1] * len(ids)
        same = shared_prefix_length(ids, self._ids_after(prompt, prompt_ids, thought))
        return ids, [0] * same + [1] * (len(ids) - same)

    def _render_calls(self, reply: PolicyReply) -> str:
        """Return a reply that calls tools as the template writes it, between the generation prompt
        and the end of the turn. Raises TrainError if the template does not show calls."""
        question: list[Message] = [{"role": "user", "content": SENTINEL}]
        reply_message: Message = {
            "role": "assistant",
            "content": reply.text,
            "tool_calls": reply.calls,
        }
        prompt_text = self._render_messages(question, add_generation_prompt=True)
        try:
            full_text = self._render_messages([*question, reply_message])
        except Exception as error:  # noqa: BLE001 - a template raises whatever it likes
            line = str(error).split("\n")[0]
            raise TrainError(f"the chat template refuses a call of tools: {line[:200]}") from None
        end = self.tokenizer.decode([self.end_of_turn])
        if not full_text.startswith(prompt_text):
            prompt_text = self._render_messages(question)
        text, separator, _ = full_text[len(prompt_text) :].rpartition(end)
        names = all(call.name in text for call in reply.calls)
        if not full_text.startswith(prompt_text) or not separator or not names:
            raise TrainError(
                "the chat template does not show calls of tools, so that they cannot be learnt; "
                "take a model whose template does, or conversations without tools"
            )
        return text

    def _written_reply(self, prompt: str, reply: PolicyReply) -> tuple[str, str]:
        """Return (reasoning, reply) exactly as the model wrote them after this prompt."""
        reasoning = reply.reasoning
        if reasoning is None or not (reasoning.text or reasoning.frame):
            return "", self.frame.head + reply.text
        before, after = self.frame.around_thought(prompt)
        text = reply.text
        if reasoning.frame is not None:
            first, after = reasoning.frame
            before = (first or before) if before else ""
            thought = reasoning.text
        else:
            thought, text = reasoning.text.strip("\n"), text.lstrip("\n")
        if self.reasoning == "drop":
            return ("", self.frame.head + text) if before else (after, text)
        return before + thought + after, text

    def _ids_after(self, prompt: str, prompt_ids: Sequence[int], text: str) -> list[int]:
        both = self._encode_text(prompt + text)
        if both[: len(prompt_ids)] == list(prompt_ids):
            return both[len(prompt_ids) :]
        return self._encode_text(
            text
        )  # a token would merge across the border, and none is sampled so

    def token_rows(
        self, replies: Sequence[PromptedReply], day: str = "", unit: Unit = "conversation"
    ) -> list[TokenRow]:
        """Return the rows of one conversation's replies.

        For unit `conversation` it is a single row if the template is prefix-stable (each prompt
        begins with the ids of the row so far), else one a reply. A row has prompt, reply and,
        unless the reply was cut, the end of turn.
        """
        row_ids: list[int] = []
        mask: list[int] = []
        turn_rows: list[TokenRow] = []
        stable = True
        for turn in replies:
            prompt = self.render_prompt(turn.messages, day)
            ids = self._encode_text(prompt)
            reply_ids, reply_mask = self.encode_reply(prompt, ids, turn.reply)
            end = 0 if turn.reply.cut else 1
            loss = reply_mask + [1] * end
            stable = stable and ids[: len(row_ids)] == row_ids
            turn_rows.append(
                TokenRow(
                    tuple(ids + reply_ids + [self.end_of_turn] * end),
                    tuple([0] * len(ids) + loss),
                )
            )
            mask += [0] * (len(ids) - len(row_ids)) + loss + [0] * (1 - end)
            row_ids = [*ids, *reply_ids, self.end_of_turn]
        if unit == "turn" or not stable or len(turn_rows) == 1:
            return turn_rows
        size = len(row_ids) - replies[-1].reply.cut
        return [TokenRow(tuple(row_ids[:size]), tuple(mask[:size]))]

    def _render_messages(
        self, messages: Sequence[Message], *, day: str = "", **options: Any
    ) -> str:
        for message in messages:
            if not isinstance(message["content"], str):
                raise TrainError("found an image in a message; the trainers take text only")
        seen = (
            messages
            if self.reasoning != "drop"
            else [_without_reasoning(message) for message in messages]
        )
        return self._apply_template(for_template(seen, parts=self._parts), day=day, **options)

    def _apply_template(
        self, messages: Sequence[Mapping[str, Any]], *, day: str = "", **overrides: Any
    ) -> str:
        text: str = self.tokenizer.apply_chat_template(
            list(messages),
            tokenize=False,
            chat_template=self._dated_template(day),
            **{**self._options, **overrides},
        )
        return text

    def _render_probe(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Return the text of messages that probe the template, in the form it expects."""
        if self._parts:
            messages = [
                {**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages
            ]
        return self._apply_template(messages, **options)

    def _dated_template(self, day: str) -> str:
        """Return the chat template with its clock stopped at `day`, so that a row shows the date of
        its conversation."""
        template = self.tokenizer.chat_template
        if isinstance(template, dict):
            template = template["default"]
        if not day or "strftime_now" not in template:
            return str(template)
        shown_date = date.fromisoformat(day)
        return _NOW.sub(lambda match: repr(shown_date.strftime(match.group(2))), str(template))

    def _encode_text(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _end_of_turn(self) -> int:
        """Return the token that ends an assistant turn: the first special one that the template
        writes after it, else the tokenizer's end of text."""
        chat: list[Message] = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": SENTINEL},
        ]
        tail = self._render_messages(chat).rpartition(SENTINEL)[2]
        added = self.tokenizer.added_tokens_decoder.items()
        special = {self.tokenizer.eos_token_id, *(i for i, token in added if token.special)}
        token_id = next((token for token in self._encode_text(tail) if token in special), None)
        if token_id is None:
            token_id = self.tokenizer.eos_token_id
        if token_id is None:
            raise TrainError("the tokenizer has no end-of-turn and no end-of-text token")
        return int(token_id)


def _without_reasoning(message: Message) -> Message:
    """Return a message without its reasoning."""
    if "reasoning" not in message:
        return message
    return {**message, "reasoning": None}  # type: ignore[typeddict-item]


def load_tokenizer(model: str) -> Any:
    """Return the tokenizer of a model, by path or Hub id.

    Raise TrainError if it cannot be loaded, MissingDependency without transformers.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingDependency(
            "transformers", needed_for="training", install=with_extra("train")
        ) from None
    try:
        return AutoTokenizer.from_pretrained(str(Path(model).expanduser()))
    except (OSError, ValueError) as error:
        raise TrainError(f"model {model!r}: tokenizer: {str(error).splitlines()[0]}") from None
