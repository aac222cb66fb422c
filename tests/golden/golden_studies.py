"""Small fixed studies of tiny models, made by the command line, one directory each.

    studies = Studies(folder)
    studies.make("prune-beam")        # runs the command, and before it those whose results it reads

Everything random is drawn by numpy or the standard library with fixed seeds, so that models and data are the same on
every machine. No figure is drawn: `Figure.savefig` writes a placeholder. The performance counter advances by the same
step at each call, so that all models are equally fast and no choice depends on the speed of the machine.
"""

from __future__ import annotations

import io
import os
import random
import shlex
import sys
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from itertools import count as numbers
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from matplotlib.figure import Figure
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

from headscope.commands import app

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LIKED, DISLIKED = ("good", "fine", "warm", "kind"), ("bad", "poor", "cold", "mean")
PLAIN = (
    "the",
    "a",
    "cat",
    "dog",
    "mat",
    "sat",
    "on",
    "ran",
    "house",
    "saw",
    "old",
    "red",
    "he",
    "is",
    ".",
    ",",
    "?",
)
WORDS = [*SPECIAL, *LIKED, *DISLIKED, *PLAIN]
LONGEST = 32
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt" viewBox="0 0 9 9"><g id="figure_1"></g></svg>'
PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)

# Commands


@dataclass(frozen=True)
class Step:
    """A command. needs: steps whose results it reads; is_trained: its numbers come from training in float32."""

    command: str
    needs: tuple[str, ...] = ()
    is_trained: bool = False


SST2 = "--task sst2 --data glue --batch-size 8"
STEPS: dict[str, Step] = {}


def _add(name: str, command: str, *needs: str, is_trained: bool = False) -> None:
    STEPS[name] = Step(command, needs, is_trained)


DOUBLE = "--dtype float64"
# Named, so that a new statistic or importance does not change the studies.
STATISTICS = """
    argmax-share argmax-offset positional-share cls sep punctuation special confidence confidence-content entropy
    cls-entropy entropy-share js-current js-previous js-next js-left js-right js-end js-start js-uniform js-first
    twin-distance previous self next distance pattern-vertical pattern-diagonal pattern-vertical-diagonal
    pattern-block pattern-heterogeneous column-score band-score vertical-score diagonal-score first sink
"""
IMPORTANCES = "ablation,gradient,relevance,confidence,entropy,norm,random"
_add(
    "analyze",
    f"analyze bert --corpus texts.txt --statistics {','.join(STATISTICS.split())} {DOUBLE} --out analyze",
)
_add(
    "analyze-annotated",
    f"analyze bert --treebank trees.conllu --coreference documents.conll --frequency corpus --control {DOUBLE} "
    "--statistics entropy,previous --out analyze-annotated",
)
_add(
    "analyze-lenses",
    f"analyze bert --corpus texts.txt --lens raw,effective,effective-simplex,norm,gradient {DOUBLE} "
    "--statistics entropy,sep --out analyze-lenses",
)
_add(
    "analyze-pairs",
    f"analyze marian --corpus pairs.tsv --pairs {DOUBLE} --statistics entropy --out analyze-pairs",
)
_add("importance", f"importance bert {SST2} --by {IMPORTANCES} {DOUBLE} --out importance")
_add(
    "importance-only",
    f"importance bert {SST2} --kind only --mode mean {DOUBLE} --out importance-only",
)
_add(
    "importance-race",
    f"importance bert {SST2} --sequential-test 0.05 {DOUBLE} --out importance-race",
)
for _search in ("beam", "greedy", "iterative", "rank", "random"):
    _add(
        f"prune-{_search}",
        f"prune bert {SST2} --remove 2 --search {_search} {DOUBLE} --out prune-{_search}",
    )
