"""What a whole experiment came to, in one document.

Every printed table with ours in it, how far the orders agree, what is missing and why, wording,
cost, and a few conversations.
"""
