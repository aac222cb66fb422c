"""The look page as a file: its size, its numbers, its manners with hostile tokens, and how it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headscope.errors import HeadscopeError
from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.token_axis import TokenAxis
from headscope.report.look.view import Look
from headscope.report.write import write
from reference.maps import Maps

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;b&gt;&amp;",
    "\u202egnp.exe\u2066",
    "\x00\x1b[31m\x7f",
    "\u2028\u2029\n",
    "\ud800",
    "{{ 7*7 }}{% raw %}",
    "",
)


def softmax_maps(*shape: int, seed: int = 0, spread: float = 1.0) -> NDArray[np.float32]:
    scores = np.random.default_rng(seed).normal(size=shape) * spread
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


def plain_side(count: int) -> TokenAxis:
    """[CLS], words of two pieces, [SEP]."""
    ends = (0, count - 1)
    return TokenAxis(
        tokens=tuple(
            "[CLS]" if at == 0 else "[SEP]" if at == count - 1 else f"word{at}"
            for at in range(count)
        ),
        special=tuple(at in ends for at in range(count)),
        words=tuple(None if at in ends else at // 2 for at in range(count)),
    )


def raw(*stacks: StackMaps) -> LensView:
    return LensView("raw", stacks)


def look_at(weights: NDArray[np.float32], side: TokenAxis | None = None, **others: Any) -> Look:
    side = side or plain_side(weights.shape[-1])
    return Look(
        **{
            "model": "toy",
            "text": ("a text",),
            "lenses": (raw(StackMaps("encoder", side, side, weights)),),
        }
        | others
    )


def data_in(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def maps_in(page: str, layer: int, stack: str = "encoder", lens: int = 0) -> Maps:
    """The maps of one layer, read as the format is described."""
    return Maps.of(
        zlib.decompress(base64.b64decode(data_in(page)["answers"][lens]["maps"][stack][layer]))
    )


class Outline(HTMLParser):
    """Every element with its attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(attrs)))


# Numbers


def test_twelve_by_twelve_heads_of_128_tokens_fit_in_five_megabytes_and_are_packed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    real = zlib.compress

    def compress(data: bytes, *options: int) -> bytes:
        sizes.append(len(data))
        return real(data, *options)

    monkeypatch.setattr(zlib, "compress", compress)
    page = look_at(softmax_maps(12, 12, 128, 128)).page()
    assert len(page.encode()) <= 5_000_000
    weights = 12 * 12 * 128 * 128
    assert weights < sum(sizes) < 1.1 * weights, "a byte a weight, and each is packed once"


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0, 12.0])
def test_stored_weights_are_within_the_stated_error(spread: float) -> None:
    weights = softmax_maps(2, 3, 40, 40, spread=spread)
    page = look_at(weights).page()
    for layer in range(2):
        maps = maps_in(page, layer)
        assert maps.places == [(layer, head) for head in range(3)]
        for head in range(3):
            true = weights[layer, head].astype(np.float64)
            error = np.abs(maps.values[head] - true)
            largest = true.max(axis=1, keepdims=True)
            stated = np.sqrt(true * largest) / 255 + largest / (4 * 255**2)
            assert (error <= stated + 1e-7).all(), f"encoder.{layer}.{head}"
            assert error.max() <= 0.004


def test_masked_cells_stay_exactly_zero_and_lone_cells_exactly_one() -> None:
    weights = np.tril(softmax_maps(1, 1, 9, 9))
    weights /= weights.sum(axis=-1, keepdims=True)
    stored = maps_in(look_at(weights).page(), 0).values[0]
    assert (stored[np.triu_indices(9, 1)] == 0).all()
    assert stored[0, 0] == 1


def test_heads_that_were_cut_are_left_out() -> None:
    weights = softmax_maps(3, 2, 5, 5)
    weights[1, 0] = weights[2] = np.nan
    page = look_at(weights).page()
    assert [maps_in(page, layer).places for layer in range(2)] == [[(0, 0), (0, 1)], [(1, 1)]]
    data = data_in(page)
    assert data["answers"][0]["maps"]["encoder"][2] is None
    assert [one["heads"] for one in data["model"]["stacks"][0]["layers"]] == [[0, 1], [1], []]
    assert {(one["layer"], one["head"]) for one in data["answers"][0]["summary"]} == {
        (0, 0),
        (0, 1),
        (1, 1),
    }


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1, 1.5])
def test_weights_that_are_no_attention_are_refused_by_the_head_s_name(wrong: float) -> None:
    weights = softmax_maps(2, 2, 5, 5)
    weights[1, 0, 2, 3] = wrong
    with pytest.raises(
        HeadscopeError, match=r"^head encoder\.1\.0: attention weights must be from 0 to 1, got "
    ):
        look_at(weights).page()


