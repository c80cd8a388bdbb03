"""Literal types that options and records share. Imports nothing heavy, for a fast command line."""

from __future__ import annotations

from typing import Literal

Mode = Literal["thinking", "standard"]
"""Whether a policy reasons in thinking tags."""
Split = Literal["train", "validation", "test"]
"""Split of the task that a question belongs to."""
SplitChoice = Literal["train", "validation", "test", "all"]
"""Choice of a user: one split, or all."""
ErrorKind = Literal["clustered", "naive"]
"""Standard errors clustered by group, or by conversation."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How long a model should reason, in the providers' own words (`reasoning_effort`)."""
Structured = Literal["json_schema", "text"]
"""How a model is made to follow a JSON schema: `response_format`, or not at all."""
