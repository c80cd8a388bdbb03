"""Data goldens: what the program makes of given input, as data, one file for each kind of it.

`run.py` makes the run that most of them look at, `record.py` compares. After a wanted change:
`pytest tests/golden --update-golden`, then read the difference.
"""
