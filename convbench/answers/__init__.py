"""What a conversation answered, read from its text: the one place where answers are parsed.

Uses the schema alone. It loads none of its files by itself: what reads an answer is long to load,
and most who are here only want to tell a thinking block.
"""
