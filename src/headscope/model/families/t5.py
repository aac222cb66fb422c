"""T5: unscaled scores plus a learned bias of relative positions, kept in the first block of each stack."""

from functools import cache
from typing import Any

from torch import Tensor, nn

from headscope.model.families.family import Family, keep_heads
from headscope.model.headless_attention import advance_cache, output_without_heads


def layers(config: Any) -> dict[str, int]:
    return {
        "encoder": config.num_layers,
        "decoder": config.num_decoder_layers,
        "cross": config.num_decoder_layers,
    }


def stack(name: str, occurrence: int) -> str:
    if name.endswith("EncDecAttention"):
        return "cross"
    return "decoder" if "decoder." in name else "encoder"


@cache
def _pruned_class(attention: Any) -> Any:
    """T5's attention with some of its heads; the first block makes the position bias for all heads."""

    class PrunedT5Attention(attention):  # type: ignore[misc]
        def forward(
            self, hidden: Tensor, *args: Any, position_bias: Tensor | None = None, **others: Any
        ) -> Any:
            self.whole_bias = position_bias
            if position_bias is not None and position_bias.shape[1] > 1:
                position_bias = position_bias[:, self.kept_heads]
            output, used, weights = super().forward(
                hidden, *args, position_bias=position_bias, **others
            )
            # The next block gets the bias of all heads, or if there is none, one zero per pair of tokens.
            whole, self.whole_bias = self.whole_bias, None
            return output, used[:, :1] if whole is None else whole, weights

        def compute_bias(self, *args: Any, **others: Any) -> Tensor:
            self.whole_bias = super().compute_bias(*args, **others)
            return self.whole_bias[:, self.kept_heads]

    return PrunedT5Attention


@cache
def _headless_class(attention: Any) -> Any:
    """T5's attention without heads, which still makes the position bias that other blocks use."""

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
    core.kept_heads = slice(None)  # type: ignore[assignment]  # the bias is for all heads of other blocks
    kind: Any = type(core)
    core.__class__ = _headless_class(kind)


T5 = Family(
    model_types=("mt5", "t5"),
    layers=layers,
    stack=stack,
    settle=keep_heads(_pruned_class),
    silence=silence,
)
