"""Make a release of the version in convbench/__init__.py: check, test, build, tag.

python docs/release.py                  do it; nothing is pushed
python docs/release.py --dry-run        only look whether it could be done
python docs/release.py --record-format  write the fields of a run folder's files, as the code is

The last one is for a change of a schema: `make check` fails until the fields are recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FORMAT_FILE = "tests/house/run_format.json"
"""The format number of run folders and a digest of the fields of their files."""
STRUCTURE = {
    "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "items", "oneOf",
    "prefixItems", "properties", "required", "type",
}  # fmt: skip
"""Keywords of a JSON schema that say what a record may hold; the others only describe it."""


class Refusal(Exception):
    """Why there is no release: one line."""


def recorded_format() -> dict[str, Any]:
    """Return what the file of the format has to hold for the code as it is."""
    from convbench.schema import Conversation, Example, JudgeSpec, RunManifest, Verdict
    from convbench.schema.gold import GoldDraw, GoldLabel
    from convbench.schema.judge import Comparison
    from convbench.schema.run import FORMAT
    from convbench.store.notes import RunLabel
    from convbench.store.seal import Seal
    from convbench.store.shards import ShardPlan

    models = (
        RunManifest, JudgeSpec, Example, Conversation, Verdict, Comparison, GoldDraw, GoldLabel,
        RunLabel, Seal, ShardPlan,
    )  # fmt: skip
    schemas = {model.__name__: structure(model.model_json_schema()) for model in models}
    text = json.dumps(schemas, sort_keys=True)
    return {"format": FORMAT, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def structure(schema: Any) -> Any:
    """Return a JSON schema without what only describes: titles, texts, defaults, limits."""
    if isinstance(schema, list):
        return [structure(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: structure(part) for name, part in value.items()}
        if key in ("properties", "$defs")
        else structure(value)
        for key, value in schema.items()
        if key in STRUCTURE
    }


def run_git(root: Path, *words: str) -> str:
    """Return what git prints, without the last newline. Raises Refusal if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)  # noqa: S603, S607
    if done.returncode:
        raise Refusal(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def read_version(root: Path) -> str:
    """Return the package's version. Raises Refusal if it has none."""
    text = (root / "convbench" / "__init__.py").read_text()
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.M)
    if match is None:
        raise Refusal("convbench/__init__.py: found no __version__")
    return match[1]


def find_refusals(root: Path, version: str) -> list[str]:
    """Return why this version cannot be released from the files as they are, one line a reason."""
    reasons = [_dirty_reason(root), _tag_reason(root, version), _changelog_reason(root, version)]
    return [reason for reason in (*reasons, _format_reason(root)) if reason]


def _dirty_reason(root: Path) -> str:
    changed = run_git(root, "status", "--porcelain").splitlines()
    if not changed:
        return ""
    return f"the tree is dirty: {len(changed)} files, the first is {changed[0][3:]}; commit them"


def _tag_reason(root: Path, version: str) -> str:
    if not run_git(root, "tag", "--list", f"v{version}"):
        return ""
    return f"the tag v{version} exists; raise __version__ in convbench/__init__.py"


def _changelog_reason(root: Path, version: str) -> str:
    text = (root / "CHANGELOG.md").read_text()
    heading = re.search(rf"^## {re.escape(version)}(?: .*)?$", text, re.M)
    expected = f"expected ## {version} (YYYY-MM-DD)"
    if heading is None:
        return f"CHANGELOG.md: found no heading of {version}; {expected}"
    if not re.search(r" \(\d{4}-\d\d-\d\d\)$", heading[0]):
        return f"CHANGELOG.md: found {heading[0]!r}; {expected}"
    return ""


def _format_reason(root: Path) -> str:
    """Return why the format number is wrong: fields changed since the last release, and it did
    not."""
    tags = run_git(root, "tag", "--merged", "HEAD", "--list", "v[0-9]*", "--sort=-creatordate")
    if not tags:
        return ""
    last = tags.splitlines()[0]
    before = json.loads(run_git(root, "show", f"{last}:{FORMAT_FILE}"))
    now = json.loads((root / FORMAT_FILE).read_text())
    if now == before or now["format"] > before["format"]:
        return ""
    return (
        f"the files of a run changed since {last}, and the format is still {now['format']}; raise "
        "FORMAT in convbench/schema/run.py, and add the step to convbench/store/run_format.py"
    )


def run_step(root: Path, *words: str) -> None:
    """Run a command in the checkout, with its output shown. Raises Refusal if it fails."""
    print(f"$ {' '.join(words)}", flush=True)
    if subprocess.run(words, cwd=root).returncode:  # noqa: S603
        raise Refusal(f"{' '.join(words)} failed")


def build_files(root: Path, version: str) -> None:
    """Write sdist and wheel into dist/, and install the wheel into a new environment, whose
    `convbench --version` must be this version. Raises Refusal."""
    dist = root / "dist"
    for old in dist.glob(f"convbench-{version}*"):
        old.unlink()
    run_step(root, sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist))
    (wheel,) = dist.glob(f"convbench-{version}-*.whl")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / ("Scripts" if os.name == "nt" else "bin")
        run_step(root, str(programs / "python"), "-m", "pip", "install", "--quiet", str(wheel))
        command = [str(programs / "convbench"), "--version"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)  # noqa: S603
    if done.returncode or done.stdout.split() != ["convbench", version]:
        raise Refusal(f"{wheel.name}: convbench --version: {done.stdout}{done.stderr}".strip())


def make_release(root: Path, *, dry_run: bool) -> None:
    """Check, test, build and tag; with `dry_run` only look whether it could be done. Raises
    Refusal."""
    version = read_version(root)
    reasons = find_refusals(root, version)
    if reasons:
        raise Refusal("\n".join(reasons))
    if dry_run:
        print(f"{version} can be released: next are make check, make test, the build and the tag")
        return
    commit = run_git(root, "rev-parse", "HEAD")
    run_step(root, "make", "check")
    run_step(root, "make", "test")
    build_files(root, version)
    if run_git(root, "rev-parse", "HEAD") != commit or _dirty_reason(root):
        raise Refusal("the tree changed while it was tested; begin again")
    run_git(root, "tag", "--annotate", f"v{version}", "--message", f"convbench {version}", commit)
    print(f"tagged v{version}; dist/ holds its files; next: git push origin v{version}")


def main() -> None:
    """Do what the options say; exit 1 with the reasons if there is no release."""
    parser = argparse.ArgumentParser(description="Make a release; nothing is pushed.")
    parser.add_argument("--dry-run", action="store_true", help="only look whether it can be done")
    parser.add_argument("--record-format", action="store_true", help=f"write {FORMAT_FILE}")
    options = parser.parse_args()
    if options.record_format:
        (ROOT / FORMAT_FILE).write_text(json.dumps(recorded_format(), indent=1) + "\n")
        return
    try:
        make_release(ROOT, dry_run=options.dry_run)
    except Refusal as refusal:
        sys.exit("".join(f"refused: {line}\n" for line in str(refusal).splitlines()).rstrip())


if __name__ == "__main__":
    main()
