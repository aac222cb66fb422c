"""A corpus that a tokenizer does not know is warned about, with the share and the commonest unknown pieces."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    EsmConfig,
    EsmModel,
    EsmTokenizer,
    PreTrainedTokenizerFast,
)

import headscope
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.data.pack_sequences import pack
from headscope.errors import HeadscopeWarning
from headscope.model.attention_model import AttentionModel
from headscope.report.page.chapter import DrawnFigures
from headscope.report.page.render import render

AMINO_ACIDS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat"]
SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.fixture(scope="module")
def protein_model(tmp_path_factory: pytest.TempPathFactory) -> AttentionModel:
    """A tiny ESM with ESM's own tokenizer, which is not a fast one and reads sequences without spaces."""
    vocabulary = ["<cls>", "<pad>", "<eos>", "<unk>", *AMINO_ACIDS, "<null_1>", "<mask>"]
    file = tmp_path_factory.mktemp("esm") / "vocab.txt"
    file.write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = EsmConfig(
        vocab_size=len(vocabulary),
        pad_token_id=1,
        mask_token_id=32,
        max_position_embeddings=64,
        position_embedding_type="rotary",
        **SIZE,
    )
    return AttentionModel(EsmModel(config).eval(), EsmTokenizer(str(file)), name="tiny-esm")


def word_model(cls: type = BertModel) -> AttentionModel:
    """A tiny BERT with a fast tokenizer of five words; every other word is one unknown token."""
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), WORDS, strict=False)
    )
    torch.manual_seed(0)
    model = cls(BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **SIZE)).eval()
    return AttentionModel(
        model, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names), name="words"
    )


@contextmanager
def warned() -> Iterator[list[str]]:
    """The lines of our own warnings in here."""
    actual: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield actual
        actual += [str(one.message) for one in caught if issubclass(one.category, HeadscopeWarning)]


def test_esm_reads_a_raw_sequence_letter_by_letter(protein_model: AttentionModel) -> None:
    encoder = Encoder(protein_model)
    (sequence,) = encoder.encode([Example("MKVLA")], 0)
    assert protein_model.tokenizer is not None
    assert protein_model.tokenizer.convert_ids_to_tokens(sequence.source.ids) == [
        "<cls>",
        *"MKVLA",
        "<eos>",
    ]
    assert (encoder.counts.unknown.content, encoder.counts.unknown.tokens) == (5, 0)


def test_proteins_of_a_fasta_file_are_known_and_its_headers_would_not_be(
    protein_model: AttentionModel, tmp_path: Path
) -> None:
    lines = [f">sp|P{i:05d}\nMKVLAGGARTK\nLLE\n" for i in range(20)]
    (tmp_path / "prot.fasta").write_text("".join(lines))
    with warned() as messages:
        study = headscope.analyze(
            protein_model, corpus=tmp_path / "prot.fasta", statistics=["entropy"]
        )
    assert messages == []
    assert (study.record["data"]["read"], study.record["data"]["used"]) == (20, 20)
    assert study.record["data"]["unknown"] == {"content": 20 * 14, "tokens": 0, "pieces": {}}
    headers = [line.split("\n")[0].lower() for line in lines]  # as they were read before
    with warned() as messages:
        study = headscope.analyze(protein_model, texts=headers, statistics=["entropy"])
    assert len(messages) == 1
    assert messages[0].startswith("texts: ")
    assert "unknown to the tokenizer (most often " in messages[0]
    assert study.record["data"]["unknown"]["tokens"] > 0


@pytest.mark.parametrize(("unknown", "is_warned"), [(5, False), (6, True)])
def test_the_warning_begins_above_five_percent(
    unknown: int, is_warned: bool, tmp_path: Path
) -> None:
    """100 content tokens, in ten texts."""
    words = ["dog"] * (unknown - 2) + ["fish"] * 2 + ["cat"] * (100 - unknown)
    (tmp_path / "c.txt").write_text(
        "\n".join(" ".join(words[i : i + 10]) for i in range(0, 100, 10))
    )
    with warned() as messages:
        study = headscope.analyze(
            word_model(), corpus=tmp_path / "c.txt", statistics=["entropy"], frequency="corpus"
        )
    assert study.record["data"]["unknown"] == {
        "content": 100,
        "tokens": unknown,
        "pieces": {"dog": unknown - 2, "fish": 2},
    }
    expected = (
        f'{tmp_path / "c.txt"}: 6.0 % of 100 tokens are unknown to the tokenizer (most often "dog", "fish"). '
        "Check that the model was trained on such text, and that the file holds nothing else"
    )
    assert messages == ([expected] if is_warned else [])
    page = render(study, [DrawnFigures([], [])])
    assert ("Corpus: 6.0 % of 100 tokens are unknown to the tokenizer" in page) == is_warned


