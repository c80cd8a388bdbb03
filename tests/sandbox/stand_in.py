"""An executable that stands in for Chromium: it answers its driver, then ends or falls silent."""

from __future__ import annotations

from pathlib import Path

WORDS = "[1:1:1124/1:FATAL:content/tabs.cc(7)] no tab for you"
STEPS = {
    "starting": "",
    "shaking hands": "Browser.getVersion",
    "opening a context": "Target.createBrowserContext",
    "opening a tab": "Target.createTarget",
}
"""A step, and the driver's message with which it begins."""
# The wall shows a browser little more than a shell. Messages end with a NUL, which `read` drops;
# it ends with its process group.
_PROGRAM = r"""#!/bin/sh
happen() {
    %s
    echo "some noise" >&2; echo "%s" >&2; echo "more noise" >&2
    kill -9 0
}
[ -n "%s" ] || happen
sed -nuz 's/.*"id":\([0-9]*\).*"method":"\([^"]*\)".*/\1 \2\n/p' <&3 | while read -r id method; do
    case "$method" in
    %s) happen ;;
    Browser.getVersion) found='"product":"HeadlessChrome/156.0.0.0","userAgent":"HeadlessChrome"' ;;
    *) found='"browserContextId":"A"' ;;
    esac
    printf '{"id":%%s,"result":{%%s}}\0' "$id" "$found" >&4
done
"""


def stand_in(folder: Path, step: str, *, silent: bool = False, child_s: int = 0) -> str:
    """Write one that at a step (STEPS) ends with WORDS, or falls `silent`; a child of it holds its
    pipes for so many seconds more."""
    first = "sleep 600" if silent else f"setsid sleep {child_s} &" if child_s else ""
    at = STEPS[step]
    folder.chmod(0o755)
    program = folder / "chromium"
    program.write_text(_PROGRAM % (first, WORDS, at, at or "never"))
    program.chmod(0o755)
    return str(program)
