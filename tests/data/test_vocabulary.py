"""Tokenizers learned from texts: the same each time, nothing unknown, and read again by transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from headscope.data.vocabulary import train_tokenizer
from headscope.errors import HeadscopeError

TEXTS = [
    f"The {a} sat on the {b}, déjà vu {i}."
    for i, (a, b) in enumerate([("cat", "mat"), ("dog", "log")] * 30)
]
PROGRAM = f"""
from headscope.data.vocabulary import train_tokenizer
print(train_tokenizer({TEXTS!r}, 320).backend_tokenizer.to_str())
"""


def test_the_same_texts_give_the_same_tokens_in_another_process() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        for _ in "ab"
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) > 1000


@pytest.mark.parametrize("translates", [False, True])
def test_a_learned_tokenizer_reads_every_text_and_is_read_again(
    translates: bool, tmp_path: Path
) -> None:
    made = train_tokenizer(TEXTS, 320, translates=translates)
    assert len(made) <= 320
    made.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS[:3], "Quite other words: Ωμέγα, 漢字!"):
        ids = made(text)["input_ids"]
        assert ids == again(text)["input_ids"]
        output = again.decode(ids, skip_special_tokens=True).strip()
        assert output == text if translates else output.replace(" ", "") != ""
    ids = made("the cat sat")["input_ids"]
    if translates:
        assert ids[-1] == made.eos_token_id
        assert made.eos_token_id not in ids[:-1]
        assert made.bos_token_id is None
    else:
        assert (ids[0], ids[-1]) == (made.cls_token_id, made.sep_token_id)
        assert made.mask_token_id is not None
        assert made("THE Cat sat")["input_ids"] == ids


def test_fewer_tokens_than_bytes_are_refused() -> None:
    with pytest.raises(HeadscopeError) as error:
        train_tokenizer(TEXTS, 100)
    assert str(error.value) == (
        "`vocabulary`: 100 tokens are fewer than bytes and special tokens. Expected 260 or more."
    )
