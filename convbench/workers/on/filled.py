"""Scripts and manifests as templates: the launcher's own, or a file of the user's.

Names in double braces alone: the rest of a shell's script, `${#list}` say, is no template.
"""

from __future__ import annotations

from collections.abc import Mapping

from convbench.errors import SpecError
from convbench.store.shape import read_bytes
from convbench.workers.on import Crew


def filled(own: str, crew: Crew, facts: Mapping[str, str | int]) -> str:
    """Return the template with what it names (`{{ command }}`, `{{ workers }}`, …) filled in.
    SpecError where it names something else, or lacks the command."""
    text, where = own, "its own template"
    if crew.template is not None:
        where = str(crew.template)
        text = read_bytes(crew.template).decode("utf-8", "replace")
    out, _, rest = text.partition("{{")
    parts = [out]
    while rest:
        name, closed, after = rest.partition("}}")
        name = name.strip()
        if not closed or name not in facts:
            raise SpecError(
                f"--template {where}: found {{{{ {name[:40]} }}}}; expected one of "
                f"{', '.join(sorted(facts))}"
            )
        parts.append(str(facts[name]))
        out, _, rest = after.partition("{{")
        parts.append(out)
    needed = {"command", "words"} & facts.keys()
    if crew.template is not None and not any(f"{{{{ {name} }}}}" in text for name in needed):
        raise SpecError(f"--template {where}: names no {{{{ {' or '.join(needed)} }}}}, so that it "
                        "would start no worker")  # fmt: skip
    return "".join(parts)