def test_special_tokens_and_those_with_two_meanings_are_not_unknown() -> None:
    model = word_model()
    assert model.tokenizer is not None
    encoder = Encoder(model)
    list(encoder.encode([Example("[CLS] [SEP] cat")], 0))
    assert (encoder.counts.unknown.content, encoder.counts.unknown.tokens) == (1, 0)
    model.tokenizer.unk_token = model.tokenizer.eos_token = "[SEP]"  # as in GPT-2
    encoder = Encoder(model)
    list(encoder.encode([Example("[SEP] cat")], 0))
    assert encoder.counts.unknown.tokens == 0


def test_a_treebank_a_task_and_packed_texts_are_warned_about_once_each(tmp_path: Path) -> None:
    word = "{}\t{}\t_\tNOUN\t_\t_\t{}\t{}\t_\t_\n"
    trees = [
        word.format(1, "cat", 0, "root") + word.format(2, "dög", 1, "dep") + "\n" for _ in range(3)
    ]
    (tmp_path / "t.conllu").write_text("".join(trees))
    with warned() as messages:
        headscope.analyze(
            word_model(), treebank=tmp_path / "t.conllu", statistics=["entropy"], control=True
        )
    assert [line.split(": ")[1] for line in messages] == [
        '50.0 % of 6 tokens are unknown to the tokenizer (most often "dög"). Check that the model was trained on such '
        "text, and that the file holds nothing else"
    ]
    (tmp_path / "t.tsv").write_text("sentence\tlabel\ndog cat\t0\ncat dog dog\t1\n")
    with warned() as messages:
        result = headscope.evaluate(
            word_model(BertForSequenceClassification), task="sst2", data=tmp_path / "t.tsv"
        )
    assert len(messages) == 1
    assert messages[0].startswith(f"{tmp_path / 't.tsv'}: 60.0 % of 5 tokens")
    assert result["unknown"] == {"content": 5, "tokens": 3, "pieces": {"dog": 3}}
    table = "".join(f"{'dog ' * (1 + i % 5)}cat\t{i % 2}\n" for i in range(40))
    (tmp_path / "t.tsv").write_text(f"sentence\tlabel\n{table}")
    with warned() as messages:
        search = headscope.search(
            word_model(BertForSequenceClassification),
            task="sst2",
            data=tmp_path / "t.tsv",
            remove=1,
            search="random",
            draws=1,
        )
    assert len(messages) == 1, "both halves are of one file"
    assert search.study.record["pruning"]["unknown"]["pieces"].keys() == {"dog"}
    assert "Task: " in render(search.study, [DrawnFigures([], [])])
    with warned() as messages:
        _, counts = pack(word_model(), [Example("cat dog", where="x.txt:1")] * 9, max_length=8)
    assert len(messages) == 1
    assert (counts.unknown.content, counts.unknown.tokens) == (18, 9)


def test_the_command_line_prints_the_warning_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from headscope import commands
    from headscope.report import write as writer

    monkeypatch.setattr(writer, "write_report", lambda study, folder, **options: None)
    monkeypatch.chdir(tmp_path)
    model = word_model()
    assert model.tokenizer is not None
    model.model.save_pretrained("bert")
    model.tokenizer.save_pretrained("bert")
    Path("c.csv").write_text("id,smiles\n1,dog cat\n2,cat\n")
    words = [
        "headscope",
        "analyze",
        "bert",
        "--corpus",
        "c.csv",
        "--column",
        "smiles",
        "--out",
        "study",
    ]
    monkeypatch.setattr("sys.argv", [*words, "--statistics", "entropy"])
    with pytest.raises(SystemExit) as stop:
        commands.main()
    err = capfd.readouterr().err
    assert stop.value.code == 0, err
    lines = [line for line in err.splitlines() if "warning" in line]
    assert lines == [
        'headscope: warning: c.csv: 33.3 % of 3 tokens are unknown to the tokenizer (most often "dog"). Check that '
        "the model was trained on such text, and that the file holds nothing else"
    ]
    assert json.loads(Path("study/run.json").read_text())["data"]["column"] == ["smiles"]
