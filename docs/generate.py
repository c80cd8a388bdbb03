"""Write what is generated: JSON schemas of the specs, the CLI and spec reference, and llms.txt.

python docs/generate.py            write
python docs/generate.py --check    exit 1 naming what is not current
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import BaseModel

from convbench.api.signature import PARAMETERS, keyword_options, name_of
from convbench.api.verbs import RunOrFolder, RunsOrFolders

ROOT = Path(__file__).resolve().parent.parent


def spec_models() -> dict[str, type[BaseModel]]:
    """Return the model of every kind of spec file, by the name of its schema."""
    from convbench.models.aliases import AliasFile
    from convbench.schema import JudgeSpec, ProtocolSpec, TaskSpec
    from convbench.schema.experiment import ExperimentSpec
    from convbench.schema.recipe import LaunchSpec, Recipe

    return {
        "task": TaskSpec,
        "protocol": ProtocolSpec,
        "judge": JudgeSpec,
        "recipe": Recipe,
        "launch": LaunchSpec,
        "experiment": ExperimentSpec,
        "models": AliasFile,
    }


def spec_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a spec file: `name` comes from the file, `extends` is allowed."""
    schema = model.model_json_schema()
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Name of a spec that this one is laid over.",
    }
    # With `extends` anything may come from below, so an editor must not demand it here.
    schema.pop("required", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def outputs() -> dict[Path, str]:
    """Return every generated file with its text."""
    found: dict[Path, str] = {}
    for name, model in spec_models().items():
        text = json.dumps(spec_schema(model), ensure_ascii=False, separators=(",", ":")) + "\n"
        found[ROOT / "specs" / "schemas" / f"{name}.json"] = text
    found[ROOT / "docs" / "reference" / "specs.md"] = spec_page()
    found[ROOT / "docs" / "reference" / "cli.md"] = cli_page()
    found[ROOT / "docs" / "reference" / "json.md"] = json_page()
    found[ROOT / "docs" / "reference" / "api.md"] = api_page()
    found[ROOT / "convbench" / "__init__.pyi"] = api_stub()
    found[ROOT / "llms.txt"] = page_index()
    return found


def page_index() -> str:
    """Return the index of the pages for language models: the navigation of mkdocs.yml as links."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = [entry for item in site["nav"] for entry in item.items()]
    sections = {"Docs": [entry for entry in pages if isinstance(entry[1], str)]}
    sections |= {
        title: [
            entry
            for item in listed  # a bare path is the section's own page
            for entry in (item.items() if isinstance(item, dict) else [(title, item)])
        ]
        for title, listed in pages
        if isinstance(listed, list)
    }
    parts = [f"# {site['site_name']}", f"> {site['site_description']}", "Start with README.md."]
    for title, listed in sections.items():
        links = "\n".join(f"- [{name}](docs/{path})" for name, path in listed)
        parts.append(f"## {title}\n\n{links}")
    return "\n\n".join(parts) + "\n"


def json_page() -> str:
    """Return the reference of what commands print with `--json`."""
    from convbench.commands._json import Envelope
    from convbench.commands._words import ENTRIES, load_command

    parts = [
        "# What `--json` prints\n\nGenerated from the schemas. Every command takes `--json`: it "
        "prints one JSON document on stdout in place of its lines, also where it fails; notes and "
        "progress stay on stderr and the exit code is the same. The document is an envelope whose "
        "`result` is the command's own answer.\n\n"
        "```\nconvbench list runs --json | jq '.result.runs[].run'\n```\n",
        "## The envelope\n",
        _table(Envelope.model_json_schema(mode="serialization")),
    ]
    seen: set[str] = set()
    for word in sorted(ENTRIES):
        answer = load_command(word).answer_class
        schema = answer.model_json_schema(mode="serialization")
        parts += [f"## {word}\n\n{_first(answer)}\n", _table(schema)]
        for key, part in schema.get("$defs", {}).items():
            if part.get("properties") and key not in seen:
                seen.add(key)
                parts += [f"### {key}\n\n{part.get('description', '')}\n", _table(part)]
    return "\n".join(parts)


def spec_page() -> str:
    """Return the reference of all spec fields."""
    parts = [
        "# Spec reference\n\nGenerated from the schemas. Every field with its type, default "
        "and meaning.\n"
    ]
    for name, model in spec_models().items():
        parts.append(f"## {name}\n\n{_first(model)}\n")
        schema = spec_schema(model)
        parts.append(_table(schema))
        for key, part in schema.get("$defs", {}).items():
            if part.get("properties"):
                parts.append(f"### {name}: {key}\n\n{_one_line(part.get('description', ''))}\n")
                parts.append(_table(part))
    return "\n".join(parts)


def _first(model: type[BaseModel]) -> str:
    return _one_line((model.__doc__ or "").strip())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(schema: dict[str, Any]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        default = json.dumps(field["default"]) if "default" in field else ""
        about = _one_line(field.get("description", "")).replace("|", "\\|")
        rows.append(f"| `{key}` | {_type(field)} | {_code(default)} | {about} |")
    return "\n".join(rows) + "\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "const" in field:
        return json.dumps(field["const"])
    if "enum" in field:
        return " \\| ".join(json.dumps(value) for value in field["enum"])
    for union in ("anyOf", "oneOf"):
        if union in field:
            return " \\| ".join(dict.fromkeys(_type(part) for part in field[union]))
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}" if "items" in field else "list"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
    return kind


def cli_page() -> str:
    """Return the reference of all commands, as their own help says it."""
    from convbench.commands._app import app, register_commands

    register_commands()
    group = typer.main.get_command(app)
    parts = ["# Command reference\n\nGenerated from `convbench --help`.\n"]
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        parts.append(_command(name, command))
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    lines = [f"## convbench {name}\n", f"{_one_line(command.help or '')}\n"]
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if not parameter.opts[0].startswith("-"):
            label = f"`{(parameter.metavar or parameter.name).upper()}`"
        else:
            label = ", ".join(f"`{option}`" for option in parameter.opts)
            if not getattr(parameter, "is_flag", False):
                label += f" {_metavar(parameter)}"
        rows.append(f"| {label} | {_one_line(parameter.help or '')} |".replace("\\[", "["))
    if rows:
        lines.append("| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines()]
        examples = [line for line in examples if line and not line.startswith("Example")]
        lines.append("```\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(lines)


def _metavar(parameter: Any) -> str:
    """Return what an option takes: its own word, its choices, or its type."""
    if parameter.metavar:
        return str(parameter.metavar).replace("|", "\\|")
    kind = parameter.type_descriptor.annotation
    choices = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        return "\\|".join(str(choice) for choice in choices)
    return str(getattr(kind, "__name__", kind)).upper()


def public() -> dict[str, Any]:
    """Return what `import convbench` gives, by name."""
    import convbench
    from convbench.api import verbs

    found = {}
    for name in convbench.__all__:
        value = getattr(convbench, name)
        found[name] = getattr(verbs, name) if isinstance(value, types.ModuleType) else value
    return found


def api_page() -> str:
    """Return the reference of the Python API."""
    parts = [
        "# Python API\n\nGenerated from `convbench.__all__`. `import convbench` loads nothing "
        "heavy; each verb takes what its command takes.\n"
    ]
    for name, value in sorted(public().items(), key=lambda pair: pair[0].lower()):
        if inspect.isclass(value):
            parts.append(f"## {name}\n\n{_one_line(value.__doc__ or '')}\n")
            rows = [
                f"| `{key}` | {_one_line(inspect.getdoc(member) or '')} |"
                for key, member in vars(value).items()
                if not key.startswith("_")
                and (callable(member) or hasattr(member, "__doc__"))
                and not isinstance(member, str)
            ]
            if rows:
                parts.append("| member | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
            continue
        about = (value.__doc__ or "").partition(f"\n{PARAMETERS}")[0].strip()
        parts.append(f"## convbench.{name}\n\n{_one_line(about)}\n")
        parts.append(f"```python\n{_shown(name, value)}\n```\n")
        options = getattr(value, "__options__", None)
        if options is not None:
            rows = [
                f"| `{name_of(one)}` | {_one_line(one.opt.help)} |".replace("\\[", "[")
                for one in keyword_options(options)
            ]
            parts.append("| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _shown(name: str, value: Any) -> str:
    """Return a verb's signature, one parameter a line."""
    signature = inspect.signature(value, eval_str=not hasattr(value, "__signature__"))
    lines = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
            lines.append(f"    *{parameter.name}: {_said(parameter.annotation)},")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            lines.append("    *,")
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter)}"
        lines.append(f"    {parameter.name}: {_said(parameter.annotation)}{default},")
    returns = _said(signature.return_annotation).strip("'")
    return "\n".join([f"def {name}(", *lines, f") -> {returns}: ..."])


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    return json.dumps(str(value)) if isinstance(value, Path | str) else repr(value)


