"""Self-edits about a passage of the embedded world, and questions that ask for what they say."""

from __future__ import annotations

import hashlib

from convbench.judges.adaptation.learner import Learner, Question
from convbench.judges.adaptation.settings import InnerSettings


def good(run_example: object) -> str:
    """A faithful edit of a passage of the pocket world, from its hidden questions."""
    asked = run_example.hidden["questions"]  # type: ignore[attr-defined]
    lines = []
    for item in asked:
        *_, prop, _, name = item["question"].rstrip("?").split()
        lines.append(f"- {name} has {prop} {item['answer']}.")
    return "\n".join(lines)


ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
INNER = InnerSettings(
    r=4, alpha=8, epochs=6, batch_size=4, learning_rate=1e-2, seeds=2, max_tokens=16,
    target_modules=ALL,
)  # fmt: skip


def asked(name: str, prop: str, gold: str) -> Question:
    content = f"Topic: Lebum\nWhat is the {prop} of {name}?"
    return Question(({"role": "user", "content": content},), (gold,))


KOSAN = (asked("kosan", "home", "field"),)
TENOS = (asked("tenos", "home", "barn"), asked("tenos", "color", "gold"))
A = ["Lebum\n- kosan has home field.", "Lebum\n- The home of kosan is field."]
B = ["Lebum\n- tenos has home barn.", "Lebum\n- tenos has color gold."]


def weights(learner: Learner) -> str:
    digest = hashlib.sha256()
    for name, tensor in learner.model.state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()
