"""Pictures: which there are, what they show, and that equal numbers give equal bytes."""

import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from convbench.reports.measures import ACCURACY
from convbench.reports.plots.curves import (
    size_curves,
    smooth_values,
    training_curves,
    turn_curves,
)
from convbench.reports.plots.points import agreement_texts, clip_interval, draw_dots
from convbench.reports.plots.style import (
    LOOKS,
    ONE_COLUMN,
    TWO_COLUMNS,
    Page,
    drawing_style,
    policy_looks,
)
from convbench.reports.sections import read_sections
from convbench.reports.writers import write_report
from convbench.stats.means import Estimate
from tests.helpers import stages
from tests.helpers.runs import make, questions
from tests.support.later import needs

needs("matplotlib")


def right(share):
    """Right on this share of ten questions."""
    return lambda question, sample: "A" if int(question[1:]) < 10 * share else "B"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two lengths of one task; Base, and refit trained on two sizes, with logs; two judges."""
    folder = tmp_path_factory.mktemp("plots")
    out = []
    for turns in (3, 4):
        base = make(
            folder / f"n{turns}", questions(10), right(0.3), turns=turns,
            overall=lambda q, k: 4.0 + k,
        )  # fmt: skip
        for size, share in ((100, 0.6), (400, 0.8))[: 2 if turns == 3 else 1]:
            name = f"refit-{size}"
            checkpoint = base.checkpoints_folder / name
            checkpoint.mkdir(parents=True)
            checkpoint.joinpath("recipe.yaml").write_text("name: refit\ntrainer: refit\n")
            log = [
                {"step": step, "loss": 2.0 / step, "log_pi_positive": -50.0 + step}
                for step in range(1, 6)
            ]
            checkpoint.joinpath("training.json").write_text(
                json.dumps({"conversations": size, "log": [*log, {"step": 5, "train_loss": 1}]})
            )
            make(
                base.evals_folder / name, questions(10), right(share), turns=turns, split="test",
                parent=base.manifest.id, checkpoint=f"x/{name}", overall=lambda q, k: 6.0 + k,
            )  # fmt: skip
        for run in (base, *base.child_runs()):
            (rules,) = run.judge_specs().values()
            run.store_judge("ab" * 8, rules.model_copy(update={"name": "strict", "highest": 20}))
            lines = [json.loads(line) for line in run.verdicts_file.read_text().splitlines()]
            with run.verdicts_file.open("a") as file:
                for line in lines:
                    more = {"judge": "strict", "fingerprint": "ab" * 8}
                    line["scores"]["overall"] -= 1
                    file.write(json.dumps(line | more) + "\n")
        out.append(base)
    return out


@pytest.fixture(scope="module")
def drawn(runs):
    return stages.report(*(run.path for run in runs), judge="rules", plots=True)


def said(svg):
    """Return the texts of a picture: matplotlib names each before its outlines."""
    return re.findall(r"<!-- (.*?) -->", svg)


@pytest.mark.exhaustive
def test_every_picture_is_there_with_axes_and_names(drawn):
    pictures = {p.name: p for part in drawn.document.parts for p in part.pictures}
    kinds = {name.split("-")[0] for name in pictures}
    assert kinds == {"radar", "temperature", "size", "accuracy", "number", "judges", "training"}
    assert len(pictures) == sum(len(part.pictures) for part in drawn.document.parts)
    for picture in pictures.values():
        root = ElementTree.fromstring(picture.svg)  # well-formed
        assert root.tag.endswith("svg")
        assert picture.caption
        width, height = (round(300 * inches) for inches in picture.size)
        assert struct.unpack(">II", picture.png[16:24]) == (width, height)  # 300 dots an inch
        assert picture.size[0] in (ONE_COLUMN, TWO_COLUMNS)
        assert picture.pdf.startswith(b"%PDF")
        box = re.search(rb"/MediaBox *\[ *0 0 ([\d.]+) ([\d.]+)", picture.pdf)
        assert [float(n) / 72 for n in box.groups()] == pytest.approx(picture.size, abs=0.01)
        assert b"/Type3" not in picture.pdf
        assert not {"demo · thinking · reasoning, n = 3", picture.caption} & set(said(picture.svg))
    labels = said(pictures["number-of-turns-demo-thinking-reasoning-rules"].svg)
    assert {"policy turns n", "Accuracy", "(share correct)", "Base", "3", "4"} <= set(labels)
    assert {"R Overall", "(judge's score, 0 to 10)"} <= set(labels)
    labels = said(pictures["temperature-demo-thinking-reasoning-n-3-rules"].svg)
    assert {"sampling temperature", "0.3", "0.7", "1"} <= set(labels)
    labels = said(pictures["size-of-the-training-set-demo-thinking-reasoning-n-3-rules"].svg)
    assert {"training rows (one per conversation)", "100", "400", "ReFit", "Base"} <= set(labels)
    bars = "bars: 95% intervals, clustered errors"
    assert bars in labels
    assert f"{bars}; dotted line: Base" in said(pictures["accuracy-by-task"].svg)
    labels = said(pictures["radar-demo-thinking-reasoning-n-3-rules"].svg)
    assert {"2", "4", "6", "8", "10", "mean", "95% intervals, clustered errors"} <= set(labels)
    assert {"Over.", "Acc.", "Reas.", "Compr.", "Pedag.", "Conf."} <= set(labels)
    labels = said(pictures["judges-demo-thinking-reasoning-n-3-rules-strict"].svg)
    assert {"strict: overall score (0 to 20)", "20.0", "10"} <= set(labels), "each its own scale"
    labels = said(pictures["training-demo-thinking-reasoning-n-3"].svg)
    assert {"optimiser step", "loss", "weight > 0"} <= {
        label.replace("&gt;", ">") for label in labels
    }


def test_judges_agreement_is_said(runs):
    (section,) = read_sections(runs[:1])
    # The second judge says one point less of everything: equal ranks, kappa below 1.
    words = agreement_texts(section)["rules", "strict"]
    assert words.startswith("Spearman 1.00, quadratically weighted kappa 0.")


def test_the_page_holds_the_pictures_and_asks_for_nothing(drawn, tmp_path):
    files = write_report(drawn.document, tmp_path, {"html", "markdown"})
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == sum(len(part.pictures) for part in drawn.document.parts)
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page)
    assert not re.findall(r"url\((?!#)", page)
    referred = re.findall(r"\]\((\S+\.svg)\)", (tmp_path / "report.md").read_text())
    assert referred
    assert all((tmp_path / name).exists() for name in referred)
    assert {path.suffix for path in files} == {".html", ".md", ".svg", ".png", ".pdf"}


def test_curves_by_turns_are_named_by_their_setting(runs):
    with drawing_style():
        (picture,) = turn_curves(read_sections(runs), "rules", "clustered")
    assert picture.name == "number-of-turns-demo-thinking-reasoning-rules"


def test_equal_numbers_give_equal_bytes(runs):
    found = read_sections(runs)
    with drawing_style():
        first, second = (draw_dots(found, ACCURACY, "clustered") for _ in range(2))
        assert first == second
        assert first != draw_dots(found, ACCURACY, "naive")


def test_nothing_to_draw_gives_no_picture(tmp_path):
    run = make(tmp_path / "run", questions(3), right(0.1), samples=1, temperatures=(0.7,))
    made = stages.report(run.path, plots=True).document
    assert [p.name for part in made.parts for p in part.pictures] == ["accuracy-by-task"]
    (section,) = read_sections([run])
    assert training_curves(section) is None
    assert size_curves(section, None, "clustered") is None


def drawn_on(found, page):
    """Return the pictures of a training, one of each width that fits, with their texts."""
    with drawing_style((policy.name for policy in found.policies), page):
        made = training_curves(found)
    return made, said(made.svg)


def test_a_picture_fits_the_page_and_is_titled_where_asked(runs):
    found = read_sections(runs[:1])[0]
    wide, untitled = drawn_on(found, Page())
    narrow, titled = drawn_on(found, Page("one", titled=True))
    assert (wide.size[0], narrow.size[0]) == (TWO_COLUMNS, ONE_COLUMN)
    assert narrow.size[1] > wide.size[1]  # panels below each other
    assert found.title in titled
    assert found.title not in untitled
    made = stages.report(runs[0].path, judge="rules", columns="one")
    assert made.document.columns == "one"


def test_training_curves_are_smoothed_before_what_was_logged():
    assert smooth_values([1.0] * 30) == [1.0] * 30
    noise = [(-1.0) ** step for step in range(200)]
    assert max(map(abs, smooth_values(noise)[5:-5])) < 0.1
    assert len(smooth_values(noise)) == 200
    line = [float(step) for step in range(100)]
    assert smooth_values(line)[2:-2] == pytest.approx(line[2:-2])  # centred: no step is shifted


def test_a_long_curve_is_faint_below_its_mean(runs):
    (found,) = read_sections(runs[:1])
    log = [{"step": step, "loss": 1.0 + (-1.0) ** step} for step in range(1, 101)]
    policies = [replace(policy, training={"log": log}) for policy in found.policies[:1]]
    made, labels = drawn_on(replace(found, policies=policies), Page())
    words = "bold: running mean of 5% of the steps; faint: as logged"
    assert words in labels
    assert words[1:] in made.caption
    assert "stroke-opacity: 0.2" in made.svg
    assert words not in drawn_on(found, Page())[1]  # five steps are drawn as they were logged


def test_an_interval_of_a_share_stays_in_range():
    estimate = Estimate(mean=0.95, error=0.05, n=20, groups=20, df=19)
    assert clip_interval(estimate, ACCURACY) == (pytest.approx(0.95 - 2.093 * 0.05, abs=1e-4), 1.0)
    assert clip_interval(Estimate(0.5, None, 2, 1, 0), ACCURACY) == (0.5, 0.5)


def test_looks_differ_in_more_than_colour():
    assert len({look[1] for look in LOOKS}) == len(LOOKS)
    names = ["SWiFt", "ReFit", "DPO", "STaR-GATE", "Base", "STaR-GATE-D", "StepDPO", "a", "b"]
    found = policy_looks(names)
    assert len(set(found.values())) == len(names)
    assert policy_looks(["Base"])["Base"] == found["Base"]
    assert len(set(policy_looks(["ReFit (one)", "ReFit (two)"]).values())) == 2
    assert len(set(policy_looks([f"policy {number}" for number in range(14)]).values())) == 14


@pytest.mark.parametrize("order", [1, -1])
def test_a_policy_has_one_look_in_all_pictures(order):
    """Whatever others stand beside it: in one document, and a method in all."""
    names = ["Base (small)", "Base (large)", "mine", "theirs", "SWiFt", "ours", "SEAL"]
    with drawing_style(names[::order]):
        whole = policy_looks(names)
        for name in names:
            assert policy_looks([name]) == {name: whole[name]}
        assert policy_looks(["theirs", "mine"]) == {n: whole[n] for n in ("theirs", "mine")}
    assert len(set(whole.values())) == len(names)
    assert policy_looks(reversed(names)) == whole
    assert policy_looks(["SWiFt"])["SWiFt"] == whole["SWiFt"]
