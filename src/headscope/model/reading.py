"""`TextReading`: how a text becomes one vector (prompt, maximum length, pooling, and the modules after pooling).

It contains what the files of a sentence-transformers model state (`model.reading_files` reads and writes them), or what
the user chose instead. It is used by tasks on pairs of texts, relevance, gradients and the explorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headscope.config.poolings import parse_pooling
from headscope.errors import HeadscopeError

ACTIVATIONS = {  # the rules of relevance cover all of them
    "torch.nn.modules.linear.Identity": lambda vector: vector,
    "torch.nn.modules.activation.Tanh": torch.tanh,
    "torch.nn.modules.activation.ReLU": torch.nn.functional.relu,
    "torch.nn.modules.activation.GELU": torch.nn.functional.gelu,
    "torch.nn.modules.activation.SiLU": torch.nn.functional.silu,
}
IN_WORDS = {
    "mean": "the mean of its tokens' states",
    "first": "its first token's state",
    "last": "its last token's state",
    "max": "the largest values of its tokens' states",
    "mean_sqrt_len": "the sum of its tokens' states, divided by the square root of their number",
    "weightedmean": "the mean of its tokens' states, weighted by position",
}
# {role of a text in retrieval: names that models use for its prompt}
ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}
BY_OPTION = "`pooling`"  # `stated_by` of a pooling that the user chose


@dataclass(frozen=True)
class Normalize:
    """A module that scales vectors to length 1.

    folder  the module's folder in the model's directory
    """

    folder: str

    def __call__(self, vectors: Tensor, *, hold_lengths: bool = False) -> Tensor:
        return normalize(vectors, hold_lengths=hold_lengths)

    def __str__(self) -> str:
        return "normalise to length 1"


@dataclass(frozen=True, eq=False)
class Dense:
    """A module that applies a linear layer and an activation.

    folder      the module's folder in the model's directory
    weight      [out, in]
    bias        [out]
    activation  a name in ACTIVATIONS
    """

    folder: str
    weight: Tensor
    bias: Tensor | None
    activation: str

    def __call__(self, vectors: Tensor, *, hold_lengths: bool = False) -> Tensor:
        if vectors.shape[-1] != self.weight.shape[1]:
            raise HeadscopeError(
                f"takes vectors of {self.weight.shape[1]} numbers, but the pooling gives {vectors.shape[-1]}",
                where=f"{self.folder}/config.json",
            )
        bias = None if self.bias is None else self.bias.to(vectors)
        linear = torch.nn.functional.linear(vectors, self.weight.to(vectors), bias)
        output: Tensor = ACTIVATIONS[self.activation](linear)
        return output

    def __str__(self) -> str:
        size = f"{self.weight.shape[1]} to {self.weight.shape[0]}"
        return f"dense layer, {size}, {self.activation.rpartition('.')[2]}"


@dataclass(frozen=True)
class TextReading:
    """How the token states of a model become one vector of a text.

    pooling         one of POOLINGS; None if it is not stated anywhere (then the mean is used, for encoders only)
    stated_by       the file or option that states the pooling
    include_prompt  whether the tokens of the prompt take part in pooling
    prompts         {name: text to put before a text}; a text with a role uses the prompt of its role
    default_prompt_name  the prompt of texts without a role
    prompt          used for all texts instead of `prompts`
    max_length      maximum number of tokens of a text; None for the limit of the tokenizer
    lower_case      whether texts are lower-cased first
    similarity      how vectors are compared, as stated: cosine, dot, euclidean or manhattan
    modules         applied to the pooled vector, in order
    problem         why the stated modules cannot be applied, as an error message; pooling and saving then raise it
    files           {path in a model's directory: content} of the files that state all this, and of licences
    left_out        files of the source directory that are not written with a saved model
    """

    pooling: str | None = None
    stated_by: str | None = None
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False
    similarity: str | None = None
    modules: tuple[Normalize | Dense, ...] = ()
    problem: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    left_out: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def is_stated(self) -> bool:
        """Whether a file or the user states the pooling."""
        return self.pooling is not None

    @property
    def is_normalized(self) -> bool:
        """Whether vectors have length 1."""
        return bool(self.modules) and isinstance(self.modules[-1], Normalize)

    @property
    def reads_one_token(self) -> bool:
        """Whether the vector depends on the state of only one token."""
        return self.pooling in ("first", "last")

    @property
    def in_words(self) -> str:
        """A description of the vector of a text, for captions of figures."""
        steps = ["scaled to length 1" if isinstance(m, Normalize) else str(m) for m in self.modules]
        return ", then ".join([IN_WORDS[self.pooling or "mean"], *steps])

    def override(self, pooling: str | None = None, prompt: str | None = None) -> TextReading:
        """The reading with another pooling or prompt.

        prompt  a text, or the name of a stated prompt
        """
        reading = self
        if (name := parse_pooling(pooling)) is not None:
            reading = replace(reading, pooling=name, stated_by=BY_OPTION, problem=None)
        if prompt is not None:
            reading = replace(reading, prompt=reading.prompts.get(prompt, prompt))
        return reading

    def prompt_for(self, role: str | None = None) -> str:
        """The prompt of a text: `prompt` if it is set, else the prompt of its role, or the default without a role."""
        if self.prompt is not None:
            return self.prompt
        if role is None:
            return self.prompts.get(self.default_prompt_name or "", "")
        return next((self.prompts[name] for name in ROLES[role] if self.prompts.get(name)), "")

    def text(self, text: str, role: str | None = None) -> str:
        """The text that is tokenised: with its prompt, and lower-cased if the model requires it."""
        prompted = self.prompt_for(role) + text
        return prompted.lower() if self.lower_case else prompted

    def pool(self, states: Tensor, real: Tensor, skipped: Tensor | int = 0) -> Tensor:
        """[sequence, width]: the pooled token states, before `modules` are applied.

        states   [sequence, token, width]
        real     [sequence, token]: False at padding
        skipped  [sequence] or one number: how many leading tokens (of the prompt) are left out
        """
        if states.dtype in (torch.float16, torch.bfloat16):
            states = states.float()
        real = real.to(states.device).bool()
        positions = real.int().cumsum(dim=1)  # 1 at the first real token
        limit = skipped[:, None].to(positions) if isinstance(skipped, Tensor) else skipped
        pooled = real & (positions > limit)
        rows = torch.arange(len(states), device=states.device)
        pooling = self.pooling or "mean"
        if pooling == "first":
            return states[rows, pooled.int().argmax(dim=1)]
        if pooling == "last":
            return states[rows, pooled.shape[1] - 1 - pooled.flip(1).int().argmax(dim=1)]
        if pooling == "max":
            return states.masked_fill(~pooled[..., None], -torch.inf).max(dim=1).values
        weights = pooled.to(states)[..., None]
        if pooling == "weightedmean":
            weights = weights * positions.to(states)[..., None]
        total = weights.sum(dim=1).clamp_min(1e-9)
        divisor = total.sqrt() if pooling == "mean_sqrt_len" else total
        return (states * weights).sum(dim=1) / divisor

    def vectors(
        self, states: Tensor, real: Tensor, skipped: Tensor | int = 0, *, hold_lengths: bool = False
    ) -> Tensor:
        """[sequence, width]: the vectors of texts, as sentence-transformers computes them. Arguments as in `pool`.

        hold_lengths  when vectors are normalised, treat their lengths as constants in the backward pass
        """
        vectors = self.pool(states, real, skipped)
        for module in self.modules:
            vectors = module(vectors, hold_lengths=hold_lengths)
        return vectors

    def check(self, where: str) -> None:
        """Raise if the reading cannot be applied (`problem`)."""
        if self.problem is not None:
            raise HeadscopeError(
                self.problem,
                where=where,
                fix="Pass `pooling` to use the pooled token states alone, without the modules that follow",
            )

    def record(self) -> dict[str, object]:
        """The reading as JSON data for the run record."""
        return {
            "pooling": self.pooling,
            "stated_by": self.stated_by,
            "modules": [str(module) for module in self.modules],
            "include_prompt": self.include_prompt,
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "prompt": self.prompt,
            "max_length": self.max_length,
            "lower_case": self.lower_case,
            "similarity": self.similarity,
            **({} if self.problem is None else {"problem": self.problem}),
        }

    def lines(self) -> Sequence[tuple[str, str]]:
        """The reading as (name, value) pairs of texts, to be shown to users."""
        pooling = f"{self.pooling} ({self.stated_by})" if self.is_stated else "not stated"
        prompts = [f"{name} {text!r}" for name, text in self.prompts.items() if text]
        if self.prompt is not None:
            prompt = f"`prompt` {self.prompt!r}"
        else:
            default = self.default_prompt_name
            prompt = (", ".join(prompts) or "none") + (
                "" if default is None else f"; default: {default}"
            )
        tokens = "" if self.include_prompt else "; its tokens are left out of pooling"
        length = "the tokenizer's limit" if self.max_length is None else f"{self.max_length} tokens"
        return [
            ("pooling", pooling if self.problem is None else f"cannot be applied: {self.problem}"),
            ("then", ", ".join(map(str, self.modules)) or "nothing"),
            ("prompts", prompt + tokens),
            ("length", length + (", lower-cased" if self.lower_case else "")),
            ("similarity", self.similarity or "not stated"),
        ]


def normalize(vectors: Tensor, *, hold_lengths: bool = False) -> Tensor:
    """Vectors divided by their lengths. With `hold_lengths`, lengths are constants in the backward pass."""
    lengths: Tensor = (vectors.detach() if hold_lengths else vectors).norm(dim=-1, keepdim=True)
    return vectors / lengths.clamp_min(1e-12)
