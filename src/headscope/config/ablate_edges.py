"""Options of `ablate-edges`."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.config import names
from headscope.config.analyze import check_statistics
from headscope.config.option import Config, Output, option
from headscope.config.parsing import name_list
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData


@dataclass(frozen=True)
class AblateEdgesConfig(Config):
    """Effect of every head's attention: value zeroing, and removal of attention to a class of tokens."""

    command = "ablate-edges"
    group = "Measure"
    examples = (
        "headscope ablate-edges minilm --corpus sentences.txt --limit 16 --max-length 32 --out study",
        "headscope ablate-edges minilm --corpus wikipedia-pairs --column a --to separator --max-length 32 --out study",
    )
    python = "headscope.ablate_edges, headscope.KnockOut (the edit), headscope.token_map"
    output = Output(part="knock_out")
    uses = {
        TextData: ("corpus", "pairs", "column", "limit", "max_length"),
        Reading: ("mask", "open_special"),
        Run: ("out", "seed", "revision", "device", "dtype", "overwrite", "no_figures"),
    }
    defaults = {"limit": 16}
    helps = {
        "limit": "Maximum number of texts, from the start of the corpus. Each text takes one forward pass per head "
        "and token",
        "out": "Output directory, or an existing study of the same model to add to",
        "seed": "Random seed (tokens of the random control)",
    }
    required = ("corpus", "out")

    to: str = option(
        "special",
        "Class of tokens to which attention is removed: special, classification, separator, punctuation or "
        "content",
        choices=names.MASKED_TOKENS,
    )
    statistics: tuple[str, ...] | None = option(
        None,
        "Statistics to compute of the value-zeroing maps (how far each state turns if one token's values are zeroed), "
        "separated by commas",
        parse=name_list("statistics"),
        check=check_statistics,
        show_default="all that apply",
    )