def test_the_caller_s_weights_are_untouched() -> None:
    weights = softmax_maps(1, 2, 6, 6)
    before = weights.copy()
    look_at(weights).page()
    assert (weights == before).all()


def test_shapes_that_do_not_fit_the_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \[layer, head, 4, 4\]"):
        look_at(softmax_maps(1, 1, 5, 5), plain_side(4))
    with pytest.raises(ValueError, match="3 tokens, 3 flags, 2 words"):
        TokenAxis(("a", "b", "c"), (False,) * 3, (0, 1))


# Tokens


def test_pieces_join_to_readable_words_in_each_tokenizer_s_writing() -> None:
    wordpiece = TokenAxis(
        ("[CLS]", "un", "##for", "##giving", ".", "[SEP]"),
        (True, *[False] * 4, True),
        (None, 0, 0, 0, 1, None),
    )
    assert wordpiece.word_labels() == ("[CLS]", "unforgiving", ".", "[SEP]")
    assert wordpiece.units() == (0, 1, 1, 1, 2, 3)
    assert wordpiece.unit_special() == (True, False, False, True)
    sentencepiece = TokenAxis(
        ("▁magni", "fique", "▁et", "</s>"), (False, False, False, True), (0, 0, 1, None)
    )
    assert sentencepiece.word_labels() == ("magnifique", "et", "</s>")
    assert sentencepiece.token_labels() == ("magni", "·fique", "et", "</s>")
    bytelevel = TokenAxis(("The", "Ġcaf", "Ã©", "Ċ", "Ġä½", "ł"), (False,) * 6, (0, 1, 1, 2, 3, 3))
    assert bytelevel.word_labels() == ("The", "café", "↵", "你")
    assert bytelevel.token_labels()[:4] == ("The", "caf", "·é", "↵")
    fallback = TokenAxis(("▁", "<0xE4>", "<0xBD>", "<0xA0>"), (False,) * 4, (0, 0, 0, 0))
    assert fallback.word_labels() == ("你",)


def test_two_sentences_keep_their_words_apart() -> None:
    side = TokenAxis(
        ("[CLS]", "a", "[SEP]", "a", "[SEP]"),
        (True, False, True, False, True),
        (None, 0, None, 1, None),
    )
    assert side.units() == (0, 1, 2, 3, 4)


def test_right_to_left_is_known_from_the_first_letter_of_the_text() -> None:
    def direction(*tokens: str) -> object:
        count = len(tokens)
        return TokenAxis(
            tokens, (True, *[False] * (count - 1)), (None, *range(count - 1))
        ).payload()["rtl"]

    assert direction("[CLS]", "…", "שלום", "world") is True
    assert direction("[CLS]", "hello", "مرحبا") is False
    assert direction("[CLS]", "你好") is False
    assert direction("[CLS]", "1", ".") is False


def test_punctuation_is_what_has_no_other_sign() -> None:
    record = TokenAxis(
        ("[CLS]", "a", "##.", "!?", "—", "$", "."),
        (True, *[False] * 6),
        (None, 0, 0, 1, 2, 3, None),
    ).payload()
    assert record["word_punctuation"] == [0, 0, 1, 1, 0, 1]
    assert record["punctuation"] == [0, 0, 0, 1, 1, 0, 1]


def test_punctuation_that_a_tokenizer_leaves_on_its_word() -> None:
    """SentencePiece splits at blanks alone: "mat," and "(it's" are words to it, and a comma may stand for itself."""
    tokens = ("▁mat", ",", "▁(", "it", "'", "s", "▁,", "▁", "“", "so", "▁", "...", "</s>")
    words = (0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 4, 4, None)
    record = TokenAxis(tokens, (*[False] * 12, True), words).payload()
    assert record["words"] == ("mat", ",", "(", "it's", ",", "“", "so", "...", "</s>")
    assert record["word_punctuation"] == [0, 1, 1, 0, 1, 1, 0, 1, 0]
    assert record["punctuation"] == [0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0]
    assert record["tokens"][:6] == ("mat", ",", "(", "it", "·'", "·s")


