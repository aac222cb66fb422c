"""Lenses that are not there, tokens that are not there, texts that are too long for them: the whole message."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_result import Run

from headscope.analysis.lens_maps import LENSES
from headscope.analysis.token_maps import TOKEN_LENSES
from headscope.errors import choices

LOOK: list[tuple[tuple[str, ...], str]] = [
    (
        ("--lens", "raw,rolout"),
        f'--lens must be {choices("", LENSES)}, got "rolout". Did you mean "rollout"?',
    ),
    (("--lens", ""), f'--lens must be {choices("", LENSES)}, got "".'),
    (("--lens", "gradient", "--target", "99"), "--target: there is no token 99. Expected 0 to 3."),
    (
        ("--lens", "gradient-rollout", "--dtype", "bfloat16"),
        "bert: gradients in bfloat16 are too coarse. Load the model with dtype float32.",
    ),
]


@pytest.mark.parametrize(
    ("options", "message"), LOOK, ids=[" ".join(options) for options, _ in LOOK]
)
def test_look_refuses_and_writes_nothing(run: Run, options: tuple[str, ...], message: str) -> None:
    output = run("look", "bert", "the cat", "--out", "look.html", *options)
    assert (output.status, output.error) == (2, message)
    assert not Path("look.html").exists()


def test_an_unknown_lens_is_refused_before_a_model_is_loaded(run: Run) -> None:
    output = run("look", "no/such-model", "a text", "--lens", "nom", "--out", "look.html")
    assert output.status == 2
    assert output.error.endswith('got "nom". Did you mean "norm"?')


def test_flow_says_how_long_a_text_may_be(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.model.flow.MOST_WORK", 2000)
    output = run("look", "bert", "the cat the cat the cat", "--lens", "flow", "--out", "look.html")
    assert output.status == 2
    assert output.error == (
        "lens flow: 8 tokens have 64 pairs, and each pair needs a maximum flow in every layer. "
        "Expected at most 5 tokens, source and target together, in this model. Shorten the text, or use rollout."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--to", "seperator"),
            '--to must be classification, content, punctuation, separator or special, got "seperator". '
            'Did you mean "separator"?',
        ),
        (("--limit", "0"), "--limit must be at least 1, got 0."),
    ],
)
def test_knock_out_refuses_before_a_model_is_loaded(
    run: Run, options: tuple[str, ...], message: str
) -> None:
    output = run(
        "ablate-edges", "no/such-model", "--corpus", "good.txt", "--out", "study", *options
    )
    assert (output.status, output.error) == (2, message)
    assert not Path("study").exists()


@pytest.mark.parametrize("name", TOKEN_LENSES)
def test_a_map_of_tokens_is_no_lens_of_analyze_which_says_where_to_see_it(
    run: Run, name: str
) -> None:
    output = run(
        "analyze", "bert", "--corpus", "good.txt", "--lens", f"raw,{name}", "--out", "study"
    )
    assert output.status == 2
    assert output.error.startswith(
        f'--lens: "{name}" is a map of tokens over all heads, not a lens of single heads. Expected some of'
    )
    assert f"headscope look MODEL TEXT --lens {name}" in output.error
    assert not Path("study").exists()
