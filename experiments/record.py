"""What a run leaves on disk: a line per finished unit, and how it was made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fairlayer.errors import FairlayerError, InputError

PACKAGES = ("fairlayer", "torch", "numpy", "scikit-learn", "pandas")


def plain(value: Any) -> Any:
    """Data that JSON can hold; a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Record:
    """The results of one profile of an experiment, in a folder."""

    def __init__(self, folder: Path, name: str, profile: str, settings: Any):
        self.folder = folder
        self.units = folder / "units.jsonl"
        self.meta = folder / "meta.json"
        self.results: dict[str, dict[str, Any]] = {}
        self._settings = plain(dataclasses.asdict(settings))
        text = json.dumps([name, self._settings], sort_keys=True)
        self._facts: dict[str, Any] = {
            "experiment": name,
            "profile": profile,
            "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
            "seed": getattr(settings, "seed", None),
            "settings": self._settings,
        }
        self._file: Any = None

    def load(self) -> bool:
        """Read the finished units; False where there are none, or they were made with other settings."""
        if not (self.units.exists() and self.meta.exists()):
            return False
        if json.loads(self.meta.read_text())["digest"] != self._facts["digest"]:
            return False
        for line in self.units.read_bytes().split(b"\n")[:-1]:  # what follows the last newline was never finished
            entry = json.loads(line)
            self.results.setdefault(entry["key"], entry)
        return True

    def begin(self, *, resume: bool, replace: bool) -> None:
        """Take in what is there, or not; nothing on disk changes before the first unit is kept."""
        exists = self.meta.exists()
        if exists and not (resume or replace):
            raise InputError(f"{self.folder} holds results already: give --resume, --replace or another --folder.")
        if exists and resume and not self.load():
            raise InputError(
                f"{self.folder} holds results of other settings, which cannot be resumed: give --replace or "
                "another --folder."
            )

    def _open(self) -> None:
        """For writing, after what was taken in, or in place of what is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.results:
            _drop_torn_line(self.units)
            self._facts["wall_seconds"] = json.loads(self.meta.read_text()).get("wall_seconds", 0.0)
            self._file = self.units.open("a")
        else:
            self._file = self.units.open("w")
            self._write_meta()

    def keep(self, key: str, result: Mapping[str, Any], wall: float, processor: float) -> None:
        """Add a finished unit, durably, with the seconds it took on the wall and of the processor."""
        about = {"key": key, "seconds": round(wall, 3), "cpu_seconds": round(processor, 3)}
        if taken := set(about) & set(result):
            raise FairlayerError(f"The result of {key} has {sorted(taken)}, which the runner sets itself: rename them.")
        entry = plain({**about, **result})
        line = json.dumps(entry, allow_nan=False) + "\n"
        if self._file is None:
            self._open()
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.results[key] = entry

    def close(self, wall: float, jobs: int, units: int) -> None:
        """Finish writing, with what is known about the whole run."""
        if self._file is None:
            return  # nothing was added: what is known of an earlier run stays true
        self._file.close()
        self._facts |= {
            "wall_seconds": round(self._facts.get("wall_seconds", 0.0) + wall, 3),
            "unit_seconds": round(sum(entry["seconds"] for entry in self.results.values()), 3),
            "cpu_seconds": round(sum(entry.get("cpu_seconds", 0.0) for entry in self.results.values()), 3),
            "units": units,
            "units_done": len(self.results),
            "jobs": jobs,
        }
        self._write_meta()

    def ordered(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The results of these units."""
        return [self.results[key] for key in keys]

    def _write_meta(self) -> None:
        about = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in PACKAGES},
        }
        unfinished = self.meta.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self._facts | about, indent=2) + "\n")
        os.replace(unfinished, self.meta)


def _drop_torn_line(path: Path) -> None:
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        os.truncate(path, whole)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
