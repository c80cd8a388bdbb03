"""Import and export of conversations. `readers` say what is in a file; a format more is a file."""