_add("gate", f"gate bert {SST2} --keep 2 --epochs 1 --out gate", is_trained=True)
_add(
    "gate-frozen",
    f"gate bert {SST2} --penalty 0.05 --freeze-weights --epochs 2 --out gate-frozen",
    is_trained=True,
)
_add(
    "learn-mask",
    f"masks learn bert {SST2} --sparsity 0.5 --freeze-weights --epochs 1 --out learn-mask",
    is_trained=True,
)
_add(
    "learn-mask-mlm",
    "masks learn masked --objective mlm --corpus texts.txt --penalty 0.1 --structured --epochs 1 --batch-size 8 "
    "--max-length 16 --out learn-mask-mlm",
    is_trained=True,
)
_add(
    "masks-compare",
    f"masks compare bert {SST2} --mask star --mask window:width=3 --repair 1 --out masks-compare",
    is_trained=True,
)
_add("masks-show", "masks show star --length 8")
_add("fix", f"fixed-patterns bert {SST2} --sizes 1,2 {DOUBLE} --out fix")
_add(
    "probe",
    f"probe bert --treebank trees.conllu --test test.conllu --dimensions 4 --epochs 1 {DOUBLE} --out probe",
    is_trained=True,
)
_add(
    "knock-out",
    f"ablate-edges bert --corpus texts.txt --limit 4 --statistics entropy,sep {DOUBLE} --out knock-out",
)
_add("evaluate", f"evaluate bert {SST2} {DOUBLE}")
_add("evaluate-json", f"evaluate bert {SST2} {DOUBLE} --json")
_add(
    "analyze-other",
    f"analyze other --corpus texts.txt --statistics entropy,sep {DOUBLE} --out analyze-other",
)
_add("compare", "compare analyze analyze-other --out compare", "analyze", "analyze-other")
_add(
    "compare-models",
    "compare analyze analyze-other --models bert --models other --corpus texts.txt --limit 8 --out compare-models",
    "analyze",
    "analyze-other",
)
_add(
    "report",
    "report analyze importance prune-beam --out report.html",
    "analyze",
    "importance",
    "prune-beam",
)
_add("report-comparison", "report compare --out report-comparison.html", "compare")
_add("look", f"look bert 'the good cat sat' --lens raw,norm,rollout {DOUBLE} --out look")
_add("speed", f"speed bert --batch-size 2 --length 8 --repeats 2 {DOUBLE}")
_add(
    "fronts",
    "report prune-greedy prune-rank gate-frozen analyze --tables fronts-tables --out fronts.html",
    "analyze",
    "gate-frozen",
    "prune-greedy",
    "prune-rank",
)
_add(
    "finetune",
    f"finetune bert {SST2} --epochs 1 --learning-rate 1e-3 --out finetune",
    is_trained=True,
)
_add(
    "pretrain",
    "pretrain --config masked --corpus texts.txt --max-length 16 --steps 4 --batch-size 8 --checkpoints 2 "
    "--out pretrain",
    is_trained=True,
)
_add(
    "film",
    "analyze pretrain --checkpoints --corpus texts.txt --statistics entropy,previous --out film",
    "pretrain",
    is_trained=True,
)


# Models and data


def _tokenizer(*, opens: bool = True) -> PreTrainedTokenizerFast:
    """One token a word. opens: a text begins with [CLS]."""
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]" if opens else "$A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    }
    names |= {"cls_token": "[CLS]"} if opens else {"eos_token": "[SEP]"}
    inputs = (
        ["input_ids", "token_type_ids", "attention_mask"]
        if opens
        else ["input_ids", "attention_mask"]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=LONGEST, model_input_names=inputs, **names
    )


def _save(model: PreTrainedModel, path: Path, *, seed: int = 0, opens: bool = True) -> None:
    """Save a model with random weights whose attention is far from uniform."""
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                size = (
                    0.7
                    if any(part in name for part in ("query", "key", "q_proj", "k_proj"))
                    else 0.25
                )
            elif name.endswith("bias"):
                size = 0.1
            else:
                continue
            parameter.copy_(torch.tensor(draw.normal(size=tuple(parameter.shape)) * size))
    model.eval().save_pretrained(path)
    _tokenizer(opens=opens).save_pretrained(path)


def _bert(**changes: Any) -> BertConfig:
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    return BertConfig(vocab_size=len(WORDS), max_position_embeddings=LONGEST, **{**size, **changes})


