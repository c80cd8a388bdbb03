"""Rules that detect the faults of a simulated human, in the texts that the policy heard of it.

They use wording and structure: the hidden reference, the policy's questions, and earlier turns.
They cover wordings that are rarely meant otherwise; a model may review the rest
(`judge/review/verdict.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from convbench.judge.review.cues import (
    against,
    code,
    dont_know,
    inverts,
    off_task,
    parts,
    picks,
    refuses,
    retracts,
    says_bye,
    tells_procedure,
)
from convbench.judge.review.faults import EXCERPT, HELPS, Fault, FaultName, Severity
from convbench.judge.review.scene import SHORT, Scene, scenes
from convbench.rollout.fidelity import tells
from convbench.schema import Conversation, Example, ProtocolSpec

VERSION = 1


def faults(conversation: Conversation, example: Example, protocol: ProtocolSpec) -> list[Fault]:
    """Return the faults of all simulated humans, in order of turns. These are speakers other than
    the policy whose turns it hears; scripted turns are left out."""
    found = []
    for scene in scenes(conversation, example, protocol):
        for name in dict.fromkeys(_of(scene)):
            found.append(made(scene, name, "rules"))
    return found


def made(scene: Scene, name: FaultName, by: str) -> Fault:
    """Return a fault of this turn. It is minor if the policy said nothing after it, or (off-task,
    refused) if a later turn of the speaker has no fault; else critical, by whether it helps."""
    severity: Severity = "critical-helped" if name in HELPS else "critical-hindered"
    if not scene.heeded or (name in ("off-task", "refused") and _mended(scene)):
        severity = "minor"
    said = " ".join(scene.text.split())
    return Fault(name, severity, scene.index, scene.speaker, said[:EXCERPT], by)


def _mended(scene: Scene) -> bool:
    """Return whether a later turn of the same speaker has no fault."""
    return any(not list(_of(later)) for later in scene.later)


def _of(scene: Scene) -> Iterator[FaultName]:
    """Yield the names of a turn's faults."""
    text = scene.text
    found: list[FaultName] = ["early"] if says_bye(text) else []
    if any(mark in text for mark in scene.marks) or inverts(text):
        found.append("inverted")
    if code(text) or (scene.knows and picks(text, scene.example, scene.asked)):
        found.append("answered")
    if refuses(text):
        found.append("refused")
    if retracts(text) or contradicts(scene):
        found.append("changed")
    if off_task(text, scene.known):
        found.append("off-task")
    elif not found and strays(scene):
        found.append("changed")
    yield from found
    if leaks(scene):
        yield "leaked"


def leaks(scene: Scene) -> bool:
    """Return whether a turn reveals a secret unasked: a passage or the procedure of a long one, the
    private words of a short one."""
    if not scene.hidden:
        return False
    if tells(scene.own, scene.hidden, scene.example.question) and not tells(
        scene.own[:-1], scene.hidden, scene.example.question
    ):
        return True
    if any(len(secret.split()) > SHORT for secret in scene.hidden) and tells_procedure(scene.text):
        return True
    said, asked = parts(scene.text), parts(scene.asked)
    return any(
        secret.values <= said and not secret.keys & asked and not secret.keys <= scene.told
        for secret in scene.wishes
    )


def strays(scene: Scene) -> bool:
    """Return whether a turn that answers a question about a short secret's key, or mentions it,
    differs from its value."""
    said, asked = parts(scene.text), parts(scene.asked)
    if dont_know(scene.text):
        return False
    return any(
        not secret.values & said and (secret.keys <= said or secret.keys <= asked)
        for secret in scene.wishes
    )


def contradicts(scene: Scene) -> bool:
    """Return whether a sentence repeats an earlier one but for a number, a negation, or one word
    that the policy did not ask about."""
    return any(against(scene.text, earlier, scene.public) for earlier in scene.own[:-1])
