"""Run manifest (`run.json`): everything needed to know what a run is, written once.

The record; the folder that holds it is `store.run.Run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from convbench.schema.chat import Sampling
from convbench.schema.example import Split
from convbench.schema.noun import Label, Mode, Noun, Seed
from convbench.schema.protocol import ProtocolSpec
from convbench.schema.reasoning import ExtraBody, Reads, Replay
from convbench.schema.regime import RULES
from convbench.schema.task import TaskSpec
from convbench.words import Regime

RunKind = Literal["build", "import", "eval", "branch"]
RENDERING = frozenset({
    "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors",
    "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
})  # fmt: skip
"""Options of rendering a chat template that are not for it to see."""
MOST = 100_000
"""Samples of a question, and policy turns, that a run may have."""
EVALUATION = "evaluation"
"""Key of a manifest's `extra`: the folder's name that an evaluation was made as."""


class Member(Noun):
    """One speaker's part in the cast."""

    model: Label
    """Model reference as resolved, e.g. `openai/gpt-4o-mini`, `local:PATH`, `rule:pkg.mod:fn`,
    `script` for a speaker whose steps are all scripted."""
    short: Label | None = None
    """The short name (`models.yaml`) it was asked for by, whose settings hold."""
    sampling: Sampling = Sampling()
    """Sampling; the policy's temperature is set by sample."""
    api_base: str | None = None
    """Address of the server, where it is not the provider's own."""
    weights: str | None = None
    """Where the weights of a served name lie, so that training finds them."""
    fingerprint: str | None = None
    """Hash of local weights."""
    reads: Reads = Field(default="field", exclude_if=lambda value: value == "field")
    """Where its reasoning is read."""
    replay: Replay = Field(default="never", exclude_if=lambda value: value == "never")
    """Which of its earlier reasoning it is sent."""
    extra_body: ExtraBody = Field(default_factory=dict, exclude_if=lambda value: not value)
    """More fields of its requests."""
    own_sampling: dict[str, float] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """How its weights' own `generation_config.json` cuts sampling (`top_p`, `top_k`) where
    `sampling` does not say."""
    left_out: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Parameters that are known not to be sent; more may be learnt from its refusals, which the
    conversations tell."""

    @property
    def template(self) -> dict[str, Any]:
        """What its chat template is rendered with beside the messages."""
        said = self.extra_body.get("chat_template_kwargs")
        options = {k: v for k, v in said.items() if k not in RENDERING} if said else {}
        effort = self.sampling.reasoning_effort
        return options | ({"reasoning_effort": effort} if effort else {})


class RunManifest(Noun):
    """What a run is. A run never changes its specs or its cast."""

    format: Literal[1] = 1
    """Version of the run directory's layout."""
    id: Label
    """Unique: date, time, random digits."""
    kind: RunKind = "build"
    """How it came to be."""
    created: Label
    """UTC time, ISO 8601."""
    version: Label
    """convbench version."""
    task: TaskSpec
    """The task, resolved."""
    protocol: ProtocolSpec
    """The protocol, resolved."""
    mode: Mode
    """thinking or standard."""
    turns: int = Field(ge=0, le=MOST)
    """n."""
    samples: int = Field(ge=1, le=MOST)
    """Conversations an example."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    """Temperature of each sample; one value serves all."""
    seed: Seed
    """Seed of sampling, splits and conversations."""
    regime: Regime = "clean"
    """The rules its tables go by."""
    split: Literal["train", "validation", "test", "all"] = "all"
    """Which split was built."""
    cast: dict[str, Member]
    """Who speaks, by speaker."""
    source_revision: str | None = None
    """Commit the source's revision resolved to, or a hash of the rows."""
    parent: Label | None = None
    """Id of the run whose policy, teacher and judges this one follows (eval, branches)."""
    checkpoint: Label | None = None
    """The checkpoint or model an eval run evaluates."""
    pulled_from: Label | None = None
    """Hub repository and commit a pulled run came from; its specs are data, not code."""
    fingerprints: dict[str, str] = Field(default_factory=dict)
    """Fingerprints of task, protocol, cast and of all together (`specs`)."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the packages that matter to the result."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Free notes of importers."""

    @model_validator(mode="before")
    @classmethod
    def _read_as_its_regime(cls, data: Any) -> Any:
        """Give a protocol that was written before it had `answers` those of the run's regime."""
        if not isinstance(data, dict) or not isinstance(data.get("protocol"), dict):
            return data
        rules = RULES.get(data.get("regime") or "clean")
        if rules is None or rules.answers == "any":
            return data
        return data | {"protocol": {"answers": rules.answers} | data["protocol"]}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.temperatures) not in (1, self.samples):
            raise ValueError(
                f"found {len(self.temperatures)} temperatures for {self.samples} samples; "
                "expected one, or one for each sample"
            )
        if self.protocol.policy not in self.cast:
            raise ValueError(f"the cast lacks {self.protocol.policy}, the protocol's policy")
        return self

    def temperature(self, sample: int) -> float:
        """Temperature of this sample."""
        return self.temperatures[sample if len(self.temperatures) > 1 else 0]

    def samples_of(self, split: Split) -> int:
        """Conversations of a question of this split."""
        return min(self.samples, self.task.sample.each.get(split, self.samples))

    def planned(self, questions: Mapping[Split, int]) -> int:
        """Conversations that so many questions of each split are meant to have; 0 for an import,
        which has what it has."""
        asked = (one for one in questions if self.split in ("all", one))
        return 0 if self.kind == "import" else sum(self.samples_of(s) * questions[s] for s in asked)
