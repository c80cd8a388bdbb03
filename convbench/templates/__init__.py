"""Templates: Jinja's language read by Jinja, walked by us over plain data, with every step counted.

A template is data from anywhere. Jinja parses it; nothing of it is ever compiled to Python.
What a template may hold is listed (`source`), so is what it may call (`filters`, `conditions`,
`methods`); what it may reach is plain data (`plain`), and what it may cost is a number (`budget`).
`walk` and `values` fill it in. Uses errors alone.
"""

from convbench.templates.budget import LINE, Budget, Missing, Refused, one_line
from convbench.templates.plain import Plain, world
from convbench.templates.source import expression, free_names, template, tested_names
from convbench.templates.walk import Quote, evaluate, fill

__all__ = [
    "LINE",
    "Budget",
    "Missing",
    "Plain",
    "Quote",
    "Refused",
    "evaluate",
    "expression",
    "fill",
    "free_names",
    "one_line",
    "template",
    "tested_names",
    "world",
]
