"""Language patterns: the rule for common words, diversity, telling words, and the whole by UMAP."""

import csv
import random

import pytest

from convbench.errors import DataError, RunError
from convbench.options.report import PatternOptions
from convbench.reports.patterns.analysis import (
    Patterns,
    Response,
    cluster_texts,
    common_words,
    distinct_n,
    first_words,
    is_common,
    measure_spread,
    read_responses,
    telling_words,
    vocabulary_size,
    word_frequencies,
)
from convbench.reports.patterns.analysis import analyse_patterns as analyse
from convbench.reports.patterns.patterns import patterns_document, points_csv, report_patterns
from convbench.store import Run
from tests.helpers.runs import make, questions
from tests.support.exhaustive import exhaustive
from tests.support.later import needs

needs("sklearn", "umap")


def response(policy, text, number=0):
    return Response(policy, f"{policy}{number}", "g", text)


def test_words():
    assert response("p", "The <b>Sun</b>'s 2nd a-b café!").words == ("the", "sun", "2nd", "café")


def test_the_rule_for_common_words():
    # Two policies: their ratio within [0.8, 1.2], one way or the other.
    assert is_common([0.5, 0.5])
    assert is_common([0.6, 0.5])  # 1.2
    assert is_common([0.5, 0.6])
    assert not is_common([0.5, 0.4])  # 1.25, 0.8 the other way
    assert not is_common([0.4, 0.5])
    assert not is_common([0.5, 0.41])
    assert not is_common([0.5, 0.39])
    assert not is_common([0.39, 0.5])
    # 0.01 in any policy is enough, in none too little.
    assert is_common([0.01, 0.0095])
    assert not is_common([0.0099, 0.0099])
    assert not is_common([0.5, 0.0])
    # More policies: the largest ratio counts.
    assert is_common([0.5, 0.55, 0.6])
    assert not is_common([0.49, 0.55, 0.6])


def test_common_words_by_hand():
    said = [response("a", f"the answer is rock {w}") for w in ("tide", "tide", "moon", "star")]
    said += [response("b", f"the answer is rock {w}") for w in ("tide", "tide", "lava", "moon")]
    found = word_frequencies(said)
    assert found["a"]["tide"] == 0.5
    assert found["b"]["moon"] == 0.25
    # the, is: stop words; answer: domain; rock, tide, moon: as frequent; star, lava: in one alone.
    assert common_words(found) == {"the", "is", "answer", "rock", "tide", "moon"}


def test_distinct_by_hand():
    texts = [("a", "b", "a"), ("a", "b")]
    assert distinct_n(texts, 1) == 2 / 5
    assert distinct_n(texts, 2) == 2 / 3  # ab, ba, ab
    assert distinct_n(texts, 3) == 1
    assert distinct_n(texts, 4) is None
    assert vocabulary_size(texts) == 2
    assert first_words(texts, 4) == [("a", "b", "a"), ("a",)]
    assert first_words(texts, 2) == [("a", "b")]


def test_telling_words():
    one = [response("a", "moon moon tide rock")]
    two = [response("b", "sun sun tide rock")]
    assert telling_words(one, two) == ["moon"]
    assert telling_words(two, one, top=1) == ["sun"]
    # z of moon: counts 2 and 0, prior 2 of 8: log(4/8) - log(2/10) over sqrt(1/4 + 1/2).
    assert telling_words(one, one) == []


TEMPLATES = (
    "first consider what the question asks about {0} and {1} so the answer is {2}",
    "the answer is {2} while {0} is not needed here at all",
    "let me think about each of them in turn {0} {1} out they go",
    "because it cannot be {0} nor {1} it must be {2} then",
    "yes {2} for sure",
)
TOPICS = ("lava magma crust", "cell enzyme sugar", "orbit moon tide", "current battery wire")


def talk(policy, *weights):
    def text(question, sample, said):
        draw = random.Random(f"{policy}{question}{sample}")
        topic = draw.choice(TOPICS).split()
        own = {"base": "simply clearly", "swift": "moreover mechanism evidence"}[policy].split()
        chosen = draw.choices(TEMPLATES, weights)[0].format(*draw.sample(topic, 3))
        return f"{chosen} {' '.join(draw.choices(own, k=2))}"

    return text


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patterns")
    base = make(folder / "run", questions(20), lambda q, k: "A", text=talk("base", 0, 8, 1, 1, 4))
    make(
        base.evals_folder / "swift",
        questions(20),
        lambda q, k: "A",
        text=talk("swift", 8, 0, 3, 2, 1),
        parent=base.manifest.id,
        split="test",
        extra={"recipe": "swift"},
    )
    return base


