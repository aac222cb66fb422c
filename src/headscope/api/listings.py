"""Lists of the named models and masks, and a description of the installation, as the command line prints them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.model import zoo
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

POSITIONS = 128  # at which the share of forbidden attention is computed


@dataclass(frozen=True)
class Listing(Result):
    """Named things with their properties.

    title   what is listed: "models", "masks" or "installation"
    record  the properties by name
    """

    title: str
    record: dict[str, Any]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """One table, with a row for each name."""
        import pandas as pd

        rows = [
            {"name": name, **(row if isinstance(row, dict) else {"value": row})}
            for name, row in self.record.items()
        ]
        return {self.title: pd.DataFrame(rows)}

    def __repr__(self) -> str:
        return f"Listing({self.title!r}: {', '.join(self.record)})"


def list_masks() -> Listing:
    """The named masks, with their parameters and the share of attention they forbid at 128 positions.

    Returns
    -------
    Listing
        `tables["masks"]` has a row for each mask.

    Examples
    --------
    >>> masks = headscope.list_masks().tables["masks"]
    >>> "window" in set(masks["name"])
    True
    """
    # Imported here, since the list of models needs no torch and is fast without it
    from headscope.config.masks import format_parameters
    from headscope.masks.mask_spec import defaults_of, read_mask, sparsity
    from headscope.masks.patterns import PATTERNS

    rows = {
        name: {
            "forbidden": sparsity(read_mask(name).at(POSITIONS)),
            "parameters": format_parameters(defaults_of(make)),
            "description": (make.__doc__ or "").splitlines()[0],
        }
        for name, make in PATTERNS.items()
    }
    return Listing("masks", rows)


def list_models() -> Listing:
    """The named models, with size and licence, and whether they are downloaded.

    Returns
    -------
    Listing
        `tables["models"]` has a row for each model.

    Examples
    --------
    >>> "smollm2" in headscope.list_models().record
    True
    """
    return Listing("models", zoo.describe_models())


def fetch_model(name: str) -> Path:
    """Download a named model into the cache. Nothing is installed or run, and checksums are verified.

    Parameters
    ----------
    name
        Name of the model, as in `list_models`.

    Returns
    -------
    Path
        The directory of the model.

    Raises
    ------
    HeadscopeError
        If there is no such model, or a checksum does not match.

    Examples
    --------
    >>> headscope.fetch_model("minilm").name
    'minilm'
    """
    return zoo.fetch(name)


def verify_model(name: str) -> None:
    """Verify the checksums of a downloaded model.

    Parameters
    ----------
    name
        Name of the model, as in `list_models`.

    Returns
    -------
    None
        If all checksums match.

    Raises
    ------
    HeadscopeError
        If the model is not downloaded, or a checksum does not match.

    Examples
    --------
    >>> headscope.verify_model("minilm")
    """
    zoo.verify(name)


def doctor() -> Listing:
    """Versions, devices and supported families, and the self-check of downloaded models.

    Returns
    -------
    Listing
        `record` has what the command prints.

    Examples
    --------
    >>> "versions" in headscope.doctor().record
    True
    """
    from headscope.api.installation import describe_installation

    return Listing("installation", describe_installation())
