"""What a user may say of each command, declared once: the class is the command line, the Python
signature and the documentation. Imports nothing that takes time."""
