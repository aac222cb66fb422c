"""Routes a model's attention through its seam while the model is observed or edited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from headscope.model.attention_interface import open_interface
from headscope.model.seam import Seam
from headscope.model.softmax_tap import Tap, open_tap

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SeamBackend:
    """Opens and closes the backend of one model's seam.

    tap    how to intercept the softmax of the family; None if it uses transformers' attention interface
    parts  the modules whose calls are forward passes: the model, and its parts that may be called alone
    """

    def __init__(self, seam: Seam, tap: Tap | None, parts: Sequence[nn.Module]) -> None:
        self.seam, self.tap, self.parts = seam, tap, parts
        self._contexts = 0  # open contexts
        self._installed = ExitStack()  # removes what `_install` has installed

    @property
    def is_open(self) -> bool:
        """Whether attention is routed through the seam."""
        return self._contexts > 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Route attention through the seam while at least one such context is open.

        Contexts are counted, not stacked: generators and permanent edits may close them in any order.
        """
        if not self._contexts:
            self._installed = self._install()
        self._contexts += 1
        try:
            yield
        finally:
            self._contexts -= 1
            if not self._contexts:
                self._installed.close()

    def _install(self) -> ExitStack:
        """Open the backend and register the hooks of forward passes; closing the result undoes both."""
        seam = self.seam
        with ExitStack() as stack:
            stack.enter_context(
                open_interface(seam) if self.tap is None else open_tap(seam, self.tap)
            )
            for module in self.parts:
                before = module.register_forward_pre_hook(seam.begin, with_kwargs=True)
                stack.callback(before.remove)
                # Also called after an exception, so that the seam's depth of nested calls stays correct.
                after = module.register_forward_hook(seam.end, with_kwargs=True, always_call=True)
                stack.callback(after.remove)
            stack.callback(seam.reset)
            return stack.pop_all()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """While open, the observers and edits that are active now have no effect."""
        seam = self.seam
        suspended = seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits
        seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits = [], [], [], []
        try:
            yield
        finally:
            seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits = suspended


def callable_parts(model: PreTrainedModel, *, is_encoder_decoder: bool) -> list[nn.Module]:
    """The model, its base model (without classifier or language model head), and its encoder and decoder."""
    parts: list[nn.Module] = [model, model.base_model]
    if is_encoder_decoder:
        parts += [model.get_encoder(), model.get_decoder()]
    return list(dict.fromkeys(parts))


@contextmanager
def added(active: list[Any], items: Sequence[Any]) -> Iterator[None]:
    """While open, the list `active` contains these objects too.

    They are removed by identity, the last occurrence first: contexts may close in any order, and the same edit may be
    open twice.
    """
    active.extend(items)
    try:
        yield
    finally:
        for item in reversed(items):
            del active[max(i for i, other in enumerate(active) if other is item)]
