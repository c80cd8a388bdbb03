"""Families of models by name: a judge may prefer replies of its own family."""

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
"""Family → pattern of its models' names. The first match in this order counts, which decides for
names of distilled models that mention two families."""


def family_of(*names: str | None) -> str | None:
    """Return the family, such as `GPT` or `Llama`, of the first name that matches one; else None.

    Only the part of a name after its last slash counts, without regard to case. None and unknown
    names are skipped.
    """
    for name in names:
        text = (name or "").lower().rpartition("/")[2] or (name or "").lower()
        for family, pattern in FAMILIES.items():
            if pattern.search(text):
                return family
    return None
