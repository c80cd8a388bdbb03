"""Rules that find the faults of a simulated human, in what the policy heard of it.

They read wording and structure: what stands in the hidden reference, what was asked, what was said
before. They are kept to what is rarely meant otherwise; a model may look at the rest
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
    """Return the faults of all simulated humans, in order: speakers other than the policy whose
    turns it hears and that were not scripted."""
    found = []
    for scene in scenes(conversation, example, protocol):
        for name in dict.fromkeys(_of(scene)):
            found.append(made(scene, name, "rules"))
    return found


def made(scene: Scene, name: FaultName, by: str) -> Fault:
    """Return a fault of this turn: minor where the policy said nothing after it, or where its next
    question was answered as it should be; else critical, by whether it helps or hinders."""
    severity: Severity = "critical-helped" if name in HELPS else "critical-hindered"
    if not scene.heeded or (name in ("off-task", "refused") and _mended(scene)):
        severity = "minor"
    said = " ".join(scene.text.split())
    return Fault(name, severity, scene.index, scene.speaker, said[:EXCERPT], by)


def _mended(scene: Scene) -> bool:
    """Whether a later turn of the same speaker answers as it should."""
    return any(not list(_of(later)) for later in scene.later)


def _of(scene: Scene) -> Iterator[FaultName]:
    """Yield the faults of one turn."""
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
    """Whether a turn tells a secret that was not asked for: a run of a long one or its procedure,
    the private words of a short one."""
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
    """Whether a turn that answers a question about a short secret's key, or speaks of it, says
    other than its value."""
    said, asked = parts(scene.text), parts(scene.asked)
    if dont_know(scene.text):
        return False
    return any(
        not secret.values & said and (secret.keys <= said or secret.keys <= asked)
        for secret in scene.wishes
    )


def contradicts(scene: Scene) -> bool:
    """Whether a sentence says again what an earlier one said, but for a number, a negation or the
    one word that nobody asked for."""
    return any(against(scene.text, earlier, scene.public) for earlier in scene.own[:-1])
