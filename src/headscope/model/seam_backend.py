"""Routes a model's attention through its seam while somebody observes or edits it."""

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

    tap    how the softmax of the family is reached; None if it uses transformers' attention interface
    parts  the modules whose calls are forward passes: the model and those of its parts that may be called alone
    """

    def __init__(self, seam: Seam, tap: Tap | None, parts: Sequence[nn.Module]) -> None:
        self.seam, self.tap, self.parts = seam, tap, parts
        self._contexts = 0
        self._installed = ExitStack()

    @property
    def is_open(self) -> bool:
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
        seam = self.seam
        with ExitStack() as stack:
            stack.enter_context(
                open_interface(seam) if self.tap is None else open_tap(seam, self.tap)
            )
            for module in self.parts:
                before = module.register_forward_pre_hook(seam.begin, with_kwargs=True)
                stack.callback(before.remove)
                # Also called after an exception, so that the seam's depth of nested calls stays right.
                after = module.register_forward_hook(seam.end, with_kwargs=True, always_call=True)
                stack.callback(after.remove)
            stack.callback(seam.reset)
            return stack.pop_all()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Without the observers and edits that are open at present."""
        seam = self.seam
        suspended = seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits
        seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits = [], [], [], []
        try:
            yield
        finally:
            seam.observers, seam.sums_observers, seam.gradient_observers, seam.edits = suspended


def callable_parts(model: PreTrainedModel, *, is_encoder_decoder: bool) -> list[nn.Module]:
    """The model, its base model without a head on top, and its encoder and decoder, which may be called alone."""
    parts: list[nn.Module] = [model, model.base_model]
    if is_encoder_decoder:
        parts += [model.get_encoder(), model.get_decoder()]
    return list(dict.fromkeys(parts))


@contextmanager
def added(active: list[Any], items: Sequence[Any]) -> Iterator[None]:
    """Add these objects to a list while this is open.

    They are removed by identity, the last first: contexts need not close in order, and one edit may be open twice.
    """
    active.extend(items)
    try:
        yield
    finally:
        for item in reversed(items):
            del active[max(i for i, other in enumerate(active) if other is item)]
