"""Queries only read, and only the run's own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.errors import QueryError
from convbench.store.query import run_query
from tests.helpers.runs import write_run
from tests.support.one_line import one_line

HOSTILE = (
    "COPY conversations TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT csv)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{out}'",
    "EXPLAIN EXPLAIN COPY (SELECT 1) TO '{out}'",
    "/* x */ EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "ATTACH '{secret}' AS other (READ_ONLY)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{out}'",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "PRAGMA enable_profiling",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_ndjson_objects('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM query('SELECT * FROM read_text(''{secret}'')')",
    "WITH x AS (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "DESCRIBE SELECT * FROM read_csv('{secret}')",
    "SUMMARIZE '{secret}'",
    "SELECT * FROM 'https://127.0.0.1:9/x.parquet'",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret_frame",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW conversations AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "DROP VIEW conversations",
    "INSERT INTO raw.verdicts (judge) VALUES ('x')",
    "UPDATE raw.verdicts SET reward = 1",
    "DELETE FROM raw.verdicts",
    "TRUNCATE raw.verdicts",
    "WITH x AS (DELETE FROM raw.verdicts RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO raw.runs (run) VALUES ('x') RETURNING *) SELECT * FROM x",
    "MERGE INTO raw.verdicts USING raw.runs ON true WHEN MATCHED THEN DELETE",
    "ALTER TABLE raw.verdicts ADD COLUMN x INT",
    "BEGIN TRANSACTION",
    "CHECKPOINT",
    "VACUUM",
    "USE raw",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "CREATE SECRET s (TYPE s3)",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
    "SELECT 1; SELECT 2",
    "",
    "-- nothing",
)


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_query_is_refused_in_one_line(sql: str, tmp_path: Path) -> None:
    """A QueryError, no file written, no word of a file read."""
    secret_frame = {"word": ["swordfish"]}  # a Python variable is no table either
    assert secret_frame
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("word\nswordfish\n")
    run = write_run(tmp_path / "r", count=1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(QueryError) as caught:
        run_query(sql.format(out=out, secret=secret, folder=tmp_path), [run])
    assert "swordfish" not in one_line(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


READING = (
    "SELECT 1",
    "VALUES (1)",
    "TABLE verdicts",
    "FROM verdicts",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "DESCRIBE verdicts",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SUMMARIZE verdicts",
    "EXPLAIN SELECT * FROM verdicts",
    "EXPLAIN ANALYZE SELECT count(*) FROM verdicts",
    "SELECT 'COPY x TO y; DELETE FROM z' AS text;",
    "SELECT 'INSERT_QUERY_NODE' AS text -- COPY",
)


@pytest.mark.parametrize("sql", READING)
def test_reading_statements_run(sql: str, tmp_path: Path) -> None:
    """What only reads is not refused."""
    assert len(run_query(sql, [write_run(tmp_path / "r", count=1)])) > 0
