"""Pictures as arrays on disk, and features of a frozen network, each computed once.

Both are kept in `XDG_CACHE_HOME`, else ~/.cache, in files that are read in place, so that they may be larger than
memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.errors import FairlayerError

BLOCK = 32  # pictures at a time


@dataclass(frozen=True, eq=False)
class Album:
    """Pictures in the order in which they are kept, of which the first `altered` are altered at random, once.

    numbers: of each picture in its dataset, by which its alteration is drawn, whatever the order here.
    """

    name: str
    pictures: Any
    numbers: np.ndarray
    altered: int
    seed: int

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All pictures, some at a time, as bytes of shape (k, 3, size, size)."""
        for start in range(0, len(self.pictures), BLOCK):
            stop = min(start + BLOCK, len(self.pictures))
            yield np.stack([self._read(position, size) for position in range(start, stop)])

    def facts(self, size: int) -> dict[str, Any]:
        """What the blocks depend on. Sets of pictures are told apart by all names and two of the files."""
        files = hashlib.sha256("\n".join(self.pictures.names).encode())
        for position in (0, len(self.pictures) - 1):
            files.update(self.pictures.read(position))
        numbers = hashlib.sha256(np.asarray(self.numbers, dtype="<i8").tobytes()).hexdigest()
        return {
            "data": self.name,
            "size": size,
            "altered": self.altered,
            "seed": self.seed if self.altered else None,
            "files": files.hexdigest(),
            "numbers": numbers if self.altered else None,
        }

    def _read(self, position: int, size: int) -> np.ndarray:
        from PIL import Image

        picture = self.pictures[position]
        if picture.size != (size, size):
            picture = picture.resize((size, size), Image.Resampling.BILINEAR)
        if position < self.altered:
            picture = _alter(picture, np.random.default_rng((self.seed, int(self.numbers[position]))))
        return np.asarray(picture).transpose(2, 0, 1)


def _alter(picture: Any, random: np.random.Generator) -> Any:
    """Mirror every second picture; change brightness, contrast and saturation by up to a fifth, in any order."""
    from PIL import ImageEnhance, ImageOps

    if random.random() < 0.5:
        picture = ImageOps.mirror(picture)
    changes = [ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]
    for change in random.permutation(len(changes)):
        picture = changes[change](picture).enhance(random.uniform(0.8, 1.2))
    return picture


def pixels(album: Album, size: int) -> Tensor:
    """Pictures as bytes, (n, 3, size, size)."""
    return kept(album.facts(size) | {"network": "pixels"}, len(album.pictures), lambda: album.blocks(size))


def features(album: Album, size: int, network: str, weights: str, model: Callable[[], nn.Module]) -> Tensor:
    """Features of the pictures, (n, width), by a model that is not trained; network and weights say which it is."""
    return kept(
        album.facts(size) | {"network": network, "weights": weights},
        len(album.pictures),
        lambda: feature_blocks(album.blocks(size), model()),
    )


def feature_blocks(parts: Iterable[np.ndarray], model: nn.Module) -> Iterator[np.ndarray]:
    """A model's features of blocks of pictures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.eval().to(device, memory_format=torch.channels_last)  # twice as fast on a CPU
    with torch.inference_mode():
        for part in parts:
            x = torch.from_numpy(part).to(device).contiguous(memory_format=torch.channels_last)
            yield model(x).float().cpu().numpy()


def kept(what: dict[str, Any], rows: int, compute: Callable[[], Iterator[np.ndarray]]) -> Tensor:
    """The rows of all blocks, from the cache where they are there, else computed and put there.

    what: all that they depend on, as plain data.
    """
    key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder() / f"{what['data']}-{what['network']}-{what['size']}-{key}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        os.close(handle)
        part = Path(name)
        try:
            _write(part, rows, compute())
            part.replace(path)  # whole, or not at all
        finally:
            part.unlink(missing_ok=True)
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _write(path: Path, rows: int, parts: Iterator[np.ndarray]) -> None:
    array, done = None, 0
    for part in parts:
        if array is None:
            array = np.lib.format.open_memmap(path, "w+", part.dtype, (rows, *part.shape[1:]))
        array[done : done + len(part)] = part
        done += len(part)
    if array is None or done != rows:
        raise FairlayerError(f"There are {done} pictures where {rows} were expected.")
    array.flush()


def cache_folder() -> Path:
    """Where arrays are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "fairlayer" / "pictures"
