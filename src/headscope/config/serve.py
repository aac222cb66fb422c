"""Options of `serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.checks import check_model, check_token
from headscope.config.option import ADVANCED, Config, option
from headscope.config.shared import POOLINGS, Reading, Run
from headscope.config.texts import READABLE
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError


def _studies(value: Any) -> tuple[Any, ...]:
    """One study, or several, as a tuple: directories or `Study` objects."""
    studies = tuple(value) if isinstance(value, list | tuple) else (value,)
    for study in studies:
        if not isinstance(study, str | Path) and not hasattr(study, "heads"):
            raise HeadscopeError(
                f"`study` must be a study or its directory, got {describe_value(study)}"
            )
    return studies


@dataclass(frozen=True)
class ServeConfig(Config):
    """The explorer of a model.

    study    a study of the model, or several; directories or `Study` objects
    compare  a second model: loaded, a name or a path
    wait     block until Ctrl-C; otherwise the explorer runs until `.stop()`
    """

    command = "serve"
    group = "Look"
    examples = (
        "headscope serve",
        "headscope serve minilm",
        "headscope serve minilm --study study --study importances --compare small",
    )
    python = "headscope.serve(model)"
    uses = {
        Reading: ("mask", "open_special", "pooling", "prompt"),
        Run: ("revision", "device", "dtype"),
    }
    helps = {
        "pooling": f"Pooling of token states into one vector per text: {POOLINGS}",
        "prompt": "Prompt to put before every text that is encoded as a vector: a text, or the name of one of the "
        "model's prompts",
    }

    study: list[Any] | None = option(
        None,
        "Study of the model to show next to its attention; the option may be repeated",
        parse=_studies,
        metavar="DIR",
        show_default=False,
    )
    compare: Any = option(
        None,
        "Second model to compare with",
        check=check_model("compare"),
        metavar="MODEL2",
        show_default=False,
    )
    port: int = option(
        8760,
        "Port to listen on; if it is in use, the next free port is taken",
        at_least=0,
        at_most=65535,
        panel=ADVANCED,
    )
    host: str = option(
        "127.0.0.1",
        "Address to listen on; one that other machines can reach requires a token",
        panel=ADVANCED,
    )
    token: str | None = option(
        None,
        "Token that every request must carry: 8 or more letters, digits, - and _",
        check=check_token,
        show_default="generated if --host requires one",
        panel=ADVANCED,
    )
    browser: bool = option(True, "Open the page in the browser", flags=("--browser/--no-browser",))
    max_length: int | None = option(
        None,
        "Maximum number of tokens per text; longer text is refused",
        at_least=1,
        show_default=READABLE,
        panel=ADVANCED,
    )
    wait: bool = True
