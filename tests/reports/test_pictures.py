"""Pictures of a report, and patterns of how policies talk."""

import itertools
import json
import re
import sys
from types import SimpleNamespace

import pytest

from convbench.errors import DataError
from convbench.options.report import ReportOptions
from convbench.reports.patterns import TALK, analyse, common_words, distinct_n, final_replies
from convbench.reports.report import make_report
from convbench.reports.write import write_report
from tests.helpers.cli import convbench
from tests.helpers.reported import learner, right_on
from tests.helpers.runs import make, questions
from tests.support.later import later

pd = later("pandas")
sklearn = later("sklearn.feature_extraction.text")


@pytest.fixture
def flat(monkeypatch):
    """No UMAP, which is compiled for half a minute before it runs."""
    place = lambda **more: SimpleNamespace(fit_transform=lambda matrix: matrix[:, :2].toarray())  # noqa: E731
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=place))


@pytest.fixture
def family(tmp_path):
    """Base and SWiFt, which talk in words of their own, with a log of the training."""
    words = ("careful reasons suggest", "quick guess says", "eliminating others leaves")

    def speak(style):
        def text(q, k, said):
            tree = ("maple", "oak", "elm")[(int(q[1:]) * k + style) % (2 + style)]
            return f"Well, {words[(int(q[1:]) + k + style) % 3]} {said}, {tree}"

        return text

    run = make(tmp_path / "run", questions(12), lambda q, k: "A" if k else "B",
               overall=lambda q, k: 4.0 + k, text=speak(0))  # fmt: skip
    log = [{"step": n, "loss": 1 / (n + 1), "log_pi_negative": -n} for n in range(5)]
    learner(run, "swift", lambda q, k: "A", "SWiFt", log={"log": log},
            overall=lambda q, k: 6.0 + k, text=speak(1))  # fmt: skip
    return run


def test_plots_are_written_in_three_formats(family, tmp_path):
    assert make_report([family]).document.parts[0].pictures == ()
    result = make_report([family], ReportOptions(plots=True))
    names = [picture.name for picture in result.document.parts[0].pictures]
    assert [name.split("-demo")[0] for name in names] == [
        "means", "radar-rules", "temperature", "training",
    ]  # fmt: skip
    files = write_report(result.document, tmp_path / "out", ["html"])
    assert len(files) == 1 + 3 * len(names)
    page = files[0].read_text()
    assert page.count("<svg") == len(names)
    for file in files[1:]:
        assert file.stat().st_size > 1000
    assert "SWiFt" in page


def test_curves_have_a_level_line_for_a_policy_without_an_x(tmp_path, monkeypatch):
    level = []
    keep = lambda axes, y, **more: level.append((y, more["label"]))  # noqa: E731
    monkeypatch.setattr("matplotlib.axes.Axes.axhline", keep)
    run = make(tmp_path / "run", questions(4), right_on(0), temperatures=(1.0,))
    for name, rows in (("awr-a", 600), ("awr-b", 1100)):
        sized = {"data": {"rows": rows}}
        learner(run, name, right_on(0, 1), recipe=sized, temperatures=(1.0,))
    (part, *_) = make_report([run], ReportOptions(plots=True)).document.parts
    names = [picture.name for picture in part.pictures]
    assert [name.partition("-")[0] for name in names] == ["means", "rows"]
    assert level == [(0.25, "Base")]


def test_patterns_are_a_row_for_each_policy(family, flat):
    assert make_report([family], ReportOptions(patterns=True)).document.parts[-1].pictures == ()
    document = make_report([family], ReportOptions(patterns=True, plots=True)).document
    part = document.parts[-1]
    assert part.title == "Language patterns"
    frame = document.frames()["patterns"].set_index("policy")
    shares = frame[[c for c in frame if re.fullmatch(r"pattern_\d", c)]]
    assert list(shares.sum(axis=1).round(6)) == [100, 100]
    assert list(frame["replies"]) == [36, 36]
    assert [picture.name for picture in part.pictures] == ["patterns-demo-thinking-reasoning-n-3"]


