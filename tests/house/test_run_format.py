"""The fields of a run folder's files are recorded with the number of their format."""

from __future__ import annotations

import json

from tests.docs.release import ROOT, release


def test_the_recorded_fields_are_those_of_the_code() -> None:
    recorded = json.loads((ROOT / release.FORMAT_FILE).read_text())
    assert recorded == release.recorded_format(), (
        "the files of a run changed. If a release has this format: raise FORMAT in "
        "convbench/schema/run.py and add the step to convbench/store/run_format.py. Then: "
        "python docs/release.py --record-format"
    )


def test_a_new_field_changes_what_is_recorded_and_a_new_text_does_not() -> None:
    field = {"type": "string", "title": "Id", "description": "An id."}
    schema = {"properties": {"id": field}, "required": ["id"], "title": "Run"}
    reworded = {"properties": {"id": field | {"description": "Its id."}}, "required": ["id"]}
    assert release.structure(schema) == release.structure(reworded)
    for other in (
        {"properties": {"id": field, "title": field}, "required": ["id"]},
        {"properties": {"id": field | {"type": "integer"}}, "required": ["id"]},
        {"properties": {"id": field}},
    ):
        assert release.structure(schema) != release.structure(other)