def test_controls_and_direction_marks_become_visible_signs() -> None:
    labels = TokenAxis(HOSTILE, (False,) * len(HOSTILE), tuple(range(len(HOSTILE)))).token_labels()
    assert labels[5] == "⟨202E⟩gnp.exe⟨2066⟩"
    assert labels[6] == "⟨0000⟩⟨001B⟩[31m⟨007F⟩"
    assert labels[8] == "\ufffd"
    assert labels[10] == "∅"
    assert not any(character in "".join(labels) for character in "\u2028\u2029\n\r\x00\u202e\u2066")


def test_hostile_tokens_texts_and_names_add_no_element_and_no_attribute() -> None:
    count = len(HOSTILE)
    weights = softmax_maps(2, 2, count, count)
    harmless = TokenAxis(tuple("x" * count), (False,) * count, tuple(range(count)))
    hostile = TokenAxis(HOSTILE, (False,) * count, tuple(range(count)))
    tame = look_at(weights, harmless, text=("t",) * count, model="m").page()
    wild = look_at(weights, hostile, text=HOSTILE, model=HOSTILE[0]).page()
    assert Outline(wild).elements == Outline(tame).elements
    assert data_in(wild)["sides"]["encoder"]["query"]["tokens"][0] == HOSTILE[0]
    json_text = wild.split('id="data">')[1].split("</script>")[0]
    assert json_text.isascii()
    assert not set("<>&") & set(json_text)
    assert "49" not in wild.split("<h1>")[1].split("</h1>")[0]
    wild.encode("utf-8")


def test_the_notebook_frame_holds_the_page_in_one_escaped_attribute() -> None:
    side = TokenAxis(HOSTILE, (False,) * len(HOSTILE), tuple(range(len(HOSTILE))))
    look = look_at(softmax_maps(1, 1, len(HOSTILE), len(HOSTILE)), side, model=HOSTILE[2])
    ((tag, attributes),) = Outline(look._repr_html_()).elements
    assert tag == "iframe"
    assert dict(attributes)["sandbox"] == "allow-scripts allow-downloads"
    assert dict(attributes)["srcdoc"] == look.page()


def test_a_page_too_large_for_a_notebook_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.report.look.view.NOTEBOOK_LIMIT_BYTES", 1000)
    note = look_at(softmax_maps(1, 1, 5, 5), model=HOSTILE[0])._repr_html_()
    assert len(note) < 500
    assert {tag for tag, _ in Outline(note).elements} == {"p", "code"}


# The document


def test_the_policy_allows_this_script_and_this_style_and_nothing_from_outside() -> None:
    page = look_at(softmax_maps(1, 1, 5, 5)).page()
    elements = Outline(page).elements
    policy = next(
        dict(attrs)["content"]
        for tag, attrs in elements
        if ("http-equiv", "Content-Security-Policy") in attrs
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    script = page.rsplit('<script type="module">', 1)[1].rsplit("</script>", 1)[0]
    style = page.split("<style>", 1)[1].split("</style>", 1)[0]
    for text in (script, style):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert not [
        value
        for _, attrs in elements
        for name, value in attrs
        if name in ("src", "href", "style") or name[:2] == "on"
    ]
    assert "innerHTML" not in script
    assert "http://" not in script.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_script_and_style_keep_their_budget() -> None:
    page = look_at(softmax_maps(1, 1, 2, 2)).page()
    assert len(page.encode()) <= 300_000


def test_the_same_look_gives_the_same_bytes() -> None:
    weights = softmax_maps(2, 2, 8, 8)
    assert look_at(weights).page() == look_at(weights).page()


# Writing


def test_saving_gives_the_path_and_leaves_only_the_page(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 5, 5))
    goal = tmp_path / "look.html"
    goal.write_text("old")
    assert look.save(str(goal)) == goal
    assert goal.read_text("utf-8") == look.page()
    assert list(tmp_path.iterdir()) == [goal]


