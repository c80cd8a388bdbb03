"""Tools: what a model may call, its calls, and their results."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from convbench.schema.base import (
    Count,
    Dollars,
    FrozenModel,
    PythonRef,
    canonical_json,
    json_levels,
)
from convbench.schema.reasoning import Reasoning

MOST_CALLS = 64
"""Most calls of one reply."""
MOST_ARGUMENTS = 256 << 10
"""Most characters of a call's arguments."""
MOST_RESULT = 1 << 20
"""Most characters of a call's result."""
SCHEMA_BYTES = 16 << 10
"""Most bytes of a tool's JSON schema."""

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$", max_length=200)]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w-]*$", max_length=64)]


REFUSED_KEYS = frozenset({"$ref", "$dynamicRef", "$id", "$schema", "pattern", "patternProperties"})
"""Keys of a schema that refer elsewhere, or whose check runs a program."""


def _check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ValueError("expected a JSON schema of type object, with properties")
    for level in json_levels(schema):
        for key in (key for value in level if isinstance(value, dict) for key in value):
            if key in REFUSED_KEYS:
                line = f"found {key}, which is not supported; write the schema without it"
                raise ValueError(line)
    size = len(canonical_json(schema).encode())
    if size > SCHEMA_BYTES:
        raise ValueError(f"found {size:,} bytes; expected at most {SCHEMA_BYTES:,}")
    return schema


class ToolServer(FrozenModel):
    """A program of the user that offers tools over its stdin and stdout (MCP)."""

    command: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(min_length=1)
    """The program and its arguments; no shell reads them."""
    env: tuple[EnvName, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Environment variables that it gets in addition to PATH, HOME and the like."""
    tools: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Which of its tools are offered; empty: all."""


class Tool(FrozenModel):
    """A tool that a speaker may call."""

    name: ToolName
    """Name by which it is called."""
    about: str
    """Description for the model."""
    parameters: Annotated[dict[str, Any], AfterValidator(_check_schema)]
    """JSON schema of its arguments, an object."""
    function: PythonRef | None = None
    """Function `fn(arguments, fields)`, sync or async, that returns text or a JSON value."""
    python: bool = Field(default=False, exclude_if=lambda value: not value)
    """Run the argument `code` in the sandbox and return what it sets `result` to."""
    server: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The speaker's server that offers it, under the same name."""
    sees: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Hidden fields that the function gets, whether its speaker may use them or not."""

    @model_validator(mode="after")
    def _check_tool(self) -> Self:
        if self.python + (self.function is not None) + (self.server is not None) != 1:
            raise ValueError("give exactly one of function, python: true and server")
        if self.sees and self.function is None:
            raise ValueError("sees: only a function gets hidden fields")
        if self.python and "code" not in self.parameters["properties"]:
            raise ValueError("python: true takes its program from a parameter `code`")
        return self

    @property
    def wire(self) -> dict[str, Any]:
        """Return the tool as the chat API and chat templates take it: `{type: "function", function:
        {name, description, parameters}}`."""
        function = {"name": self.name, "description": self.about, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolLimits(FrozenModel):
    """Limits of tool use in one turn."""

    rounds: int = Field(default=8, ge=1, le=100)
    """Replies of a turn that call tools; the reply after them must do without."""
    calls: int = Field(default=8, ge=1, le=MOST_CALLS)
    """Calls of one reply that are run; the others are answered with an error."""
    seconds: float = Field(default=10.0, gt=0, le=600)
    """Seconds of one call."""
    output: int = Field(default=16 << 10, ge=1, le=MOST_RESULT)
    """Most bytes of one result; a longer one is cut and says so."""


class ToolCall(FrozenModel):
    """A model's call of a tool."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """Identifies its result."""
    name: Annotated[str, StringConstraints(max_length=200)]
    """The tool."""
    arguments: Annotated[str, StringConstraints(max_length=MOST_ARGUMENTS)]
    """JSON text, as the model wrote it."""

    @property
    def wire(self) -> dict[str, Any]:
        """Return the call as the chat API writes it: `{id, type: "function", function: {name,
        arguments}}`, arguments as JSON text."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class ToolResult(FrozenModel):
    """The result of a call."""

    id: str
    """Id of the call."""
    name: str
    """The tool."""
    content: Annotated[str, StringConstraints(max_length=MOST_RESULT + 200)]
    """Text for the model."""
    error: bool = Field(default=False, exclude_if=lambda value: not value)
    """Whether the call failed."""


class ToolRound(FrozenModel):
    """A reply that called tools, and their results."""

    content: str = ""
    """What was said with the calls."""
    reasoning: Reasoning | None = Field(default=None, exclude_if=lambda value: value is None)
    """What was thought before it."""
    calls: tuple[ToolCall, ...] = Field(min_length=1, max_length=MOST_CALLS)
    """The calls, in order."""
    results: tuple[ToolResult, ...] = Field(default=(), max_length=MOST_CALLS)
    """The results, in the calls' order."""
    raw: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The reply word for word, if the calls were in its text."""
    prompt_tokens: Count | None = None
    """Tokens of the prompt."""
    completion_tokens: Count | None = None
    """Tokens of the reply."""
    cost_usd: Dollars | None = None
    """Price of the reply; tools cost nothing."""
