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


class DescribedModel(BaseModel):
    """Base class of models whose fields are described by the docstrings below them."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema with the descriptions of its fields."""
        schema = handler(core)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _field_docs(cls).items():
            fields.get(name, {}).setdefault("description", text)
        return schema


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of a class's fields by name, inherited ones included."""
    own = (_own_docs(base) for base in reversed(cls.__mro__) if issubclass(base, DescribedModel))
    return {name: text for docs in own for name, text in docs.items()}


def _own_docs(cls: type) -> dict[str, str]:
    try:
        (class_node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}  # a class without source
    assert isinstance(class_node, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(doc_node.value.value)
        for field, doc_node in pairwise(class_node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc_node, ast.Expr)
        and isinstance(doc_node.value, ast.Constant)
        and isinstance(doc_node.value.value, str)
    }