def test_a_page_has_an_ending_that_a_browser_opens(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 5, 5))
    assert look.save(tmp_path / "look") == tmp_path / "look.html"
    assert look.save(tmp_path / "look.v2") == tmp_path / "look.v2.html"
    assert look.save(tmp_path / "old.HTM") == tmp_path / "old.HTM"
    with pytest.raises(HeadscopeError, match=r'must end in \.html, got "look\.png"'):
        look.save(tmp_path / "look.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "look.html",
        "look.v2.html",
        "old.HTM",
    ]


def test_a_look_is_written_as_its_page_and_replaces_one_only_when_asked_to(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 5, 5))
    page = look.write(tmp_path / "look")
    assert page == tmp_path / "look.html"
    assert page.read_text("utf-8") == look.page()
    with pytest.raises(HeadscopeError, match="a page is already there"):
        write(look, page)
    assert write(look, page, overwrite=True) == page
    with pytest.raises(HeadscopeError, match=r'must end in \.html, got "look\.png"'):
        look.write(tmp_path / "look.png")
    assert list(tmp_path.iterdir()) == [page]


def test_a_full_disk_leaves_the_old_page_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = tmp_path / "look.html"
    goal.write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        HeadscopeError,
        match=r"look\.html: the page cannot be written: No space left on device\. Expected",
    ):
        look_at(softmax_maps(1, 1, 5, 5)).save(goal)
    assert goal.read_text() == "old"
    assert list(tmp_path.iterdir()) == [goal]


def test_a_missing_directory_is_reported_and_none_is_made(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 5, 5))
    with pytest.raises(
        HeadscopeError,
        match=r"there is no directory .*deep\. Check the path, or make the directory",
    ):
        look.save(tmp_path / "new" / "deep" / "look.html")
    assert not list(tmp_path.iterdir())


def test_the_frame_of_a_notebook_is_as_high_as_its_layers_need() -> None:
    heights = [
        int(
            re.findall(
                r'height="(\d+)" style', look_at(softmax_maps(layers, 2, 4, 4))._repr_html_()
            )[0]
        )
        for layers in (2, 6, 12, 40)
    ]
    assert heights[0] < heights[1] < heights[2] <= heights[3] == 1200, "a frame of a tower scrolls"
    assert heights[1] - 320 >= 6 * 60


def test_a_look_is_one_line_in_python() -> None:
    look = look_at(softmax_maps(2, 3, 6, 6))
    assert repr(look) == "Look('toy', 'a text', 6 tokens, 2 layers × 3 heads, lens raw)"
    changed = look_at(
        softmax_maps(2, 3, 6, 6), text=("a" * 99, "b"), off="0.2,1.*", edits=("Masked('star')",)
    )
    assert (
        repr(changed)
        == f"Look('toy', '{'a' * 39}…', 'b', 6 tokens, 2 layers × 3 heads, lens raw, off 0.2,1.*, Masked('star'))"
    )
    assert len(repr(look.stacks[0])) < 500


def test_a_folder_as_output_and_a_file_as_folder_are_reported(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 5, 5))
    with pytest.raises(HeadscopeError, match=r"this is a folder\. Expected the name of a file"):
        look.save(tmp_path)
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(
        HeadscopeError, match=r'file" is a file, not a folder\. Choose another path'
    ):
        look.save(tmp_path / "file" / "look.html")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any folder")
def test_a_folder_without_write_permission_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HeadscopeError, match="cannot be written: Permission denied"):
        look_at(softmax_maps(1, 1, 5, 5)).save(tmp_path / "look.html")


def test_a_refused_folder_is_reported_for_root_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    look = look_at(softmax_maps(1, 1, 5, 5))
    monkeypatch.setattr(Look, "page", lambda self: "page")
    with pytest.raises(
        HeadscopeError,
        match=r"cannot be written: Permission denied\. Expected a folder one may write",
    ):
        look.save(tmp_path / "look.html")


def test_a_page_beyond_what_a_browser_bears_is_refused_unless_wanted(tmp_path: Path) -> None:
    look = look_at(softmax_maps(1, 1, 30, 30))
    with pytest.raises(
        HeadscopeError, match=r"for 30 tokens\. Expected at most 0 MB.*\. Look at a shorter text"
    ):
        look.save(tmp_path / "look.html", limit_bytes=1000)
    assert not list(tmp_path.iterdir())
    assert look.save(tmp_path / "look.html", limit_bytes=None).exists()
