"""Fidelity checks: whether each speaker keeps to its part. Findings are flags; nothing is changed.

Each check is `fn(conversation, example, protocol) -> list of flags` and is named in a protocol's
`checks:`. A flag is `SPEAKER:FINDING`. The checks match wording that is rarely meant otherwise:
they miss some lapses and raise few false alarms.
"""

from __future__ import annotations

import re

from convbench.answers.final import final_answer
from convbench.answers.tags import TAG, opens_thinking
from convbench.rollout.fidelity import drop_repeats, spoken_turns
from convbench.rollout.giveaways import gives_answer_away, gives_away_disguised
from convbench.rollout.talk import DialogueState, after_student, after_teacher, resolve_references
from convbench.schema import Conversation, Example, ProtocolSpec, Turn, text_of
from convbench.views import heard_text

_SENTENCES = re.compile(r"[^.!?\n]+[.!?]*")
_PLEASANTRY = re.compile(
    r"^\W*(?:(?:that|this|it)(?:['’]s|\s+is)\s+)?(?:an?\s+)?(?:great|good|excellent|nice"
    r"|interesting|wonderful|thoughtful|fair)\b[^.!?]{0,40}\b(?:question|point|thought|one)\b"
    r"|^\W*(?:let['’]s|let\s+us|let\s+me)\s+(?:think|explore|consider|look|clarify|help)\b"
    r"|^\W*you\s+(?:asked|raise|have)\b[^.!?]{0,40}\bquestion\b"
    r"|^\W*(?:sure|of\s+course|okay|ok|great|hello|hi)\W*$",
    re.IGNORECASE,
)
_STUDENT = re.compile(
    r"\bas\s+(?:a|the|your)\s+(?:curious\s+)?student,?\s+I\b"
    r"|\bI(?:\s+am|['’]m)\s+(?:just\s+)?(?:a|the|your)\s+(?:curious\s+)?student\b"
    r"|\bmy\s+(?:final\s+)?answer\s+(?:is|would\s+be)\b"
    r"|\bmy\s+(?:clarifying\s+)?question\s+is\b"
    r"|\bthank(?:s|\s+you),?\s+teacher\b"
    r"|^[^\w\n]*+(?:student|assistant)[^\w:]*+:",
    re.IGNORECASE | re.MULTILINE,
)
_ASKS = re.compile(
    r"\?|^[^\w\n]*+(?:what|which|how|why|when|where|who|does|do|is|are|can|could|would|will)\b"
    r"|\b(?:clarify|explain|tell\s+me|wonder(?:ing)?|curious|know\s+(?:what|how|why|whether|if))\b",
    re.IGNORECASE | re.MULTILINE,
)


def words(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:words` for each speaker with a turn of more words than its step's `words`;
    each once, in the order of the turns.

    Words are split at whitespace. Thinking in the turn's text counts, its tags do not. Scripted
    turns, and steps without a limit, are not checked.
    """
    limits = {step.id: step.words for step in protocol.all_steps() if step.words is not None}
    flags = []
    for turn in spoken_turns(conversation):
        text = TAG.sub(" ", text_of(turn.content))
        if turn.step in limits and len(text.split()) > limits[turn.step]:
            flags.append(f"{turn.speaker}:words")
    return drop_repeats(flags)


def leak(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:leak` for each speaker but the policy that gives the answer away; each once.

    That is: it states an answer, advises or confirms one, or rules out all others (`giveaways`); it
    affirms or denies what the policy proposed (`talk`); or a disguise of its words gives it away
    (`answers.disguises`). Explaining the gold option is no leak. Scripted turns are not checked.
    """
    flags = []
    talk = DialogueState()
    for turn in spoken_turns(conversation):
        text = heard_text(protocol, turn)
        if turn.speaker == protocol.policy:
            talk = after_student(talk, text, example)
            continue
        words = resolve_references(talk, text, example)
        talk = after_teacher(talk, text, example)
        stated = gives_answer_away(words, example, asked_about=talk.asked_about)
        if talk.gives_away or stated or gives_away_disguised(text, example):
            flags.append(f"{turn.speaker}:leak")
    return drop_repeats(flags)


def asks(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:asks` for each speaker but the policy with a turn that only asks
    (`only_asks`); each once.

    A question after an answer ("Shall I go on?") is no lapse. Scripted turns are not checked.
    """
    return drop_repeats(
        [
            f"{turn.speaker}:asks"
            for turn in _other_turns(conversation, protocol)
            if only_asks(heard_text(protocol, turn))
        ]
    )


def role(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `SPEAKER:role` for each speaker but the policy that speaks as the student; each once.

    That is: it calls itself a student, gives "my answer", writes the other's lines, or thinks in
    the tags that only the policy is asked for. Scripted turns are not checked.
    """
    return drop_repeats(
        [
            f"{turn.speaker}:role"
            for turn in _other_turns(conversation, protocol)
            if opens_thinking(heard_text(protocol, turn))
            or _STUDENT.search(heard_text(protocol, turn))
        ]
    )


def answers(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[str]:
    """Return `POLICY:answers` if the policy answers the question where it should ask,
    `POLICY:no-question` if it asks nothing there; each once.

    It should ask in every turn that is directly followed by an unscripted turn of another speaker.
    A turn that answers is not checked for a question.
    """
    flags = []
    for turn, after in zip(conversation.turns, conversation.turns[1:], strict=False):
        if turn.speaker != protocol.policy or after not in _other_turns(conversation, protocol):
            continue
        text = text_of(turn.content)
        if final_answer(text, example.options) is not None:
            flags.append(f"{turn.speaker}:answers")
        elif not _ASKS.search(text):
            flags.append(f"{turn.speaker}:no-question")
    return drop_repeats(flags)


def only_asks(text: str) -> bool:
    """Return whether the text asks at least one question and states nothing; False for a text
    without a question.

    Statements of up to three words and polite phrases ("That is a good question.") do not count.
    """
    sentences = [match[0].strip() for match in _SENTENCES.finditer(text) if match[0].strip()]
    questions = [s for s in sentences if s.rstrip("*_\"' ").endswith("?")]
    stated = [
        s
        for s in sentences
        if s not in questions and len(s.split()) > 3 and not _PLEASANTRY.search(s)
    ]
    return bool(questions) and not stated


def _other_turns(conversation: Conversation, protocol: ProtocolSpec) -> list[Turn]:
    """Return the spoken turns of all but the policy."""
    return [turn for turn in spoken_turns(conversation) if turn.speaker != protocol.policy]
