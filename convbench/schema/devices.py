"""Devices: which accelerators each part of a command runs on."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from convbench.schema.noun import Noun

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
