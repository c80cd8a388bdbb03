"""Questions about prices: four different amounts that somebody can pay, one of them right."""

from convbench.tasks.market import rows


def test_every_option_is_an_amount_that_can_be_paid():
    made = rows(seed=0)
    for row in made:
        amounts = [int(text) for text in row["choices"]["text"]]
        assert min(amounts) > 0, row["question"]
        assert len(set(amounts)) == 4, row["question"]
    assert len(made) == 60
