"""Use the docstrings of fields as descriptions in the JSON schema, read when one is requested.

Pydantic can do so itself (`use_attribute_docstrings`), but parses the source of every class when it
is defined, which was a third of the start time of each command.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base class of models whose fields are described by the docstrings below them."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema with the descriptions of its fields."""
        found = handler(core)
        fields = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in _said(cls).items():
            fields.get(name, {}).setdefault("description", text)
        return found


def _said(cls: type) -> dict[str, str]:
    """Return the docstrings of a class's fields by name, inherited ones included."""
    own = (_own(base) for base in reversed(cls.__mro__) if issubclass(base, Described))
    return {name: text for found in own for name, text in found.items()}


def _own(cls: type) -> dict[str, str]:
    try:
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}  # a class without source
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(said.value.value)
        for field, said in pairwise(made.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
        and isinstance(said.value.value, str)
    }
