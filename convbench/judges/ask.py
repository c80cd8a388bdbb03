"""Ask a judge model, and ask again with a complaint while its reply cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from convbench import prompts
from convbench.errors import FatalModelError, ModelError
from convbench.judges.fence import (
    ABOUT,
    ABOUT_SET,
    ABOUT_SEVERAL,
    fence_transcript,
    fence_transcripts,
    quote_function,
)
from convbench.judges.instructions import with_instructions
from convbench.judges.replies import Complaint, Scores, read_reply
from convbench.judges.resolve import Judge
from convbench.models.model import Model
from convbench.schema import (
    Completion,
    Conversation,
    Example,
    JudgeSpec,
    Message,
    Sampling,
    text_of,
)
from convbench.views import transcript


class ModelCaller(Protocol):
    """Interface of what makes model calls: the engine's Caller."""

    async def complete(
        self, model: Model, messages: Sequence[Message], sampling: Sampling, *, key: str
    ) -> Completion:
        """Return the model's reply to these messages; `key` is the call's name in the journal, from
        which a call that is made again is answered. Raise ModelError if there is no reply."""
        ...


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ReplyForm(Generic[R]):
    """The expected form of a reply: its JSON schema, and its reader."""

    schema: Callable[[], dict[str, Any]]
    """Returns the schema; called only if the model takes one."""
    read: Callable[[str], R | Complaint]
    """Reads a reply, whether it follows the schema or not."""


@dataclass(frozen=True, slots=True)
class AskOutcome(Generic[R]):
    """The outcome of asking: what was read, or the complaint about the last reply, or the model's
    error; and all replies."""

    result: R | Complaint | ModelError
    replies: tuple[Completion, ...]

    def total_usage(self, name: str) -> Any:
        """Return the sum of a usage field (`prompt_tokens`, `completion_tokens`, `cost_usd`) over
        all replies; None without a reply, or if it is unknown for one."""
        values = [getattr(reply, name) for reply in self.replies]
        return None if not values or None in values else sum(values)


def judge_fields(example: Example, transcript: str) -> dict[str, Any]:
    """Return the fields of a rubric's templates: the example's inputs and hidden texts by name, and
    `question`, `choices`, `letters` (joined in words), `answer` (the gold answer or None) and
    `transcript`."""
    return {
        **example.inputs,
        **example.hidden,
        "question": example.question,
        "choices": example.choices,
        "letters": prompts.join_letters(example.letters),
        "answer": example.answer,
        "transcript": transcript,
    }


def judge_messages(
    spec: JudgeSpec,
    conversation: Conversation,
    example: Example,
    *,
    several: bool = False,
    key: str = "",
) -> list[Message]:
    """Return the messages to a rubric's model on one conversation: a system and a user message,
    rendered from the rubric's templates.

    With `several` conversations on the question their prompts have a common prefix; its length in
    characters is then in the user message's `stable`. The nonces of the transcript's marks are
    drawn from `key`, which names the request. Raise SpecError if a template cannot be rendered.
    """
    shared, own = _split_transcript(spec, conversation, key)
    fields = judge_fields(example, shared + own)
    system, prompt = render_prompts(spec, fields, shared + own)
    request: Message = {"role": "user", "content": prompt}
    before = prompt.find(fields["transcript"]) if several else 0
    if before > 0:
        request["stable"] = before + len(shared)
    return [{"role": "system", "content": system}, request]


def render_prompts(spec: JudgeSpec, fields: Mapping[str, Any], *fenced: str) -> tuple[str, str]:
    """Return a rubric's system prompt and its user prompt, rendered from `fields`, with the
    instructions that `criteria: appended` adds.

    `fenced` are texts that stand between marks already; with `fence: quoted` all others are quoted.
    Raise SpecError if a template cannot be rendered.
    """
    quote = quote_function(*fenced) if spec.fence == "quoted" else None
    system = prompts.render_template(spec.system or "", fields, f"judge {spec.name}: system", quote)
    prompt = prompts.render_template(spec.prompt or "", fields, f"judge {spec.name}: prompt", quote)
    return with_instructions(spec, system), prompt


def _split_transcript(spec: JudgeSpec, conversation: Conversation, key: str) -> tuple[str, str]:
    """Return the transcript in two parts: the scripted opening, which all samples of a question
    share, and the rest.

    It has every turn with its speaker, thinking in tags included, and no system prompt or step
    instruction (section E.3); with `sees_reasoning` also the reasoning of a separate channel.
    """
    own = (i for i, turn in enumerate(conversation.turns) if turn.finish_reason != "scripted")
    first = next(own, 0)
    if spec.fence in ("quoted", "nonce"):
        about = ABOUT + ABOUT_SET if spec.fence == "quoted" else ABOUT
        return fence_transcript(
            conversation, first, key, reasoning=spec.sees_reasoning, about=about
        )
    full_transcript = transcript(conversation, reasoning=spec.sees_reasoning)
    opening = transcript(conversation.model_copy(update={"turns": conversation.turns[:first]}))
    return opening, full_transcript[len(opening) :]


