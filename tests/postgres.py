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


class Server:
    """A server that can be stopped, killed and started again, with its data in a folder."""

    def __init__(self, folder: Path, durable: bool):
        self.folder = folder
        self.data = folder / "data"
        self.port = _free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._binaries = _binaries()
        account = _account()
        self._options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
        if account:
            os.chown(folder, account.pw_uid, account.pw_gid)
        self._settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": self.port}
        self._settings["fsync"] = "on" if durable else "off"
        self._process: subprocess.Popen | None = None

    def make(self) -> None:
        """An empty database in the folder."""
        command = ["--pgdata", self.data, "--username", "postgres", "--auth", "trust", "--no-sync"]
        made = subprocess.run(
            [self._binaries / "initdb", *command], capture_output=True, text=True, cwd=self.folder, **self._options
        )
        if made.returncode:
            raise NoServerError(f"initdb failed: {made.stderr.strip()}")

    def start(self) -> None:
        """Run it, and wait until it answers."""
        command = [self._binaries / "postgres", "-D", self.data]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "log"
        with log.open("a") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.folder, **self._options)
        _await(self.url, self._process, log)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown, which ends sessions and does not wait for them. SIGQUIT: as in a crash."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def hang(self, hanging: bool) -> None:
        """Let every process of the server stand still, or go on: connections stay, and nobody answers."""
        assert self._process is not None
        for pid in [self._process.pid, *_children(self._process.pid)]:
            os.kill(pid, signal.SIGSTOP if hanging else signal.SIGCONT)

    def copy(self, name: str) -> Path:
        """A copy of the data, of a server that is stopped."""
        subprocess.run(["cp", "-a", self.data, self.folder / name], check=True)
        return self.folder / name

    def put_back(self, copy: Path) -> None:
        """Go on with a copy, once started; what was there is moved aside."""
        self.data.rename(self.folder / f"before {copy.name}")
        copy.rename(self.data)


@contextmanager
def controlled_server(durable: bool = True) -> Iterator[Server]:
    """A fresh server, which ends with the context.

    durable: whether commits wait for the disk. Where only clients die, never the machine, they need not.
    """
    folder = Path(tempfile.mkdtemp(prefix="fairlayer-postgres-"))
    try:
        server = Server(folder, durable)
        server.make()
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(durable: bool = True) -> Iterator[str]:
    """The URL of a fresh server, which ends with the context."""
    with controlled_server(durable) as server:
        yield server.url


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


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
