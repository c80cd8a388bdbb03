"""What every command that reads says of the same runs, word for word, whatever is rebuilt.

`runs.py` makes the runs, `asked.py` lists what is asked of them, `masks.py` takes out what differs
from day to day, `test_fence.py` compares with the files in `golden/`.
"""
