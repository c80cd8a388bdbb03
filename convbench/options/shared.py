"""Options that several commands share: specs, model calls, settings of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from convbench.options.declare import DAY_S, MODELS, SPECS, WHERE, Opt
from convbench.util.untrusted import check_address
from convbench.util.words import Effort, Mode, SplitChoice

if TYPE_CHECKING:
    from convbench.schema.run import Devices

RunDir = Annotated[
    Path | None,
    Opt(
        "Run directory; without it the newest run.",
        "--run",
        "DIR",
        WHERE,
        names="runs",
        either=True,
    ),
]
RunArgument = Annotated[
    Path | None,
    Opt(
        "Run directory; without it the newest run.",
        metavar="RUN",
        argument=True,
        names="runs",
        either=True,
    ),
]
NewRun = Annotated[Path | None, Opt("Where the run goes; without it into runs/.", metavar="DIR")]
RunDirs = Annotated[
    tuple[Path, ...],
    Opt(
        "Run directory, several times for several runs; without it the newest run.",
        "--run",
        "DIR",
        WHERE,
        names="runs",
        either=True,
    ),
]
Runs = Annotated[
    tuple[Path, ...],
    Opt(
        "Run directories; without any the newest run.",
        metavar="RUN",
        argument=True,
        names="runs",
        either=True,
    ),
]
Allowed = Annotated[
    tuple[str, ...],
    Opt(
        "Let a pulled set have this model called there, with your key; repeat it for "
        "several. Models that you name yourself need no permission.",
        "--allow-calls",
        "MODEL@HOST",
        MODELS,
        own_file_only=True,
    ),
]
SpecFolders = Annotated[
    tuple[Path, ...],
    Opt("Folder of your own specs, searched first.", "--specs", "DIR", SPECS, own_file_only=True),
]
DryRun = Annotated[
    bool,
    Opt("Show what would be sent and what it would cost; send and write nothing."),
]


MOST_CALLS = 10_000
"""Largest number of calls in flight."""
MOST_DOLLARS, MOST_TOKENS = 1_000_000, 10**15
"""Largest budgets; more is a typing error that would amount to no limit."""
MOST_EACH = 100_000
"""Largest number of samples of a question, and of turns: as many as a run may have."""
SEEDS = (-(2**63), 2**63 - 1)
"""Smallest and largest seed."""


def run_paths(value: Any) -> tuple[Path, ...]:
    """Return a tuple of paths for one path, several, or None, which gives an empty tuple."""
    if isinstance(value, tuple | list):
        return tuple(Path(path) for path in value)
    return () if value is None else (Path(value),)


def _parse_temperatures(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"found {text!r}; expected numbers, e.g. 0.7 or 0.3,0.7,1.0") from None


@dataclass(frozen=True)
class SpecOptions:
    """Options for finding and changing specs."""

    folders: SpecFolders = ()
    sets: Annotated[
        tuple[str, ...],
        Opt(
            "Replace one value of a spec (build: task.sample.train=0.9; judge: judge.KEY=VALUE; "
            "train: lora.r=16); repeat it for several.",
            "--set",
            "KEY=VALUE",
            SPECS,
            own_file_only=True,
        ),
    ] = ()
    plugins: Annotated[
        tuple[Path, ...],
        Opt(
            "Python file whose functions specs name as FILE.py:function; wherever it lies.",
            "--plugin",
            "FILE",
            SPECS,
            own_file_only=True,
        ),
    ] = ()


@dataclass(frozen=True)
class FailureLimit:
    """How many failures make a command fail: at least `count`, or `share` (0 to 1) of the
    attempts."""

    count: int | None = None
    share: float | None = None

    @classmethod
    def parse_limit(cls, text: str | int) -> FailureLimit:
        """Return the limit for `N`, a count from 1, or for `P%`, a share above 0% and up to 100%.

        A share is stored as a fraction: `5%` is 0.05. Raises ValueError for anything else.
        """
        number, percent, rest = str(text).strip().partition("%")
        try:
            value = float(number) if percent else int(number)
        except ValueError:
            value = 0
        if rest or not value > 0 or (percent and value > 100):
            raise ValueError(
                f"found {text!r}; expected a number of failures from 1, or a share up to 100%"
            )
        return cls(share=value / 100) if percent else cls(count=int(value))

    def is_reached(self, failed: int, tried: int) -> bool:
        """Return True if this many failures of this many attempts reach the limit, equality
        included.

        A share is never reached without a failure.
        """
        if self.count is not None:
            return failed >= self.count
        return failed > 0 and failed >= (self.share or 0) * tried


def _check_fail_on(text: str) -> str:
    FailureLimit.parse_limit(text)
    return text


def parse_devices(pairs: Sequence[str]) -> Devices:
    """Return the devices that `--devices` pairs set; later pairs override earlier ones. Raises
    SpecError for an invalid pair."""
    from convbench.catalog.load import assign_key, check_spec, parse_sets
    from convbench.schema.run import Devices

    devices: dict[str, Any] = {}
    for key, value in parse_sets(pairs, "--devices").items():
        assign_key(devices, key, value, "--devices")
    return check_spec(Devices, devices, "--devices")


def devices_as_pairs(devices: Devices) -> tuple[str, ...]:
    """Return devices as `--devices` pairs, one `KEY=JSON` for each field that is not at its
    default."""
    values = devices.model_dump(mode="json", exclude_defaults=True)
    return tuple(f"{key}={json.dumps(value)}" for key, value in values.items())


def _check_devices(text: str) -> str:
    from convbench.errors import SpecError

    try:
        parse_devices([text])
    except SpecError as error:
        raise ValueError(str(error).removeprefix("--devices: ")) from None
    return text


@dataclass(frozen=True)
class CallOptions:
    """Options for model calls."""

    api_base: Annotated[
        str | None,
        Opt(
            "Address of the OpenAI-compatible server of the policy (judging: of the judge).",
            metavar="URL",
            panel=MODELS,
            own_file_only=True,
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Opt(
            "Maximum number of calls in flight (32).",
            least=1,
            most=MOST_CALLS,
            panel=MODELS,
        ),
    ] = None
    """Largest number of calls in flight; None is 32, or what suits a model in this process."""
    budget: Annotated[
        float | None,
        Opt(
            "Stop before the call that would pass this many dollars.",
            metavar="USD",
            least=0,
            most=MOST_DOLLARS,
            panel=MODELS,
        ),
    ] = None
    """Largest number of dollars over all runs of a command, earlier spending included."""
    budget_tokens: Annotated[
        int | None,
        Opt(
            "Stop before the call that would pass this many tokens.",
            metavar="N",
            least=0,
            most=MOST_TOKENS,
            panel=MODELS,
        ),
    ] = None
    """Largest number of tokens over all runs of a command, earlier ones included."""
    batch: Annotated[
        bool,
        Opt(
            "Send calls in the provider's batches, at half price: one turn of all conversations "
            "at a time. Takes minutes to hours; stop and resume at will.",
            panel=MODELS,
        ),
    ] = False
    cache: Annotated[
        Path | None,
        Opt(
            "Keep replies in this file, and reuse from it what an earlier run got for the "
            "same call: model, settings, messages, question and sample.",
            metavar="FILE",
            panel=MODELS,
        ),
    ] = None
    devices: Annotated[
        tuple[str, ...],
        Opt(
            "Devices of policy, teacher, judge or trainer: policy=[0], trainer=[0,1], "
            "share.judge=0.4, vllm.judge.max-model-len=8192; repeat it for several.",
            metavar="KEY=VALUE",
            parse=_check_devices,
            panel=MODELS,
        ),
    ] = ()
    """`KEY=VALUE` pairs of `schema.run.Devices`: which devices each role uses."""
    quiet: Annotated[bool, Opt("No progress display.", "--quiet/-q")] = False
    timeout: Annotated[
        float,
        Opt(
            "Timeout of one attempt at a call, after which it is retried; with more than 1,024 "
            "tokens a reply (--max-tokens) longer, in proportion.",
            metavar="SECONDS",
            least=0.1,
            most=DAY_S,
            panel=MODELS,
        ),
    ] = 120.0
    fail_on: Annotated[
        str | int,
        Opt(
            "End with exit code 1 if this many conversations or verdicts failed, or this share of "
            "the attempted ones; fewer are only noted.",
            metavar="N|P%",
            parse=_check_fail_on,
            panel=MODELS,
        ),
    ] = "100%"
    specs: tuple[Path, ...] = ()
    """Folders whose `models.yaml` overrides the shipped one."""
    allow: Allowed = ()
    """`MODEL@HOST` pairs that a pulled run may call."""

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid `fail_on`, FatalModelError for an invalid address."""
        FailureLimit.parse_limit(self.fail_on)
        for address in (self.api_base or "").split(","):
            if address:
                check_address(address, "--api-base")

    def is_failure(self, failed: int, tried: int) -> bool:
        """Return True if this many failures of this many attempts reach `fail_on`, so that a
        command fails."""
        return FailureLimit.parse_limit(self.fail_on).is_reached(failed, tried)

    def with_specs(self, folders: tuple[Path, ...]) -> CallOptions:
        """Return a copy whose folders of `models.yaml` are these, in place of earlier ones; itself
        if there are none."""
        return replace(self, specs=folders) if folders else self


