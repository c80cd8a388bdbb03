"""Load a spec by name: read the file, extend another spec, override values, validate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from convbench.catalog.find import locate_spec
from convbench.catalog.read import parse_yaml, read_yaml, refuse_non_json
from convbench.catalog.texts import check_templates
from convbench.errors import RetiredNameWarning, SpecError
from convbench.schema.base import FrozenModel

S = TypeVar("S", bound=BaseModel)

DEEPEST = 8
"""Largest number of `extends:` in a chain."""


def load_spec(
    model: type[S],
    kind: str,
    name: str,
    *,
    specs: Sequence[Path] = (),
    sets: Mapping[str, Any] | None = None,
) -> S:
    """Return the validated spec of this kind and name; the name may be a path (`locate_spec`).

    `specs` are folders, not files, searched before `./specs` and the shipped ones. What it extends
    is merged under it, then `sets` replace values, by dotted key (`--set a.b=c`). Raise SpecError,
    which names file, key, what was found and what was expected, also if one of `specs` is no
    folder.
    """
    path, moved_fields = locate_spec(kind, name, specs), _moved_fields(model)
    value = read_extended(path, kind, specs, moved_fields=moved_fields)
    where = f"{path} with --set {' '.join(sets)}" if sets else str(path)
    for key, new in (sets or {}).items():
        if key in moved_fields:
            _warn_retired("--set", key, moved_fields[key])
        assign_key(value, moved_fields.get(key, key), new, where)
    return check_spec(model, value, where)


def read_extended(
    path: Path,
    kind: str,
    specs: Sequence[Path],
    depth: int = 0,
    moved_fields: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the mapping in a file merged over the one that it extends; `name` defaults to the
    file's.

    Mappings are merged key by key, lists and other values replaced; `extends` is removed. Fields at
    an old place (`moved_fields`, new by old) are moved in each file first. The result is not
    validated. Raises SpecError for a file that cannot be read or found, and for more than 8 levels.
    """
    written = read_yaml(path)
    for old, new in moved_fields.items():
        if _has_field(written, old):
            _warn_retired(str(path), old, new)
    value: dict[str, Any] = _move_fields(written, moved_fields, str(path))
    value.setdefault("name", path.stem)
    base = value.pop("extends", None)
    if base is None:
        return value
    if not isinstance(base, str):
        raise SpecError(f"{path}: extends: found {base!r}; expected the name of a spec")
    if depth >= DEEPEST:
        raise SpecError(f"{path}: extends: more than {DEEPEST} levels; is there a circle?")
    if base.endswith((".yaml", ".yml")):
        base = str(path.parent / base)  # a file is named from where this one lies
    parent = read_extended(locate_spec(kind, base, specs), kind, specs, depth + 1, moved_fields)
    parent.pop("label", None)  # the name of another recipe
    return merge_mappings(parent, value)


def _moved_fields(model: type[BaseModel]) -> Mapping[str, str]:
    return model.OLD_KEYS if issubclass(model, FrozenModel) else {}


def _move_fields(value: Any, moved_fields: Mapping[str, str], origin: str) -> Any:
    """Return a mapping with fields at an old place moved to the new one. Raises SpecError if both
    places have a value."""
    for old, new in moved_fields.items():
        if not _has_field(value, old):
            continue
        if value.get(new) is not None:
            raise SpecError(f"{origin}: {old}: found beside {new}; expected {new} alone")
        section, _, key = old.partition(".")
        inside = value[section]
        rest = {name: content for name, content in inside.items() if name != key}
        value = {**value, section: rest, new: inside[key]}
    return value


def _has_field(value: Any, dotted: str) -> bool:
    """Return whether a mapping has a field SECTION.KEY."""
    section, _, key = dotted.partition(".")
    inside = value.get(section) if isinstance(value, dict) else None
    return isinstance(inside, dict) and key in inside


def _warn_retired(origin: str, old: str, new: str) -> None:
    warnings.warn(
        f"{origin}: {old} is now {new}; the next minor release does not read {old}",
        RetiredNameWarning,
        stacklevel=4,
    )


