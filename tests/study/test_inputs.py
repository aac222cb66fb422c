"""What a study reads: which side of a pair is read where, what was asked of documents, what cannot be asked."""

from __future__ import annotations

from pathlib import Path

from headscope.analysis.parsed_sentences import Treebanks
from headscope.data.coreference import Document, Mention
from headscope.study.inputs import Annotations, Corpus, count_word_frequencies

PAIRS = [("the cat", "le chat"), ("the mat", "le tapis")]
SENTENCE = "1\t{}\t_\tNOUN\t_\t_\t2\tdep\t_\t_\n2\t{}\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def test_of_a_translation_only_the_source_is_read_and_counted() -> None:
    corpus = Corpus((), PAIRS, True, None, None)
    assert list(corpus.as_words()) == [
        ("the", "cat"),
        ("le", "chat"),
        ("the", "mat"),
        ("le", "tapis"),
    ]
    assert list(corpus.as_words(sources_only=True)) == [("the", "cat"), ("the", "mat")]
    both, source = (
        count_word_frequencies(Annotations(), corpus, sources_only=only) for only in (False, True)
    )
    assert both.rank("le") < both.rank("chat")
    assert source.rank("le") == source.rank("chat") > source.rank("the")


def test_mentions_that_refer_back_are_counted_before_windows_are_cut() -> None:
    mentions = tuple(Mention(i, i + 1, entity, i, "nominal") for i, entity in enumerate("abab"))
    document = Document("d", "d", (("w",) * 4,), None, mentions)
    described = Annotations(documents=[document], coreference=[]).describe()["coreference"]
    assert described["mentions"] == 2


def test_sentences_that_are_trained_on_are_no_test(tmp_path: Path) -> None:
    (tmp_path / "train.conllu").write_text(SENTENCE.format("a", "b") + SENTENCE.format("c", "d"))
    (tmp_path / "test.conllu").write_text(SENTENCE.format("c", "d") + SENTENCE.format("e", "f"))
    data = Treebanks([tmp_path / "train.conllu"], [tmp_path / "test.conllu"], False, None, 0)
    assert [one.parsed.words for one in data.test] == [("e", "f")]
    assert data.repeated == 1
    assert len(data.train) == 2