def takes_schema(spec: JudgeSpec, model: Model) -> bool:
    """Return whether the model is sent the reply's JSON schema: the rubric asks for structured
    replies, and the model takes a schema."""
    return spec.replies == "structured" and model.structured != "text"


def schema_of(spec: JudgeSpec) -> dict[str, Any]:
    """Return the JSON schema of a reply on one conversation or pair: an object with a key for each
    metric, in order, and no other.

    Each metric is an object of `score`, a number in the metric's range, and `justification`, a
    text. All keys are required.
    """
    metrics = {}
    for metric in spec.metrics:
        low, high = spec.score_limits(metric.name)
        score = {"type": "number", "minimum": low, "maximum": high}
        of_metric = _object_schema({"score": score, "justification": {"type": "string"}})
        metrics[metric.name] = {**of_metric, "description": metric.about or metric.label}
    return _object_schema(metrics)


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    more = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **more}


def form_of(spec: JudgeSpec) -> ReplyForm[Scores]:
    """Return the form of a rubric's reply on one conversation, or on a pair: the schema of its
    metrics, and the reader of scores (`read_reply`)."""
    return ReplyForm(lambda: schema_of(spec), lambda text: read_reply(text, spec))


async def ask_judge(
    caller: ModelCaller,
    model: Model,
    judge: Judge,
    messages: list[Message],
    key: str,
    start: int,
    form: ReplyForm[R],
) -> AskOutcome[R]:
    """Ask the model until a reply can be read, at most `spec.asks` times, and return the outcome:
    what was read, or the complaint about the last reply, or the model's error; and all replies.

    After an unreadable reply the complaint about it is sent. A call's journal key is
    `{key}#{number}`; `start` is the first number, so that a retry is not answered with old replies
    from the journal. A model error ends the asking; one that ends the run (wrong key, spent budget)
    is raised.
    """
    spec = judge.spec
    sampling = Sampling(
        temperature=spec.temperature,
        max_tokens=spec.max_tokens,
        reasoning_effort=spec.reasoning_effort,
        reply_schema=form.schema() if takes_schema(spec, model) else None,
    )
    replies: list[Completion] = []
    result: R | Complaint | ModelError = Complaint("no reply")
    for number in range(start, start + judge.spec.asks):
        try:
            reply = await caller.complete(model, messages, sampling, key=f"{key}#{number}")
        except ModelError as error:
            if isinstance(error, FatalModelError) and error.stops_run:
                raise
            return AskOutcome(error, tuple(replies))
        replies.append(reply)
        text = text_of(reply.content)
        result = form.read(text)
        if reply.finish_reason == "length" and text.rstrip()[-1:].isdigit():
            result = Complaint("Your reply was cut within a number. Please give a shorter one.")
        if not isinstance(result, Complaint):
            break
        messages = _with_complaint(messages, text, result.text)
    return AskOutcome(result, tuple(replies))


def _with_complaint(messages: list[Message], reply: str, complaint: str) -> list[Message]:
    """Return the messages with reply and complaint added. An empty reply is left out, since some
    providers refuse it; the complaint is then appended to the last message."""
    if reply.strip():
        exchange: list[Message] = [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": complaint},
        ]
        return messages + exchange
    last = messages[-1]
    return [*messages[:-1], {**last, "content": f"{text_of(last['content'])}\n\n{complaint}"}]


FIELDS = {"group": ("marks", "transcripts"), "pair": ("marks", "transcripts", "first", "second")}
"""Template fields for several conversations, by `per`, in addition to those of every rubric."""


def transcript_messages(
    spec: JudgeSpec, talks: Sequence[Conversation], example: Example, key: str
) -> list[Message]:
    """Return the messages, a system and a user message, for a judge of two conversations or of a
    group, which are shown in the order given.

    In addition to the fields of every rubric, templates have `marks` (an explanation of the marks
    around transcripts), `transcripts`, and for two `first` and `second`. The marks' nonces are
    drawn from `key`, which names the request. Raise SpecError if a template cannot be rendered.
    """
    if spec.fence in ("quoted", "nonce"):
        marks = ABOUT_SEVERAL + (ABOUT_SET if spec.fence == "quoted" else "")
        shown = fence_transcripts(talks, key, reasoning=spec.sees_reasoning)
    else:
        marks, shown = "", [transcript(talk, reasoning=spec.sees_reasoning) for talk in talks]
    fields: dict[str, Any] = {
        **judge_fields(example, "\n\n".join(shown)),
        "marks": marks,
        "transcripts": tuple(shown),
    }
    if len(shown) == 2:
        fields |= {"first": shown[0], "second": shown[1]}
    system, prompt = render_prompts(spec, fields, marks, *shown, fields["transcript"])
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
