"""Project files agree with each other: address, version, commands of CI, links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADDRESS = PROJECT["urls"]["Repository"]
NAMES_THE_ADDRESS = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CITATION.cff",
    "mkdocs.yml",
    "docs/howto/install.md",
    ".github/ISSUE_TEMPLATE/config.yml",
)
"""Files that repeat the project's address; it is set in pyproject.toml."""
REPOSITORY = re.compile(r"https://(?:github|gitlab)\.com/[\w.-]+/convbench\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md", "llms.txt")


@pytest.mark.parametrize("name", [*NAMES_THE_ADDRESS, "pyproject.toml"])
def test_every_file_names_the_same_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert set(REPOSITORY.findall(text)) == {ADDRESS}
    assert "HOST/OWNER" not in text


def test_no_other_page_repeats_the_address() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob(".github/**/*.*")]
    named = {p.relative_to(ROOT).as_posix() for p in pages if REPOSITORY.search(p.read_text())}
    assert named <= {*NAMES_THE_ADDRESS, "CHANGELOG.md"}


@pytest.mark.parametrize("name", PAGES)
def test_links_of_the_project_files_lead_to_files(name: str) -> None:
    links = [link for link in LINK.findall((ROOT / name).read_text()) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_index_for_models_has_every_page_of_the_site_once() -> None:
    links = LINK.findall((ROOT / "llms.txt").read_text())
    nav = re.findall(r"[:-] ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(links) == sorted(f"docs/{page}" for page in nav)


def _workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github/workflows" / f"{name}.yml").read_text())


def _commands(name: str) -> list[str]:
    """Return what a workflow runs, in order."""
    jobs = _workflow(name)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_workflows_run_the_commands_of_ci() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    ours = [line for line in lines if line.startswith("make ")]
    assert [*_commands("check"), *_commands("test")] == ours
    assert _commands("docs")[0] == "make docs"


@pytest.mark.parametrize("name", ["check", "test", "docs"])
def test_a_workflow_may_only_read(name: str) -> None:
    assert _workflow(name)["permissions"] == {"contents": "read"}


def test_checked_python_versions_are_those_that_the_package_names() -> None:
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert _workflow("check")["jobs"]["check"]["strategy"]["matrix"]["python"] == named


def test_hooks_run_the_pinned_tools_as_make_check_does() -> None:
    """A hook starts what `make` installed by constraints.txt, so that versions cannot differ."""
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck: ")[2].partition("\n\n")[0]
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()[1:]]
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = [hook for repo in repos for hook in repo["hooks"]]
    assert [repo["repo"] for repo in repos] == ["local"]
    assert [hook["entry"] for hook in hooks] == checks[: len(hooks)]
    pins = (ROOT / "constraints.txt").read_text()
    for hook in hooks:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert re.search(rf"^{tool}==[\d.]+$", pins, re.M)
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/[!c]*.yml")), ids=str)
def test_a_form_names_its_fields(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids)) > 1
    assert all(field["attributes"]["label"] for field in form["body"])
