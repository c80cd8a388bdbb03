"""Words that options and records share; nothing heavy, so that the command line starts at once."""

from __future__ import annotations

from typing import Literal

Mode = Literal["thinking", "standard"]
"""Whether a policy reasons in thinking tags."""
Split = Literal["train", "validation", "test"]
"""A question's part of the set."""
SplitChoice = Literal["train", "validation", "test", "all"]
"""What a user names: one split, or all."""
Regime = Literal["clean", "as-printed"]
"""The rules an experiment goes by: today's defaults, or what the paper's printed tables show."""
ErrorKind = Literal["clustered", "naive"]
"""Standard errors by group, or by conversation."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How long a model is to think, in the providers' own words (`reasoning_effort`)."""
Structured = Literal["json_schema", "tool", "text"]
"""How a model is made to reply by a JSON schema: `response_format`, a tool that it must call, or
not at all."""
DrawBy = Literal["uniform", "stratified", "score", "optimal"]
"""How conversations are drawn for people to label."""
Tracker = Literal["trackio", "wandb", "mlflow", "tensorboard"]
"""Experiment trackers, by their packages' names."""