def in_rows(texts, neighbours):
    """Return places of texts without UMAP, which takes a quarter of a minute to compile itself."""
    return [(float(n % neighbours), float(n // neighbours)) for n in range(len(texts))]


@pytest.mark.slow
@pytest.mark.parametrize("by_umap", [False, exhaustive(True)])
def test_the_whole(pair, tmp_path, monkeypatch, by_umap):
    if not by_umap:
        monkeypatch.setattr("convbench.reports.patterns.analysis.project_texts", in_rows)
    result = report_patterns(PatternOptions((pair.path,), out=tmp_path / "one"))
    found = result.analysis
    assert found.policies == ["Base", "SWiFt"]
    assert (len(found.responses), found.neighbours) == (120, 15)
    sizes = [found.pattern.count(k) for k in range(5)]
    assert sum(sizes) == 120
    assert sizes == sorted(sizes, reverse=True)
    tables = {table.caption: table for table in result.document.parts[0].tables}
    for column in (1, 2):
        shown = [float(row[column].text) for row in tables["Pattern shares"].rows]
        assert sum(shown) == pytest.approx(100, abs=0.3)
    words = {row[0].text: row[1].text for row in tables["Telling words by policy"].rows}
    assert "clearly" in words["Base"]
    assert "mechanism" in words["SWiFt"]
    with (tmp_path / "one" / "patterns.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == 120
    assert {point["policy"] for point in points} == {"Base", "SWiFt"}
    names = {path.name for path in result.files}
    assert names == {f"patterns.{end}" for end in ("html", "md", "pdf", "svg", "png", "csv")}
    # The same responses give the same files, and naming the runs one by one changes nothing.
    again = report_patterns(
        PatternOptions((pair.path, pair.evals_folder / "swift"), out=tmp_path / "two")
    )
    for one, two in zip(result.files, again.files, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_the_order_of_runs_changes_nothing(pair):
    swift = Run.open(pair.evals_folder / "swift")
    one, two = read_responses([pair, swift]), read_responses([swift, pair])
    assert one == two
    assert one[0].policy == "Base"
    shares = {"a": {"moon": 0.5, "tide": 0.5}, "b": {"moon": 0.42, "tide": 0.4}}
    turned = dict(reversed(shares.items()))
    assert common_words(shares) == common_words(turned)
    assert common_words(shares) == {"moon"}
    assert "tide" not in common_words(shares)


def test_too_little_to_compare(pair, tmp_path):
    with pytest.raises(RunError, match="expected two or more"):
        read_responses([pair], "train")
    with pytest.raises(DataError, match="no common word"):
        cluster_texts(["one", "two", "three", "four", "five", "six"])


def test_short_answers_have_fewer_patterns_and_no_picture():
    said = [response("a", f"The answer is {x}.", k) for k, x in enumerate("ABCDABCD")]
    said += [response("b", "It is not.", k) for k in range(4)]
    found = analyse(said)
    assert found.pattern == [0] * 8 + [1] * 4
    assert found.coordinates is None
    assert len(found.notes) == 2
    document = patterns_document(found, "title")
    assert document.parts[0].pictures == ()
    assert [row[0].text for row in document.parts[0].tables[0].rows] == ["pattern 0", "pattern 1"]
    assert points_csv(found).decode().splitlines()[1] == "a0,a,0,,"


def test_patterns_are_numbered_by_size():
    texts = [text for k, text in enumerate(TEMPLATES) for _ in range(3 + 2 * k)]
    labels = cluster_texts(texts)
    assert [labels.count(k) for k in range(5)] == [11, 9, 7, 5, 3]
    assert len(set(labels[:3])) == 1


def test_spread_by_hand():
    """Two policies, each with words of its own, and one that says something else."""
    said = [response("Base", "rock tide", n) for n in range(20)]
    said += [response("SWiFt", "moon star", n) for n in range(20)]
    pattern = [0] * 30 + [1] * 10
    found = measure_spread(Patterns(said, frozenset(), pattern, None, 15))
    assert found.by_policy == {"Base": pytest.approx(0.0), "SWiFt": pytest.approx(0.0)}
    # Of 40 * 39 pairs, 2 * 20 * 20 lie across: as far apart as can be.
    assert found.distance == pytest.approx(800 / 1560)
    # All 15 neighbours are of the same policy, where chance gives 19 of 39.
    assert found.separation == pytest.approx(1 - 19 / 39)
    assert found.largest_share == 0.75
    assert found.effective_patterns == pytest.approx(0.75**-0.75 * 0.25**-0.25)
    assert found.outliers == 0.0
    lonely = [*said, response("SWiFt", "moon lava sand"), response("Base", "lava sand rock wind")]
    found = measure_spread(Patterns(lonely, frozenset(), [*pattern, 0, 0], None, 15))
    assert found.outliers == pytest.approx(2 / 42)


def test_spread_without_an_uncommon_word_says_nothing():
    said = [response("Base", "rock", n) for n in range(5)]
    found = measure_spread(Patterns(said, frozenset({"rock"}), [0] * 5, None, 4))
    assert (found.distance, found.separation, found.outliers) == (None, None, None)
    assert found.effective_patterns == 1.0