def merge_mappings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new mapping of one merged over another: nested mappings key by key, other values
    replaced.

    Keys keep the order of `below`; new ones follow. Neither argument is changed.
    """
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = merge_mappings(old, value)
        else:
            out[key] = value
    return out


def assign_key(value: dict[str, Any], dotted: str, new: Any, origin: str) -> None:
    """Set a dotted key in place, creating mappings on the way. Raises SpecError if a value is in
    the way."""
    *way, last = dotted.split(".")
    at = value
    for part in way:
        step = at.setdefault(part, {})
        if not isinstance(step, dict):
            raise SpecError(f"{origin}: --set {dotted}: {part!r} holds {step!r}, not a mapping")
        at = step
    at[last] = new


def parse_sets(pairs: Sequence[str], flag: str = "--set") -> dict[str, Any]:
    """Return the values of `a.b=c` pairs by dotted key; of a repeated key the last one.

    A value is YAML (`1` is a number), or text if it is not valid YAML. Raises SpecError for a pair
    without key or with a YAML tag.
    """
    out: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.strip():
            raise SpecError(f"{flag} {pair!r}: expected key=value, e.g. sample.count=100")
        if text.lstrip().startswith("!"):
            raise SpecError(
                f"{flag} {key}: found a tag of YAML ({text.split()[0]}); expected a plain value; "
                f"to mean the text put it in quotes: {key}='\"{text.strip()}\"'"
            )
        try:
            out[key.strip()] = parse_yaml(f"value: {text}", f"{flag} {key}")["value"]
        except (SpecError, yaml.YAMLError):
            out[key.strip()] = text
    return out


def check_spec(model: type[S], value: Any, origin: str) -> S:
    """Return the validated spec in a mapping, its templates and expressions checked too.

    Fields at an old place are moved first. Raises SpecError beginning with `origin`, with the first
    error in one line and the number of others.
    """
    try:
        spec = model.model_validate(_move_fields(value, _moved_fields(model), origin))
        refuse_non_json(
            spec.model_dump(), origin
        )  # text such as 1e999 becomes a number in validation
        check_templates(spec, origin)
        return spec
    except ValidationError as error:
        raise SpecError(f"{origin}: {_error_line(model, error)}") from None
    except RecursionError:
        raise SpecError(f"{origin}: nested too deeply") from None


TAGS = ("str", "int", "float", "bool", "none", "Step", "Loop")
"""Markers in pydantic's error locations for the member of a union that was tried."""


def _error_line(model: type[BaseModel], error: ValidationError) -> str:
    """Return a validation error in one line: key, found, expected, how many more.

    Of the errors for the members of a union it takes one from a validator of ours, else the
    deepest.
    """
    errors = error.errors(include_url=False)
    key_path = _key_path(errors[0]["loc"])
    here = [e for e in errors if _key_path(e["loc"]) == key_path]
    chosen = max(here, key=lambda e: (e["type"] == "value_error", len(e["loc"])))
    others = len({_key_path(e["loc"]) for e in errors}) - 1
    more = f" (and {others} more)" if others else ""
    key = ".".join(str(part) for part in chosen["loc"] if not _is_union_tag(part)) or "(top)"
    if chosen["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(model, chosen["loc"]))
        return f"{key}: unknown key; expected one of: {known}{more}"
    if chosen["type"] == "missing":
        return f"{key}: missing; expected a value{more}"
    message = " ".join(chosen["msg"].split()).removeprefix("Value error, ")
    if chosen["type"] == "value_error" and isinstance(chosen["input"], Mapping | list | tuple):
        # our validators say themselves what was found
        return f"{'' if key == '(top)' else f'{key}: '}{message}{more}"
    input_text = repr(chosen["input"])
    input_text = input_text if len(input_text) < 80 else input_text[:77] + "..."
    return f"{key}: found {input_text}; {message}{more}"


def _is_union_tag(part: int | str) -> bool:
    return isinstance(part, str) and (part in TAGS or "[" in part)


def _key_path(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the path to a value up to the first marker of a union."""
    return tuple(takewhile(lambda part: not _is_union_tag(part), loc))


def _known_keys(model: type[BaseModel], key_path: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are allowed beside an unknown one."""
    at = [model]
    for part in key_path[:-1]:
        named = [other for other in at if other.__name__ == part]
        inner = [m for other in at for m in _field_models(other.model_fields.get(str(part)))]
        at = named or inner or at  # a list's index or a mapping's key leads no further
    return list(dict.fromkeys(name for other in at for name in other.model_fields))


def _field_models(field: Any) -> list[type[BaseModel]]:
    """Return the pydantic models in a field's annotation."""
    kind = getattr(field, "annotation", field)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for inner in get_args(kind) for model in _field_models(inner)]
