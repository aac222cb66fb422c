"""Which heads of a translation model align words, and do nouns align better than other words?

Hand-aligned sentence pairs are custom relations between two texts: a French word (query) and the English word it is
linked to (key). The data has no part-of-speech tags. A word counts as a noun if NOUN is the most frequent tag of its
form in a treebank of its language; a link counts as a link of nouns if both its words are nouns. Such links may be easy
only because both words have the same tag, so the other links with equal tags are also reported separately.

    python examples/word_alignment.py en-fr_gold.tsv.gz --english en_ewt-ud-*.conllu.gz --french fr_gsd-ud-*.conllu.gz
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import headscope
from headscope.data.text_lines import read_lines
from headscope.data.treebank import read_treebank

ALL, NOUNS, OTHERS, ALIKE = (
    "aligned",
    "aligned nouns",
    "aligned others",
    "aligned others of one tag",
)
COLUMNS = [
    "relation",
    "direction",
    "layer",
    "head",
    "accuracy",
    "low",
    "high",
    "baseline",
    "control",
    "count",
]
Tags = dict[str, str]


def usual_tags(treebanks: Iterable[Path]) -> Tags:
    """The most frequent tag of each form in lower case; of equally frequent tags, the one that occurs first."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in read_treebank(treebanks):
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts[word.lower()][tag] += 1
    return {form: tags.most_common(1)[0][0] for form, tags in counts.items()}


def sentences_of(path: Path, english_tags: Tags, french_tags: Tags) -> list[headscope.Sentence]:
    """Sentences of English and French words, with the sure links: all, of two nouns, others, others of equal tag."""
    sentences = []
    for number, line in list(read_lines(path))[1:]:
        english, french, sure, _ = (part.split() for part in line.split("\t"))
        pairs: dict[str, list[tuple[int, int]]] = {ALL: [], NOUNS: [], OTHERS: [], ALIKE: []}
        for link in sure:
            key, query = map(int, link.split("-"))
            tag, other = (
                english_tags.get(english[key].lower()),
                french_tags.get(french[query].lower()),
            )
            is_alike = tag is not None and tag == other
            kinds = (
                [ALL, NOUNS]
                if is_alike and tag == "NOUN"
                else [ALL, OTHERS, ALIKE]
                if is_alike
                else [ALL, OTHERS]
            )
            for kind in kinds:
                pairs[kind].append((query, key))
        sentences.append(
            headscope.Sentence(tuple(english), pairs, tuple(french), "across", f"{path}:{number}")
        )
    return sentences


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, help="tab-separated: en, fr, sure and possible links (0-0 1-2 …)"
    )
    parser.add_argument(
        "--english", type=Path, nargs="+", required=True, help="English treebanks, for the tags"
    )
    parser.add_argument(
        "--french", type=Path, nargs="+", required=True, help="French treebanks, for the tags"
    )
    parser.add_argument("--out", type=Path, help="write the study here")
    arguments = parser.parse_args()
    sentences = sentences_of(
        arguments.file, usual_tags(arguments.english), usual_tags(arguments.french)
    )
    study = headscope.analyze("opus-mt-en-fr", sentences=sentences, control=True)
    print(study.tables["relations"][COLUMNS].to_string(index=False, float_format="%.3f"))
    roles = study.tables["roles"]
    print(roles[roles["role"].isin([ALL, NOUNS, OTHERS, ALIKE])].groupby("role").size().to_string())
    if arguments.out is not None:
        print(headscope.write(study, arguments.out))


if __name__ == "__main__":
    main()
