"""What of the host may be read inside: the interpreter's own files and the modules asked for."""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from functools import cache
from importlib import metadata


@cache
def readable(program: str) -> tuple[str, ...]:
    """Return the files and folders that the interpreter itself needs, those that exist."""
    library = os.path.join(
        str(sysconfig.get_config_var("LIBDIR") or ""),
        str(sysconfig.get_config_var("INSTSONAME") or ""),
    )
    system = str(sysconfig.get_config_var("MULTIARCH") or "")
    wanted = [
        program,
        sysconfig.get_path("stdlib"),
        str(sysconfig.get_config_var("DESTSHARED") or ""),
    ]
    wanted += [library] if os.path.isfile(library) else []
    wanted += [os.path.join("/lib", system), os.path.join("/usr/lib", system)]
    wanted += ["/lib64", "/usr/lib64"]
    return tuple(place for place in dict.fromkeys(wanted) if os.path.exists(place))


@cache
def hidden() -> tuple[str, ...]:
    """Return folders within those that hold others' packages."""
    stdlib = sysconfig.get_path("stdlib")
    names = ("site-packages", "dist-packages")
    return tuple(p for p in (os.path.join(stdlib, name) for name in names) if os.path.isdir(p))


@cache
def opened(program: str) -> tuple[str, ...]:
    """Return `readable`, with a folder that holds a hidden one replaced by its other contents:
    what Landlock opens, it opens to the leaves."""
    found = []
    shut = hidden()
    for place in readable(program):
        if any(os.path.dirname(other) == place for other in shut):
            inside = (os.path.join(place, name) for name in os.listdir(place))
            found += [item for item in inside if item not in shut]
        else:
            found.append(place)
    return tuple(found)


@cache
def packages(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the modules asked for lie, with what they require and the libraries beside
    them; those not installed are left out."""
    found = []
    for name in _with_needs(modules):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places and spec and spec.origin and os.path.isfile(spec.origin):
            places = [spec.origin]
        found += [place for place in places if os.path.exists(place)]
        found += [f"{place}.libs" for place in places if os.path.isdir(f"{place}.libs")]
    return tuple(dict.fromkeys(found))


def _with_needs(modules: tuple[str, ...]) -> list[str]:
    """Return the modules and those of the distributions that theirs require."""
    wanted = list(modules)
    owners = metadata.packages_distributions() if modules else {}
    parts: dict[str, list[str]] = {}
    for module, names in owners.items():
        for name in names if module.isidentifier() else ():
            parts.setdefault(_canonical(name), []).append(module)
    for module in wanted:  # it grows
        for line in (line for name in owners.get(module, ()) for line in _requires(name)):
            wanted += [part for part in parts.get(_canonical(line), ()) if part not in wanted]
    return wanted


def _requires(name: str) -> list[str]:
    """Return a distribution's requirements but those of its extras."""
    return [line for line in metadata.requires(name) or () if "extra" not in line.partition(";")[2]]


def _canonical(requirement: str) -> str:
    """Return the name that a requirement begins with, as the packaging standards compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()
