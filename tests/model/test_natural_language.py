"""Which vocabularies are of a natural language: words in any script are, atoms, residues and codons are not."""

from __future__ import annotations

from itertools import product

import pytest

import headscope
from headscope.model.natural_language import is_natural_language
from headscope.study.run_record import describe_model

SMILES = [
    "C",
    "c",
    "Cl",
    "Br",
    "N",
    "n",
    "[nH]",
    "[C@@H]",
    "[Na+]",
    "(",
    ")",
    "=",
    "#",
    ".",
    ">>",
    "1",
    "2",
    "[Pd]",
    "[Sn]",
]
WORDS = [
    "the",
    "of",
    "and",
    "was",
    "for",
    "with",
    "his",
    "her",
    "they",
    "from",
    "which",
    "have",
    "been",
    "not",
    "one",
    "their",
    "were",
    "all",
    "when",
    "there",
]
GREEK = [
    "και",
    "του",
    "της",
    "των",
    "που",
    "από",
    "για",
    "είναι",
    "στην",
    "τον",
    "ένα",
    "αυτό",
    "μια",
    "θα",
    "ήταν",
]
CHINESE = list(
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
)
KOREAN = [
    "그리고",
    "있는",
    "것은",
    "하는",
    "에서",
    "으로",
    "한다",
    "이다",
    "그는",
    "대한",
    "같은",
    "우리",
    "사람",
    "때문",
    "이것",
    "하고",
    "위해",
    "모든",
]
HINDI = [
    "और",
    "के",
    "है",
    "में",
    "की",
    "यह",
    "से",
    "को",
    "पर",
    "इस",
    "होता",
    "कि",
    "जो",
    "कर",
    "मे",
    "गया",
    "करने",
    "किया",
    "लिये",
    "अपने",
]


def gpt2_bytes(text: str) -> str:
    """A text as byte-level vocabularies write it, from GPT-2's table."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = {
        byte: 256 + i for i, byte in enumerate(byte for byte in range(256) if byte not in kept)
    }
    return "".join(chr(others.get(byte, byte)) for byte in text.encode("utf-8"))


@pytest.mark.parametrize(
    "tokens",
    [
        [*WORDS, *(f"##{word}" for word in WORDS), ".", ",", "1", "2", *"abcdefghijklm"],
        [*(f"▁{word}" for word in WORDS), "▁", ".", "<0x0A>"],
        [
            *(gpt2_bytes(f" {form}") for word in WORDS for form in (word, word.title())),
            *(chr(i) for i in range(33, 127)),
        ],
        [f"{word}</w>" for word in WORDS],
        GREEK,
        [*CHINESE, *(f"##{sign}" for sign in CHINESE), "。", ","],
        [gpt2_bytes(f" {sign}") for sign in CHINESE],
        KOREAN,
        HINDI,
    ],
    ids=[
        "wordpiece",
        "sentencepiece",
        "byte-level",
        "bpe",
        "greek",
        "chinese",
        "chinese bytes",
        "korean",
        "hindi",
    ],
)
def test_words_are_natural_language(tokens: list[str]) -> None:
    assert is_natural_language(tokens)


@pytest.mark.parametrize(
    "tokens",
    [
        SMILES,
        list("LAGVSERTIDPKQNFYMHWCXBUZO.-"),
        ["".join(codon) for codon in product("ACGU", repeat=3)],
        ["".join(kmer) for kmer in product("acgt", repeat=4)],
        ["".join(pair) for pair in product("LAGVSERTIDPKQNFYMHWC", repeat=3)],
        [f"g__{name}" for name in ("Bacteroides", "Prevotella", "Blautia", "Roseburia")],
        [f"<0x{byte:02X}>" for byte in range(256)],
        [],
    ],
    ids=[
        "smiles",
        "amino acids",
        "codons",
        "k-mers",
        "residue triples",
        "genera",
        "bytes",
        "nothing",
    ],
)
def test_symbols_are_not(tokens: list[str]) -> None:
    assert not is_natural_language(tokens)


@pytest.mark.real
@pytest.mark.parametrize(("name", "expected"), [("minilm", True), ("rxnmapper", False)])
def test_the_record_of_a_real_model_says_so(zoo_model, name: str, expected: bool) -> None:
    assert describe_model(headscope.load(zoo_model(name)))["natural_language"] is expected
