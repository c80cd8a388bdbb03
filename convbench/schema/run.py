"""Run manifest (`run.json`): everything needed to know what a run is, with its regime and its
devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from convbench.schema.chat import Sampling
from convbench.schema.example import Split
from convbench.schema.noun import Label, Mode, Noun, Seed
from convbench.schema.protocol import AnswerReading, Framing, ProtocolSpec
from convbench.schema.reasoning import ExtraBody, Reads, Replay
from convbench.schema.task import TaskSpec
from convbench.words import ErrorKind, Regime


@dataclass(frozen=True, slots=True)
class Rules:
    """What a regime sets."""

    max_tokens: int | None
    """Limit of a reply where none is given; None leaves the default."""
    framing: Framing
    """How messages are framed, whatever the protocol says."""
    answers: AnswerReading
    """Which answers are read; `any` leaves a protocol's own."""
    errors: ErrorKind
    """Standard errors of its tables."""


RULES: Mapping[Regime, Rules] = {
    "clean": Rules(None, "none", "any", "clustered"),
    "as-printed": Rules(128, "llama-2", "strict", "naive"),
}


def reply_limit(max_tokens: int | None, regime: Regime | None) -> int | None:
    """Return the limit of one reply: the one given, else the regime's; None leaves the default."""
    return max_tokens or RULES[regime or "clean"].max_tokens


def in_regime(protocol: ProtocolSpec, regime: Regime) -> ProtocolSpec:
    """Return the protocol as the regime sets it; `clean` leaves a protocol's own."""
    rules = RULES[regime]
    framing = protocol.framing if rules.framing == "none" else rules.framing
    answers = protocol.answers if rules.answers == "any" else rules.answers
    if (framing, answers) == (protocol.framing, protocol.answers):
        return protocol
    return protocol.model_copy(update={"framing": framing, "answers": answers})


Role = Literal["policy", "teacher", "judge", "trainer"]
"""Who needs a device: the model that is trained, every other speaker, a judge's model, and what
trains."""


def _listed(value: Any) -> Any:
    """Return one number as a list of it."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


Numbers = Annotated[
    Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=64)] | None,
    BeforeValidator(_listed),
]
Flag = str | int | float | bool | None


class Devices(Noun):
    """Where policy, teacher, judge and trainer run, by the numbers of this machine's devices."""

    policy: Numbers = None
    """Devices of the policy, `[0, 1]` or `0`; an empty list is the CPU, null is any."""
    teacher: Numbers = None
    """Devices of the other speakers."""
    judge: Numbers = None
    """Devices of the judges' models."""
    trainer: Numbers = None
    """Devices of the training."""
    share: dict[Role, float] = Field(default_factory=dict)
    """Share of each device's memory, above 0 and up to 1, by who takes it; without one a sampler
    takes the whole card, as training always does."""
    vllm: dict[Role, dict[str, Flag]] = Field(default_factory=dict)
    """Who is served by a vLLM of its own, with that server's arguments by name, e.g. `judge:
    {max-model-len: 8192}`; true stands for an argument without a value, `port` fixes the port."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for role, share in self.share.items():
            if not 0 < share <= 1:
                raise ValueError(f"share.{role}: found {share!r}; expected above 0 and up to 1")
        for name, found in (("share", self.share), ("vllm", self.vllm)):
            if "trainer" in found:
                raise ValueError(f"{name}.trainer: found one; training takes whole devices")
        for role in ("policy", "teacher", "judge", "trainer"):
            numbers = self.of(role) or ()
            if len(set(numbers)) != len(numbers):
                raise ValueError(f"{role}: found {list(numbers)}; expected each device once")
        return self

    def of(self, role: str) -> tuple[int, ...] | None:
        """Return the devices of one part; None where nothing is said of it."""
        found: tuple[int, ...] | None = getattr(self, role)
        return found


RunKind = Literal["build", "import", "eval", "branch"]
RENDERING = frozenset(
    {
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)
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
