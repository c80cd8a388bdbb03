#!/bin/sh
# Install the system packages that some tests use, where this can be done without asking.
# Nothing here fails the set-up: a test whose program is missing skips and says what to type.
wanted=""
command -v g++ >/dev/null 2>&1 || wanted="$wanted g++"
command -v bwrap >/dev/null 2>&1 || wanted="$wanted bubblewrap"
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || wanted="$wanted chromium"
# Pages are rendered with this style sheet; the judge itself fetches nothing.
.venv/bin/python -m convbench.sandbox.tailwind >/dev/null 2>&1 ||
    echo "some tests will skip for want of Tailwind's style sheet (python -m convbench.sandbox.tailwind)" >&2
[ -z "$wanted" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq >/dev/null 2>&1
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null 2>&1 && exit 0
fi
echo "some tests will skip for want of:$wanted (install them with: sudo apt-get install$wanted)" >&2
exit 0
