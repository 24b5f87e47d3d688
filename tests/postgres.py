"""A PostgreSQL server of our own: made in a temporary folder, on loopback, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from debian import install

WANTED = "FAIRLAYER_INSTALL_POSTGRES"  # set to 1, Debian's package is installed where it is missing
START_SECONDS = 30.0


class NoServerError(Exception):
    """No server can be had here; the message says why."""


@contextmanager
def running_server(durable: bool = True) -> Iterator[str]:
    """The URL of a fresh server, which ends with the context.

    durable: whether commits wait for the disk. Where only clients die, never the machine, they need not.
    """
    binaries = _binaries()
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="fairlayer-postgres-"))
    options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    if account:
        os.chown(folder, account.pw_uid, account.pw_gid)
    data, log = folder / "data", folder / "log"
    try:
        command = [binaries / "initdb", "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, cwd=folder, **options)
        if made.returncode:
            raise NoServerError(f"initdb failed: {made.stderr.strip()}")
        port = _free_port()
        settings: dict[str, object] = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": port}
        settings["fsync"] = "on" if durable else "off"
        command = [binaries / "postgres", "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with log.open("w") as out:
            server = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, **options)
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            _await(url, server, log)
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: ends sessions, does not wait for them
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """The folder of the newest server installed; Debian keeps them out of the search path."""
    found = _installed()
    if found is None and os.environ.get(WANTED) == "1":
        install("postgresql")
        found = _installed()
    if found is None:
        raise NoServerError(f"no PostgreSQL server is installed (apt-get install postgresql, or set {WANTED}=1)")
    return found


def _installed() -> Path | None:
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if folders:
        return max(folders, key=lambda folder: float(folder.parent.name))
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path and shutil.which("initdb") else None


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses the superuser. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServerError("running as root, and there is no user postgres or nobody to run a server as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(url: str, server: subprocess.Popen, log: Path) -> None:
    """Wait until the server answers."""
    try:
        import psycopg
    except ImportError as error:
        raise NoServerError("psycopg is not installed (pip install 'fairlayer[postgres]')") from error
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise NoServerError(f"the server did not start: {log.read_text()[-500:]}")
