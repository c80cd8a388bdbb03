"""Tokenizers with the chat templates that models ship."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from convbench.learn.tokens import load_tokenizer
from convbench.models.weights_path import check_weights
from convbench.schema import Tool
from tests.helpers import tiny
from tests.support.later import needs

needs("trl")

NOW = re.compile(r"strftime_now\([^)]*\)")
"""The clock has a test of its own."""
TRL = Path(str(find_spec("trl").origin)).parent
SHIPPED = {
    path.stem: NOW.sub("'20 Nov 2026'", path.read_text())
    for path in sorted((TRL / "chat_templates").glob("*.jinja"))
}
# chat_template of HuggingFaceTB/SmolLM2-135M-Instruct's tokenizer_config.json (Apache-2.0)
SHIPPED["smollm2"] = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SHIPPED["pocket"] = json.loads(
    (Path(check_weights("pocket")) / "tokenizer_config.json").read_text()
)["chat_template"]
pocket = cache(lambda: load_tokenizer(str(check_weights("pocket"))))


def tokenizer(name: str) -> Any:
    """Pocket's own, or a byte-level one with the template."""
    found = copy.copy(pocket() if name == "pocket" else tiny.tokenizer("llama-3.1"))
    found.chat_template = SHIPPED[name]
    return found


TOOL = Tool(
    name="lookup", about="Looks up.", function="x:y",
    parameters={"type": "object", "properties": {"item": {"type": "string"}}},
)  # fmt: skip