def _marian() -> MarianConfig:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))
    }
    ids = {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": None, "decoder_start_token_id": 0}
    return MarianConfig(
        vocab_size=len(WORDS),
        d_model=16,
        max_position_embeddings=LONGEST,
        forced_eos_token_id=None,
        **sides,
        **ids,
    )


def make_models(folder: Path) -> None:
    _save(BertForSequenceClassification(_bert(num_labels=2)), folder / "bert")
    _save(BertForSequenceClassification(_bert(num_labels=2)), folder / "other", seed=1)
    _save(BertForMaskedLM(_bert()), folder / "masked")
    _save(MarianMTModel(_marian()), folder / "marian", opens=False)


def _sentence(draw: random.Random) -> list[str]:
    return draw.choices(PLAIN, k=draw.randint(3, 9))


def _sentiments(count: int, seed: int) -> list[str]:
    """Lines of a text with one word that is liked (label 1) or disliked (label 0), and the label."""
    draw, lines = random.Random(seed), []
    for label in (i % 2 for i in range(count)):
        words = _sentence(draw)
        words.insert(draw.randrange(len(words) + 1), draw.choice((DISLIKED, LIKED)[label]))
        lines.append(f"{' '.join(words)}\t{label}")
    return lines


def _tree(draw: random.Random) -> Iterator[str]:
    """A sentence in CoNLL-U with a random tree."""
    words = _sentence(draw)
    order = draw.sample(range(len(words)), len(words))
    governors = {
        word: draw.choice(order[:index]) + 1 if index else 0 for index, word in enumerate(order)
    }
    for i, word in enumerate(words):
        relation = draw.choice(("nsubj", "obj", "det")) if governors[i] else "root"
        yield f"{i + 1}\t{word}\t_\tX\t_\t_\t{governors[i]}\t{relation}\t_\t_"
    yield ""


def _document(draw: random.Random, name: str) -> Iterator[str]:
    """Sentences in CoNLL-2012 columns with mentions of three entities."""
    yield f"#begin document ({name}); part 000"
    for _ in range(4):
        words = _sentence(draw)
        mentions = set(draw.sample(range(len(words)), 2))
        for i, word in enumerate(words):
            mark = f"({draw.randrange(3)})" if i in mentions else "-"
            yield "\t".join([name, "0", str(i), word, "X", "*", mark])
        yield ""
    yield "#end document"


def make_data(folder: Path) -> None:
    draw = random.Random(0)
    (folder / "glue").mkdir()
    for name, count, seed in (("train", 32, 1), ("dev", 40, 2)):
        _write(folder / "glue" / f"{name}.tsv", ["sentence\tlabel", *_sentiments(count, seed)])
    _write(folder / "texts.txt", [line.partition("\t")[0] for line in _sentiments(32, 3)])
    _write(
        folder / "pairs.tsv",
        [f"{' '.join(_sentence(draw))}\t{' '.join(_sentence(draw))}" for _ in range(12)],
    )
    _write(folder / "trees.conllu", [line for _ in range(40) for line in _tree(draw)])
    _write(folder / "test.conllu", [line for _ in range(20) for line in _tree(draw)])
    _write(
        folder / "documents.conll", [line for i in range(12) for line in _document(draw, f"d{i}")]
    )


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


# Running


def _save_placeholder(figure: Figure, target: Any, *, format: str = "png", **options: Any) -> None:
    content = SVG if format == "svg" else PNG
    if isinstance(target, io.TextIOBase):
        target.write(content.decode())
    elif hasattr(target, "write"):
        target.write(content)
    else:
        Path(target).write_bytes(content)


@contextmanager
def _fixed_surroundings(folder: Path) -> Iterator[None]:
    names = {
        "HF_HUB_OFFLINE": "1",
        "HEADSCOPE_OFFLINE": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    threads = torch.get_num_threads()
    calls = numbers()
    with (
        chdir(folder),
        patch.dict(os.environ, names),
        patch.object(Figure, "savefig", _save_placeholder),
        patch.object(time, "perf_counter", lambda: next(calls) / 1024),
    ):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


class Studies:
    """The studies made so far, in one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._printed: dict[str, str] = {}
        make_models(folder)
        make_data(folder)

    def make(self, name: str) -> str:
        """Run a step, unless that was done before, and return what it printed."""
        if name not in self._printed:
            for needed in STEPS[name].needs:
                self.make(needed)
            words = shlex.split(STEPS[name].command)
            with _fixed_surroundings(self.folder), patch.object(sys, "argv", ["headscope", *words]):
                random.seed(0)
                np.random.seed(0)
                torch.manual_seed(0)
                result = CliRunner().invoke(app, words, prog_name="headscope")
            assert result.exit_code == 0, (
                f"{STEPS[name].command}\n{result.output}\n{result.exception!r}"
            )
            self._printed[name] = result.stdout
        return self._printed[name]
