"""Which family of models a name is of: what a judge may prefer because it is its own."""

from __future__ import annotations

import re

FAMILIES: dict[str, re.Pattern[str]] = {
    family: re.compile(pattern)
    for family, pattern in {
        "GPT": r"\b(?:chat)?gpt|\bo[1345](?:-(?:mini|pro|preview))?\b",
        "Claude": r"\bclaude",
        "Gemini": r"\bgemini|\bgemma",
        "Llama": r"llama|\bvicuna",
        "Qwen": r"\bqw[eq]n?",
        "Mistral": r"mi[sx]tral|\bministral|\bmagistral|\bcodestral|\bzephyr",
        "DeepSeek": r"deepseek",
        "Phi": r"\bphi-?\d",
        "Grok": r"\bgrok",
        "Command": r"\bcommand-?[ar]\b|\baya\b",
        "OLMo": r"\bolmo|\btulu",
        "SmolLM": r"smollm",
        "GLM": r"\b(?:chat)?glm",
        "Kimi": r"\bkimi",
        "pocket": r"\bpocket\b",
    }.items()
}
"""By name, how its models are called; the first that fits counts, so that distilled models are of
the family that comes last in their name only where none before it fits."""


def family_of(*names: str | None) -> str | None:
    """Return the family of the first name that tells one; None where none does."""
    for name in names:
        text = (name or "").lower().rpartition("/")[2] or (name or "").lower()
        for family, pattern in FAMILIES.items():
            if pattern.search(text):
                return family
    return None
