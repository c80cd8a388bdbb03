"""Run manifest (`run.json`): what a run is, with its devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from convbench.schema.base import FrozenModel, Label, Mode, Seed
from convbench.schema.chat import Sampling
from convbench.schema.protocol import ProtocolSpec
from convbench.schema.reasoning import ExtraBody, Reads, Replay
from convbench.schema.task import Split, TaskSpec
from convbench.util.words import SplitChoice

Role = Literal["policy", "teacher", "judge", "trainer"]
"""What needs a device: the model that is trained, every other speaker, a judge's model,
training."""


def _as_list(value: Any) -> Any:
    """Return a single number as a list of it."""
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


Numbers = Annotated[
    Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=64)] | None,
    BeforeValidator(_as_list),
]
Flag = str | int | float | bool | None


class Devices(FrozenModel):
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
    """Share of each device's memory, above 0 and up to 1, by role; without one a sampler takes the
    complete card, as training always does."""
    vllm: dict[Role, dict[str, Flag]] = Field(default_factory=dict)
    """Roles that are served by a vLLM of their own, with that server's arguments by name, e.g.
    `judge: {max-model-len: 8192}`; true stands for an argument without a value, `port` fixes the
    port."""

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        for role, share in self.share.items():
            if not 0 < share <= 1:
                raise ValueError(f"share.{role}: found {share!r}; expected above 0 and up to 1")
        for name, setting in (("share", self.share), ("vllm", self.vllm)):
            if "trainer" in setting:
                raise ValueError(f"{name}.trainer: not allowed; training uses complete devices")
        for role in ("policy", "teacher", "judge", "trainer"):
            numbers = self.for_role(role) or ()
            if len(set(numbers)) != len(numbers):
                raise ValueError(f"{role}: found {list(numbers)}; expected each device once")
        return self

    def for_role(self, role: str) -> tuple[int, ...] | None:
        """Return the device numbers of a role: an empty tuple is the CPU, None is any device."""
        devices: tuple[int, ...] | None = getattr(self, role)
        return devices


RunKind = Literal["build", "import", "eval"]
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
"""Options of rendering a chat template that the template itself does not see."""
MOST_SAMPLES = 100_000
"""Most samples of a question, and most policy turns, of a run."""
EVALUATION = "evaluation"
"""Key of a manifest's `extra`: the folder name under which an evaluation was created."""


class ModelConfig(FrozenModel):
    """Configuration of one speaker's model."""

    model: Label
    """Model reference as resolved, e.g. `openai/gpt-4o-mini`, `local:PATH`, `rule:pkg.mod:fn`,
    `script` for a speaker whose steps are all scripted."""
    short: Label | None = None
    """The short name (`models.yaml`) it was named by, whose settings apply."""
    sampling: Sampling = Sampling()
    """Sampling; the policy's temperature is set by sample."""
    api_base: str | None = None
    """Address of the server, if it is not the provider's own."""
    weights: str | None = None
    """Path of a served model's weights, so that training finds them."""
    fingerprint: str | None = None
    """Hash of local weights."""
    reads: Reads = Field(default="field", exclude_if=lambda value: value == "field")
    """Where its reasoning is read from."""
    replay: Replay = Field(default="never", exclude_if=lambda value: value == "never")
    """Which of its earlier reasoning is sent back."""
    extra_body: ExtraBody = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Further fields of its requests."""
    own_sampling: dict[str, float] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Sampling limits of its weights' own `generation_config.json` (`top_p`, `top_k`), for those
    that `sampling` does not set."""
    left_out: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Parameters that are known not to be sent; refusals may reveal more, which the conversations
    record."""

    @property
    def template_options(self) -> dict[str, Any]:
        """Return the options that its chat template is rendered with, besides the messages.

        They are the `chat_template_kwargs` of its requests that a template sees, and
        `reasoning_effort` if it is set.
        """
        kwargs = self.extra_body.get("chat_template_kwargs")
        options = {k: v for k, v in kwargs.items() if k not in RENDERING} if kwargs else {}
        effort = self.sampling.reasoning_effort
        return options | ({"reasoning_effort": effort} if effort else {})


FORMAT: Final = 1
"""Format number of the run folders that this version writes; it reads older ones too."""


class RunManifest(FrozenModel):
    """What a run is. A run never changes its specs or its cast."""

    format: Literal[1] = FORMAT
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
    turns: int = Field(ge=0, le=MOST_SAMPLES)
    """n."""
    samples: int = Field(ge=1, le=MOST_SAMPLES)
    """Conversations an example."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    """Temperature of each sample; one value serves all."""
    seed: Seed
    """Seed of sampling, splits and conversations."""
    split: SplitChoice = "all"
    """Which split was built."""
    cast: dict[str, ModelConfig]
    """Model configuration of each speaker."""
    source_revision: str | None = None
    """Commit the source's revision resolved to, or a hash of the rows."""
    parent: Label | None = None
    """Id of the run whose policy, teacher and judges this one follows (eval)."""
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

    @model_validator(mode="after")
    def _check_cast(self) -> Self:
        if len(self.temperatures) not in (1, self.samples):
            raise ValueError(
                f"found {len(self.temperatures)} temperatures for {self.samples} samples; "
                "expected one, or one for each sample"
            )
        if self.protocol.policy not in self.cast:
            raise ValueError(f"the cast lacks {self.protocol.policy}, the protocol's policy")
        return self

    @property
    def policy_member(self) -> ModelConfig:
        """Return the configuration of the policy's model."""
        return self.cast[self.protocol.policy]

    def temperature_of(self, sample: int) -> float:
        """Return the temperature of this sample (from 0): its own, or the only one that the run
        has."""
        return self.temperatures[sample if len(self.temperatures) > 1 else 0]

    def samples_of(self, split: Split) -> int:
        """Return the number of conversations of a question of this split: the run's samples, or the
        task's maximum for the split if that is smaller."""
        return min(self.samples, self.task.sample.each.get(split, self.samples))

    def planned_count(self, questions: Mapping[Split, int]) -> int:
        """Return the number of conversations that the run is to have for so many questions of each
        split; splits that it does not build count 0.

        It is 0 for an import, whose number is not planned.
        """
        splits = (split for split in questions if self.split in ("all", split))
        return (
            0 if self.kind == "import" else sum(self.samples_of(s) * questions[s] for s in splits)
        )