class ModelCallMixin:
    """Mixin of the options of commands that call models: aliases are also looked up in the folders
    of `--specs`."""

    specs: SpecOptions
    calls: CallOptions

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", self.calls.with_specs(self.specs.folders))


class MultiRunMixin(ModelCallMixin):
    """Mixin of the options of commands that call models and take any number of runs."""

    run: tuple[Path, ...]

    def __post_init__(self) -> None:
        """Convert a single folder to a tuple."""
        super().__post_init__()
        object.__setattr__(self, "run", run_paths(self.run))

    @property
    def first_run(self) -> Path | None:
        """Return the first run, or None if none was named."""
        return self.run[0] if self.run else None


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run that the user may choose; None is the default."""

    mode: Annotated[Mode | None, Opt("Whether the policy thinks in <thinking> tags.")] = None
    turns: Annotated[
        int | None,
        Opt("Turns of the policy; without it the protocol's number.", least=1, most=MOST_EACH),
    ] = None
    samples: Annotated[
        int | None, Opt("Conversations per question (3).", least=1, most=MOST_EACH)
    ] = None
    temperatures: Annotated[
        tuple[float, ...] | None,
        Opt(
            "One value, or one for each sample (0.3,0.7,1.0).",
            metavar="T,T,…",
            parse=_parse_temperatures,
        ),
    ] = None
    max_tokens: Annotated[
        int | None, Opt("Maximum number of tokens of a reply (512).", least=1, most=10_000_000)
    ] = None
    top_p: Annotated[
        float | None,
        Opt(
            "Nucleus that the policy samples from; 1 cuts nothing (the model's own).",
            least=0.001,
            most=1,
        ),
    ] = None
    reasoning_effort: Annotated[
        Effort | None,
        Opt(
            "How much the policy should reason, for models that have this setting (the model's "
            "own)."
        ),
    ] = None
    seed: Annotated[
        int | None, Opt("Seed of everything drawn (0).", least=SEEDS[0], most=SEEDS[1])
    ] = None
    split: Annotated[SplitChoice | None, Opt("Which split to build (all).")] = None
