"""What `convbench --help` shows first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import typer

from convbench.commands._words import ENTRIES, PANELS, load_command
from tests.helpers.typed import Typist
from tests.support.app import app

ROOT = Path(__file__).parents[2]


def test_every_command_has_one_panel_and_they_stand_in_the_order_of_their_use(
    typist: Typist,
) -> None:
    listed = [name for names in PANELS.values() for name in names]
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(known)
    said = typist("--help")
    assert said.code == 0
    places = [said.out.index(f"│ {name} ") for name in listed]
    assert places == sorted(places)
    assert all(f" {panel} " in said.out for panel in PANELS)


def test_the_words_beside_a_command_are_the_first_of_its_own_help() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for panel, words in PANELS.items():
        for word, entry in words.items():
            assert commands[word].callback is not None
            assert entry.help == commands[word].help.partition("\n\n")[0]
            assert commands[word].rich_help_panel == panel


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits_the_terminal_and_nothing_of_it_is_cut(
    typist: Typist, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        said = typist(name, "--help")
        assert max(map(len, said.out.splitlines())) <= width
        assert "…" not in said.out.replace("T,T,…", ""), name


OF_PYTHON = re.compile(
    r"list\[|tuple\[|<class|Optional\[|NoneType|\| None|<(bool|str|int|float|path)\b|\d{16,}", re.I
)


def test_help_speaks_of_words_and_not_of_pythons_types(
    typist: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in ((), *((name,) for name in commands)):
        said = typist(*words, "--help").out
        assert not OF_PYTHON.search(said), (words, OF_PYTHON.findall(said))
        for one in commands[words[0]].params if words else ():
            for choice in typing.get_args(one.type_descriptor.annotation):
                whole = rf"(?<![\w-]){re.escape(str(choice))}(?![\w-])"
                assert isinstance(choice, type) or re.search(whole, said), (words, choice)


def test_what_is_said_several_times_is_shown_so(typist: Typist) -> None:
    assert re.search(r"RUN +Run directories", typist("report", "--help").out)
    assert re.search(r"--samples +N \[1<=x<=100000\] ", typist("build", "--help").out)


def test_a_command_loads_its_own_file_and_no_other(tmp_path: Path) -> None:
    """What starts takes as long as what it imports; a file of defaults may name any command."""
    files = {word: one.file for words in PANELS.values() for word, one in words.items()}
    assert all(load_command(word).run.__module__.endswith(f".{files[word]}") for word in files)
    code = (
        "import contextlib, gc, pathlib, sys\nfrom convbench.__main__ import main\n"
        "for words in ([], ['-h'], ['no-such-word'], ['show', '-h'], ['show', '-h'], ['-h']):\n"
        "    sys.argv = ['convbench', *words]\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main()\n"
        "    assert gc.get_threshold() == (100_000, 1, 1)\n"
        "    assert gc.isenabled() and gc.get_freeze_count() > 0\n"
        f"    print('files', *(one for one in {sorted(set(files.values()))} "
        "if f'convbench.commands.{one}' in sys.modules))\n"
        "    if words[:1] == ['show']:\n"
        "        pathlib.Path('convbench.toml').write_text('[build]\\nsamples = 2\\n')\n"
        "import convbench.rollout.build, convbench.judges.command\n"
        "unused = 'answers.wording', 'judges.compare', 'judges.human'\n"
        "assert not [one for one in unused if f'convbench.{one}' in sys.modules]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    every, own = sorted(set(files.values())), [files["show"]]
    loaded = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("files")]
    assert loaded == [[], [], [], own, every, every]


def test_help_loads_no_stage(tmp_path: Path) -> None:
    """What a command does is loaded when it is done; its help needs its options alone."""
    rooms = [path.parent.name for path in (ROOT / "convbench").glob("*/__init__.py")]
    stages = [room for room in rooms if room not in ("commands", "options", "net", "util")]
    assert len(stages) > 15
    code = (
        "import contextlib, sys\nfrom convbench.__main__ import main\n"
        f"for word in {list(ENTRIES)}:\n"
        "    sys.argv = ['convbench', word, '-h']\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main()\n"
        f"    loaded = [room for room in {stages} if f'convbench.{{room}}' in sys.modules]\n"
        "    assert not loaded, (word, loaded)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_build_loads_no_judge_no_batches_and_no_plugins(tmp_path: Path) -> None:
    code = (
        "import contextlib, sys, importlib.metadata as installed\n"
        "from convbench.__main__ import main\n"
        "looked, every = [], installed.entry_points\n"
        "installed.entry_points = lambda **asked: looked.append(asked) or every(**asked)\n"
        "sys.argv = 'convbench build demo --tasks 2 --model scripted:policy --run r -q'.split()\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "unused = 'judges.replies', 'reports.frame', 'engine.batches', 'models.batches', "
        "'commands.batches', 'answers.wording', 'store.scratch'\n"
        "assert not [one for one in unused if f'convbench.{one}' in sys.modules]\n"
        "assert not {'aiohttp', 'rich.live', 'rich.table'} & set(sys.modules)\n"
        "assert {'group': 'pydantic'} not in looked\n"
    )
    clean = {k: v for k, v in os.environ.items() if k != "PYDANTIC_DISABLE_PLUGINS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_version_loads_no_command() -> None:
    said = "import sys; loaded = [n for n in sys.modules if n.startswith('convbench.')]"
    code = (
        "import sys\nfrom convbench.__main__ import main\nsys.argv = ['convbench', '--version']\n"
        f"try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n{said}\n"
        "print(*loaded, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("convbench 0.")
    rooms = {"convbench.schema", "convbench.engine", "convbench.catalog"}
    assert not rooms & set(done.stderr.split())