WIDER = {
    "pathlib.Path": "str | os.PathLike[str]",
    "tuple[pathlib.Path, ...]": "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]",
    "tuple[str, ...]": "str | Iterable[str] | Mapping[str, Any]",
    "tuple[float, ...]": "float | Iterable[float]",
}
"""What a caller may give for what an option holds."""


def _said(kind: Any) -> str:
    """Return a type as one would write it."""
    if isinstance(kind, str):
        return kind
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " | ".join(dict.fromkeys(_said(part) for part in typing.get_args(kind)))
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is typing.Literal:
        return f"Literal[{', '.join(json.dumps(value) for value in typing.get_args(kind))}]"
    text = getattr(kind, "__qualname__", str(kind)) if inspect.isclass(kind) else str(kind)
    text = "pathlib.Path" if kind is Path else text.replace("convbench.api.handles.", "")
    return WIDER.get(text, text)


def api_stub() -> str:
    """Return the types of `import convbench`, for type checkers and editors."""
    head = (
        "# Generated by docs/generate.py from the options of each command.\n"
        "import os\n"
        "from collections.abc import Iterable, Mapping\n"
        "from pathlib import Path\n"
        "from typing import Any, Literal, overload\n\n"
        "from convbench.api.handles import Checkpoint as Checkpoint\n"
        "from convbench.api.handles import DryRun as DryRun\n"
        "from convbench.api.handles import Report as Report\n"
        "from convbench.api.handles import Run as Run\n"
        "from convbench.errors import ConvbenchError as ConvbenchError\n\n"
        "__version__: str\n"
    )
    named = {name: value for name, value in public().items() if not inspect.isclass(value)}
    listed_ = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(public())) + "]\n"
    return head + listed_ + "\n" + "\n".join(_typed(n, v) for n, v in named.items()) + "\n"


