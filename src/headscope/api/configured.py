"""Decorators that make public functions: callers may pass config objects, or fields of the configs as keywords.

    @on_task
    def gate(model: ModelSource, data: TaskData, config: GateConfig, reading: Reading, run: Run) -> Study:
        \"""Learn which heads of a model a task needs …\"""

`headscope.gate(model, data, GateConfig(keep=20))` and `headscope.gate(model, task="mnli", data="glue", keep=20)` then
call it with the same checked configs. `help(headscope.gate)` shows the public signature and describes its parameters.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from headscope.config.option import Config, fill
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.texts import TextData
from headscope.model.attention_model import AttentionModel

ModelSource = AttentionModel | str | Path
Texts = Iterable[str | tuple[str, str]]
C = TypeVar("C", bound=Config)
ConfigT = TypeVar("ConfigT", bound=Config, contravariant=True)
ResultT = TypeVar("ResultT", covariant=True)

PARAMETERS = """Parameters
----------
model
    A loaded model, which is not changed; or the name, directory or hub id of one.
data
    {data}
config, reading, run
    Options; see `{config}`, `Reading` and `Run`.{output}
**options
    Fields of these configs, instead of or in addition to them.
"""
OUTPUT = """ With `run.out` (or `out=`) the result is written
    there; without it nothing is written."""
ON_TASK = "Task and data; or the data, with the task as `task=`."
ON_TEXTS = "A list of texts, or of pairs of texts; or a `TextData` with files."


class TaskFunction(Protocol[ConfigT, ResultT]):
    """A public function of a model and a task."""

    def __call__(
        self,
        model: AttentionModel | str | Path,
        data: TaskData | str | Path | None = None,
        config: ConfigT | None = None,
        *,
        reading: Reading | None = None,
        run: Run | None = None,
        **options: Any,
    ) -> ResultT: ...


class TextFunction(Protocol[ConfigT, ResultT]):
    """A public function of a model and texts."""

    def __call__(
        self,
        model: AttentionModel | str | Path,
        data: TextData | Iterable[str | tuple[str, str]] | None = None,
        config: ConfigT | None = None,
        *,
        reading: Reading | None = None,
        run: Run | None = None,
        **options: Any,
    ) -> ResultT: ...


def on_task(
    function: Callable[[ModelSource, TaskData, C, Reading, Run], ResultT],
) -> TaskFunction[C, ResultT]:
    """The public form of a function of a model and a task."""
    return cast("TaskFunction[C, ResultT]", _configured(function, TaskFunction, ON_TASK))


def on_texts(
    function: Callable[[ModelSource, TextData, C, Reading, Run], ResultT],
) -> TextFunction[C, ResultT]:
    """The public form of a function of a model and texts."""
    return cast("TextFunction[C, ResultT]", _configured(function, TextFunction, ON_TEXTS))


def _configured(function: Callable[..., Any], form: type, data_help: str) -> Callable[..., Any]:
    hints = typing.get_type_hints(function)
    config_kind, data_kind = hints["config"], hints["data"]

    @wraps(function)
    def call(
        model: ModelSource,
        data: Any = None,
        config: Any = None,
        *,
        reading: Reading | None = None,
        run: Run | None = None,
        **options: Any,
    ) -> Any:
        slots = (config_kind, config), (data_kind, data), (Reading, reading), (Run, run)
        config, *shared = fill(function.__name__, options, *slots)
        return function(model, shared[0], config, *shared[1:])

    public = inspect.signature(form.__call__)
    own = inspect.signature(function)
    parameters = [
        p.replace(annotation=f"{config_kind.__name__} | None") if name == "config" else p
        for name, p in public.parameters.items()
        if name != "self"
    ]
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=own.return_annotation
    )
    call.__doc__ = _document(inspect.getdoc(function) or "", config_kind, data_help)
    return call


def _document(text: str, config: type[Config], data_help: str) -> str:
    """The docstring with a section Parameters inserted before Returns."""
    output = OUTPUT if "out" in config.uses.get(Run, ()) else ""
    parameters = PARAMETERS.format(data=data_help, config=config.__name__, output=output)
    summary, returns, rest = text.partition("Returns\n")
    return f"{summary}{parameters}\n{returns}{rest}"
