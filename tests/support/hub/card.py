"""What the Hub checks in a README's front matter (`POST /api/validate-yaml`)."""

from __future__ import annotations

import re
from typing import Any

import yaml

FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---(?:\r?\n|\Z)", re.DOTALL)
_LICENSES = (
    "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigcode-openrail-m afl-3.0"
    " artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0"
    " cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0"
    " cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0"
    " cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0"
    " epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0"
    " isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense"
    " zlib pddl gemma llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 unknown other"
)
LICENSES = frozenset(_LICENSES.split())
"""License identifiers of https://huggingface.co/docs/hub/repositories-licenses (not all)."""
TEXT_LISTS = ("tags", "task_categories", "task_ids", "size_categories", "source_datasets")


def front_matter(readme: str) -> dict[str, Any]:
    """The card's metadata; empty when there is none or it is broken."""
    found = FRONT_MATTER.match(readme)
    try:
        value = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def card_errors(readme: str) -> list[str]:
    """What the Hub would refuse; an absent front matter is only a warning there."""
    found = FRONT_MATTER.match(readme)
    if found is None:
        return []
    try:
        data = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        return [f"YAML parse error: {error}"]
    if not isinstance(data, dict):
        return ["the front matter must be a mapping"]
    errors = [
        f'"{key}" must be a list of strings'
        for key in TEXT_LISTS
        if not all(isinstance(item, str) for item in _as_list(data.get(key)))
    ]
    bad = [x for x in _as_list(data.get("license")) if x not in LICENSES]
    if bad:
        errors.append(f'"license" must be one of {sorted(LICENSES)}, found {bad}')
    return errors + _config_errors(data.get("configs"))


def _as_list(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _config_errors(configs: object) -> list[str]:
    if configs is None:
        return []
    if not isinstance(configs, list):
        return ['"configs" must be an array']
    errors = []
    for index, config in enumerate(configs):
        if not isinstance(config, dict) or not isinstance(config.get("config_name"), str):
            errors.append(f'"configs[{index}].config_name" must be a string')
    return errors


def readme_for(configs: dict[str, dict[str, list[str]]], license_id: str | None = None) -> str:
    """A README whose front matter lists `configs`: config -> split -> paths."""
    data: dict[str, Any] = {"license": license_id} if license_id else {}
    data["configs"] = [
        {
            "config_name": config,
            "data_files": [{"split": split, "path": paths} for split, paths in splits.items()],
        }
        for config, splits in configs.items()
    ]
    return f"---\n{yaml.safe_dump(data, sort_keys=False)}---\n"