def _typed(name: str, value: Any) -> str:
    """Return a verb's signature for type checkers: where it gives a list for a list of runs, once
    for one run and once for a list; where it has dry runs, once more for these."""
    shown = _shown(name, value)
    found = [shown]
    if ") -> Run | list[Run] | DryRun: ..." in shown:
        one, both = _said(RunOrFolder), _said(RunsOrFolders)
        several = both.removeprefix(f"{one} | ")
        found = [
            shown.replace(f"run: {both} = None", f"run: {run}").replace("Run | list[Run]", back)
            for run, back in ((f"{one} = None", "Run"), (several, "list[Run]"))
        ]
    if DRY in shown and " | DryRun:" in shown:
        real = [
            text.replace(DRY, "dry_run: Literal[False] = False").replace(" | DryRun:", ":")
            for text in found
        ]
        back = shown.rpartition(") -> ")[2]
        dry = shown.replace(DRY, "dry_run: Literal[True]").replace(back, "DryRun: ...")
        found = [*real, dry]
    return shown if len(found) == 1 else "\n".join(f"@overload\n{text}" for text in found)


DRY = "dry_run: bool = False"
"""How a verb's signature has dry runs."""


def main() -> None:
    """Write the files, or with --check say which are not current."""
    stale = []
    for path, text in outputs().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"not current: {', '.join(stale)}; run: python docs/generate.py")
    print(f"{'wrote' if stale else 'all current'} {', '.join(stale)}")


if __name__ == "__main__":
    main()
