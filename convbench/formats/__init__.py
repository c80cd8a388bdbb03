"""Other people's shapes of a conversation: import, export, and the check of what was pulled.

Uses store and catalog beside it, and what lies below.
"""
