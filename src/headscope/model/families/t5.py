"""T5: unscaled scores plus a learned bias of relative positions.

The first block of each stack computes the position bias [1, head, query, key] and passes it to the later blocks. Blocks
may lose different heads, so the bias always has all heads, and each pruned block selects those it has.
"""

from functools import cache
from typing import Any

from torch import Tensor, nn

from headscope.model.families.family import Family, keep_heads
from headscope.model.headless_attention import advance_cache, output_without_heads


def layers(config: Any) -> dict[str, int]:
    """`Family.layers`: the number of sites of each stack."""
    return {
        "encoder": config.num_layers,
        "decoder": config.num_decoder_layers,
        "cross": config.num_decoder_layers,
    }


def stack(name: str, occurrence: int) -> str:
    """`Family.stack`: the stack of an attention module, by its name."""
    if name.endswith("EncDecAttention"):
        return "cross"
    return "decoder" if "decoder." in name else "encoder"


@cache
def _pruned_class(attention: Any) -> Any:
    """A subclass of T5's attention that runs with some of its heads and passes on the position bias of all heads."""

    class PrunedT5Attention(attention):  # type: ignore[misc]
        def forward(
            self, hidden: Tensor, *args: Any, position_bias: Tensor | None = None, **others: Any
        ) -> Any:
            self.full_bias = position_bias
            # A bias with one head is the zeros of a stack without position bias; they fit any number of heads.
            if position_bias is not None and position_bias.shape[1] > 1:
                position_bias = position_bias[:, self.kept_heads]
            output, used_bias, weights = super().forward(
                hidden, *args, position_bias=position_bias, **others
            )
            # If the bias was neither passed in nor computed by `compute_bias`, T5 has made zeros for the heads of this
            # block. Other blocks may have another number of heads, so they get the zeros of one.
            full_bias, self.full_bias = self.full_bias, None
            return output, used_bias[:, :1] if full_bias is None else full_bias, weights

        def compute_bias(self, *args: Any, **others: Any) -> Tensor:
            """The bias of the heads that are left; that of all heads is stored for the next block."""
            self.full_bias = super().compute_bias(*args, **others)
            return self.full_bias[:, self.kept_heads]

    return PrunedT5Attention


@cache
def _headless_class(attention: Any) -> Any:
    """A subclass of T5's attention that runs without heads, but still computes the position bias for later blocks."""

    class HeadlessT5Attention(attention):  # type: ignore[misc]
        def forward(
            self,
            hidden: Tensor,
            mask: Tensor | None = None,
            key_value_states: Tensor | None = None,
            position_bias: Tensor | None = None,
            past_key_values: Any = None,
            **others: Any,
        ) -> tuple[Tensor, Tensor, None]:
            before = advance_cache(self, hidden, past_key_values, key_value_states)
            count = hidden.shape[1]
            if position_bias is None and self.has_relative_attention_bias:
                position_bias = self.compute_bias(
                    count, before + count, device=hidden.device, past_seen_tokens=before
                )
            elif position_bias is None:
                keys = before + count if key_value_states is None else key_value_states.shape[1]
                position_bias = hidden.new_zeros(1, 1, count, keys)
            return output_without_heads(self, hidden), position_bias, None

    return HeadlessT5Attention


def silence(core: nn.Module) -> None:
    """`Family.silence`: let an attention module run without heads."""
    # If the module's class is PrunedT5Attention already, its compute_bias must return the bias of all heads.
    core.kept_heads = slice(None)  # type: ignore[assignment]
    attention: Any = type(core)
    core.__class__ = _headless_class(attention)


T5 = Family(
    model_types=("mt5", "t5"),
    layers=layers,
    stack=stack,
    settle=keep_heads(_pruned_class),
    silence=silence,
)
