"""Rules that detect the faults of a simulated human, in the texts that the policy heard of it.

They use wording and structure: the hidden reference, the policy's questions, and earlier turns.
They cover wordings that are rarely meant otherwise; a model may review the rest
(`judge/review/verdict.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from convbench.judges.review.cues import (
    contradicts_earlier,
    dont_know,
    has_code,
    inverts_roles,
    off_task,
    picks_option,
    refuses_answer,
    retracts_statement,
    says_bye,
    tells_procedure,
    word_set,
)
from convbench.judges.review.faults import EXCERPT, HELPS, Fault, FaultName, Severity
from convbench.judges.review.scene import SHORT, HumanTurn, human_turns
from convbench.rollout.fidelity import tells_hidden
from convbench.schema import Conversation, Example, ProtocolSpec

VERSION = 1


def faults(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[Fault]:
    """Return the faults that rules find in the turns of all simulated humans, in order of turns,
    each fault once a turn; empty if there are none.

    These are speakers other than the policy whose turns it hears; scripted turns are left out.
    """
    all_faults = []
    for scene in human_turns(conversation, example, protocol):
        for name in dict.fromkeys(_turn_faults(scene)):
            all_faults.append(make_fault(scene, name, "rules"))
    return all_faults


def make_fault(scene: HumanTurn, name: FaultName, by: str) -> Fault:
    """Return a fault of this turn. It is minor if the policy said nothing after it, or (off-task,
    refused) if a later turn of the speaker has no fault; else critical, by whether it helps."""
    severity: Severity = "critical-helped" if name in HELPS else "critical-hindered"
    if not scene.is_heeded or (name in ("off-task", "refused") and _is_mended(scene)):
        severity = "minor"
    text = " ".join(scene.text.split())
    return Fault(name, severity, scene.index, scene.speaker, text[:EXCERPT], by)


def _is_mended(scene: HumanTurn) -> bool:
    """Return whether a later turn of the same speaker has no fault."""
    return any(not list(_turn_faults(later)) for later in scene.later_turns)


def _turn_faults(scene: HumanTurn) -> Iterator[FaultName]:
    """Yield the names of a turn's faults."""
    text = scene.text
    names: list[FaultName] = ["early"] if says_bye(text) else []
    if any(mark in text for mark in scene.marks) or inverts_roles(text):
        names.append("inverted")
    if has_code(text) or (
        scene.knows and picks_option(text, scene.example, scene.last_policy_text)
    ):
        names.append("answered")
    if refuses_answer(text):
        names.append("refused")
    if retracts_statement(text) or contradicts_itself(scene):
        names.append("changed")
    if off_task(text, scene.known_words):
        names.append("off-task")
    elif not names and strays_from_secret(scene):
        names.append("changed")
    yield from names
    if leaks_secret(scene):
        yield "leaked"


def leaks_secret(scene: HumanTurn) -> bool:
    """Return whether a turn reveals a secret unasked: a passage or the procedure of a long one, the
    private words of a short one."""
    if not scene.hidden:
        return False
    if tells_hidden(scene.own_texts, scene.hidden, scene.example.question) and not tells_hidden(
        scene.own_texts[:-1], scene.hidden, scene.example.question
    ):
        return True
    if any(len(secret.split()) > SHORT for secret in scene.hidden) and tells_procedure(scene.text):
        return True
    spoken, question = word_set(scene.text), word_set(scene.last_policy_text)
    return any(
        secret.values <= spoken
        and not secret.keys & question
        and not secret.keys <= scene.policy_words
        for secret in scene.requests
    )


def strays_from_secret(scene: HumanTurn) -> bool:
    """Return whether a turn mentions a short secret's key, or follows a question about it, and has
    none of its value's words. False for a turn that says it does not know."""
    spoken, question = word_set(scene.text), word_set(scene.last_policy_text)
    if dont_know(scene.text):
        return False
    return any(
        not secret.values & spoken and (secret.keys <= spoken or secret.keys <= question)
        for secret in scene.requests
    )


def contradicts_itself(scene: HumanTurn) -> bool:
    """Return whether a sentence of the turn repeats one of the speaker's earlier turns but for a
    number, a negation, or one word that was not in the question, its options or the policy's turns.
    """
    return any(
        contradicts_earlier(scene.text, earlier, scene.public_words)
        for earlier in scene.own_texts[:-1]
    )
