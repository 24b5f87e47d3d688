"""Databases for tests of streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres import NoServerError, running_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server that lasts as long as the tests; they skip where there is none to be had."""
    try:
        server = running_server(durable=False)
        url = server.__enter__()
    except NoServerError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    try:
        yield url
    finally:
        server.__exit__(None, None, None)


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE one_test")
        try:
            yield postgres_server.rsplit("/", 1)[0] + "/one_test"
        finally:
            connection.execute("DROP DATABASE one_test WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path) -> str:
    """Where a store can be, one database after the other."""
    if request.param == "sqlite":
        return str(tmp_path / "stream.db")
    return request.getfixturevalue("postgres")
