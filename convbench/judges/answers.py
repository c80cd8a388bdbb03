"""Judge kind `answers`: a model reads the final answers that the strict reader leaves unread.

It is shown the question and the policy's last turn, never the right letter, and replies with the
letter of the option that the turn settles on, or none. For a question without options it is shown
the gold text, and says whether the turn gives it. Its verdicts hold no score and no reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.judges.ask import ReplyForm
from convbench.judges.model import ask_about, failure_parts, usage_fields
from convbench.judges.model import open_kind as open_kind
from convbench.judges.replies import Complaint
from convbench.judges.verdicts import reading_verdict, unscorable_verdict
from convbench.judges.work import Case, JudgeTools
from convbench.schema import Conversation, Example, ProtocolSpec, Verdict
from convbench.store.grades import Reading, graded_rows
from convbench.store.run import Run
from convbench.util.extract import first_object
from convbench.views import policy_turns

NONE = "none"


def unread_conversations(run: Run) -> Iterator[str]:
    """Yield the ids of the conversations whose answer is unread, and of those about a question
    without options that has a gold text, whose answer nothing else can grade."""
    for row, _, graded in graded_rows(run, "all", read=False):
        example = run.examples[row.example_id]
        open_gold = not example.choices and example.answer is not None
        if row.ended and (open_gold or (example.choices and not graded.answered)):
            yield row.conversation_id


def last_turn(protocol: ProtocolSpec, conversation: Conversation) -> Conversation:
    """Return the conversation with the policy's last turn alone."""
    last = policy_turns(protocol, conversation)[-1:]
    turns = tuple(conversation.turns[index] for index in last)
    return conversation.model_copy(update={"turns": turns})


def answers_form(example: Example) -> ReplyForm[Reading]:
    """Return the form of a reply: one of the letters or none, or whether the gold text is given."""
    if example.choices:
        value: dict[str, Any] = {"type": "string", "enum": [*example.letters, NONE]}
        key = "answer"
    else:
        key, value = "gives_answer", {"type": "boolean"}
    schema = {
        "type": "object",
        "properties": {key: value},
        "required": [key],
        "additionalProperties": False,
    }

    def read(reply: str) -> Reading | Complaint:
        found = (first_object(reply) or {}).get(key)
        if key == "gives_answer" and isinstance(found, bool):
            return Reading(None, found)
        if key == "answer" and found in value["enum"]:
            return Reading(None if found == NONE else found, None)
        expected = f"one of {', '.join(value['enum'])}" if example.choices else "true or false"
        return Complaint(
            f'Your reply could not be read: expected {{"{key}": …}} with {expected}. Please reply '
            "with this object alone."
        )

    return ReplyForm(lambda: schema, read)


async def score(case: Case, tools: JudgeTools) -> Verdict:
    """Return what the model read, without scores, as `details` of a verdict: `answer`, a letter or
    None, or `gives_answer`; a failed verdict if no reply could be read or the model gave an error.

    An error that ends the run (wrong key, spent budget) is raised; so is DataError without a model.
    """
    judge, conversation = case.judge, case.conversation
    shown = last_turn(case.protocol, conversation)
    done = await ask_about(case, tools, shown, answers_form(case.example))
    usage = usage_fields(done, case.attempts)
    if isinstance(done.result, Reading):
        usage["details"] |= done.result.details
        return reading_verdict(judge, conversation.conversation_id, **usage)
    kind, message, raw = failure_parts(done)
    return unscorable_verdict(
        judge, conversation.conversation_id, kind, message, reply=raw, **usage
    )
