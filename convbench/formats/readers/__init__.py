"""A module a format: `recognises` a record by its content, and `read` yields its conversations."""