def test_patterns_without_plots_are_printed_and_place_nothing(family, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)  # cannot be imported
    done = convbench(family.path.parent, "report", "run", "--patterns", "--format", "json")
    assert done.code == 0, done.err
    names = [table["name"] for table in json.loads(done.out)["parts"][-1]["tables"]]
    assert names == ["patterns", "common-words"]
    assert not family.reports_folder.exists()


@pytest.mark.exhaustive
def test_the_same_replies_have_the_same_places(family):
    (setting,) = make_report([family]).settings
    first, again = (analyse(final_replies(setting), plane=True)[0] for _ in range(2))
    assert first[["x", "y"]].equals(again[["x", "y"]])
    assert first[["x", "y"]].notna().all().all()


def test_patterns_equal_ten_lines_of_pandas(family, flat):
    (setting,) = make_report([family]).settings
    replies = final_replies(setting)
    texts = [(name, talk) for name in ("SWiFt", "Base") for talk in _texts(family, name)]
    rows = pd.DataFrame(texts, columns=["policy", "text"])
    rows["words"] = rows["text"].map(lambda text: re.findall(r"\b\w\w+\b", text.lower()))
    own = rows.explode("words").reset_index().drop_duplicates(["index", "words"])
    shares = own.groupby(["policy", "words"]).size().unstack("policy", fill_value=0)
    shares = shares / rows.groupby("policy").size()
    alike = (shares.min(axis=1) > 0) & (shares.max(axis=1) / shares.min(axis=1) <= 1.2)
    common = set(shares[alike & (shares.max(axis=1) >= 0.01)].index)
    found, words = analyse(replies, plane=False)
    assert words >= common
    assert all(word in sklearn.ENGLISH_STOP_WORDS | TALK for word in words - common)
    table = (
        make_report([family], ReportOptions(patterns=True))
        .document.frames()["patterns"]
        .set_index("policy")
    )
    for policy, own in rows.groupby("policy"):
        pairs = [pair for each in own["words"] for pair in itertools.pairwise(each)]
        assert table.loc[policy, "distinct_2"] == len(set(pairs)) / len(pairs)
        labels = found.loc[found["policy"] == policy, "pattern"]
        assert table.loc[policy, "pattern_0"] == pytest.approx(100 * (labels == 0).mean())
        assert table.loc[policy, "words"] == pytest.approx(own["words"].map(len).mean())


def _texts(run, name):
    """The last replies of a policy about the test questions."""
    each = run if name == "Base" else run.child_runs()[0]
    asked = {key for key, example in each.examples.items() if example.split == "test"}
    return [str(t.turns[-1].content) for t in each.conversations() if t.example_id in asked]


def replies_of(**texts):
    rows = [
        (policy, f"{policy}{i}", "g", text.split())
        for policy, some in texts.items()
        for i, text in enumerate(some)
    ]
    return pd.DataFrame(rows, columns=["policy", "conversation_id", "group", "words"])


def test_common_words_by_hand():
    replies = replies_of(a=["alpha beta", "alpha"], b=["alpha gamma", "alpha"])
    assert common_words(replies) == {"alpha"}  # beta and gamma are of one policy alone
    replies = replies_of(a=["alpha beta", "alpha"], b=["alpha gamma", "alpha", "the answer"])
    assert common_words(replies) == {"the", "answer"}  # alpha: 1 against 2/3 is beyond 1.2


def test_distinct_n_by_hand():
    assert distinct_n([["a", "b", "a"], ["a", "b"]], 1) == 2 / 5
    assert distinct_n([["a", "b", "a"], ["a", "b"]], 2) == 2 / 3
    assert distinct_n([["a"]], 2) is None


def test_replies_without_a_common_word_are_refused():
    with pytest.raises(DataError, match="no common word"):
        analyse(replies_of(a=["alpha"], b=["beta"]), plane=False)
