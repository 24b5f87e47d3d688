"""A wire to a PostgreSQL server that can be cut while a COMMIT is under way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Cut = Literal["before", "after", "for good"]


class Wire:
    """Passes everything on, both ways. `cut` says what befalls the next COMMIT.

    "before": it never arrives, and the connection ends. "after": it arrives and is carried out, but the connection ends
    before the reply. "for good": the same, and nobody can connect any more until `mend`.
    """

    def __init__(self, host: str, port: int):
        self.target = (host, port)
        self.cut: Cut | None = None
        self.cuts = 0
        self.down = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def mend(self) -> None:
        """Let connections through again."""
        self.down = False

    def close(self) -> None:
        """No more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.down:
                    client.close()
                    continue
                server = socket.create_connection(self.target)
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut is not None and b"COMMIT" in data:
                    how, self.cut = self.cut, None
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RD)
                    self.down = how == "for good"
                    if how != "before":
                        self._carry_out(client, server, data)
                    break
                server.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _carry_out(client: socket.socket, server: socket.socket, data: bytes) -> None:
        """Pass the COMMIT on with the way back closed; the server ends the connection when it is through."""
        client.shutdown(socket.SHUT_WR)
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)

    @staticmethod
    def _pass_on(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                with suppress(OSError):  # the reply to a COMMIT is read, and lost
                    client.sendall(data)


@contextmanager
def wire(url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to the server of a URL, and the URL through it."""
    parts = urlsplit(url)
    made = Wire(parts.hostname, parts.port)
    try:
        yield made, url.replace(f":{parts.port}/", f":{made.port}/")
    finally:
        made.close()
