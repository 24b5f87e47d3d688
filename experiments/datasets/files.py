"""Where the files of a dataset are: a local folder, or the public source, checked either way.

The folder is the one FAIRLAYER_DATA names, else a cache in the user's home. Each dataset has a subfolder of its own.
German credit comes with the repository.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from experiments import german_credit
from fairlayer.errors import FairlayerError

SHIPPED = {("german", "german.data"): german_credit.PATH}  # what comes with the repository


class DatasetError(FairlayerError):
    """A file of a dataset is absent, cannot be fetched, or is not the file that it should be."""


@dataclass(frozen=True)
class File:
    """A file of a dataset. `sha256` None where copies differ, as a folder of one's own pictures does.

    url: where it can be fetched from, and `member`, its name within the archive found there.
    """

    folder: str
    name: str
    sha256: str | None
    url: str | None = None
    member: str | None = None

    @property
    def path(self) -> Path:
        """Where it is, or would be; a copy of one's own goes before the one that came with the package."""
        own = data_folder() / self.folder / self.name
        return own if own.exists() else SHIPPED.get((self.folder, self.name), own)

    @property
    def present(self) -> bool:
        """Whether there is a local copy."""
        return self.path.exists()


def data_folder() -> Path:
    """FAIRLAYER_DATA, or the cache in the user's home."""
    named = os.environ.get("FAIRLAYER_DATA")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "fairlayer"


def locate(*choices: File, source: str, fetch: bool = True, verify: bool = True) -> File:
    """Return the first of several equivalent files that is there; else fetch the first that can be fetched."""
    for file in choices:
        if file.present:
            if verify:
                check(file)
            return file
    wanted = " or ".join(str(file.path) for file in choices)
    public = next((file for file in choices if file.url), None)
    if public is None:
        raise DatasetError(f"{wanted} is absent and has no address to fetch it from: get it from {source}.")
    if not fetch:
        raise DatasetError(f"{wanted} is absent: put it there (source: {source}), or allow fetch=True.")
    _fetch(public, source)
    return public


def check(file: File) -> None:
    """Refuse a file whose checksum is not the expected one."""
    if file.sha256 is None or not file.path.is_file():
        return
    with file.path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise DatasetError(
            f"{file.path} has SHA-256 {found}, expected {file.sha256}: it is another version or was changed. "
            "Replace it, or pass verify=False to read it all the same."
        )


def _fetch(file: File, source: str) -> None:
    """Download next to where the file goes and move it there once it is whole and right."""
    assert file.url is not None
    request = urllib.request.Request(file.url, headers={"User-Agent": "fairlayer"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            content = response.read()
    except (urllib.error.URLError, OSError) as error:
        raise DatasetError(
            f"{file.path} is absent and {file.url} cannot be reached ({error}). Without a network, put the file there "
            f"by hand (source: {source}), or set FAIRLAYER_DATA to a folder that holds {file.folder}/{file.name}."
        ) from error
    if file.member is not None:
        content = _extract(content, file)
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 is not None and found != file.sha256:
        raise DatasetError(f"{file.url} gave SHA-256 {found}, expected {file.sha256}: nothing was kept.")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.path.parent, delete=False) as part:
            part.write(content)
        Path(part.name).replace(file.path)
    except OSError as error:
        raise DatasetError(f"{file.path} cannot be written ({error}): set FAIRLAYER_DATA to another folder.") from error


def _extract(content: bytes, file: File) -> bytes:
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            name = next(entry for entry in archive.namelist() if Path(entry).name == file.member)
            return archive.read(name)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise DatasetError(f"{file.url} is not an archive that holds {file.member}: nothing was kept.") from error
