"""Which model does the explorer open if none is named?"""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.explorer import serving
from headscope.model import zoo


def refuse(name, log):
    raise HeadscopeError("no connection", fix="Check the network")


def present(*names):
    return lambda name: Path(name) if name in names else None


def test_without_a_name_the_small_decoder_is_fetched_and_opened(monkeypatch):
    fetched = []
    monkeypatch.setattr(zoo, "fetch", lambda name, log: fetched.append(name))
    assert serving._default_model(print) == "smollm2"
    assert fetched == ["smollm2"]


def test_a_model_on_this_machine_is_opened_if_the_download_fails(monkeypatch):
    lines = []
    monkeypatch.setattr(zoo, "fetch", refuse)
    monkeypatch.setattr(zoo, "find", present("rxnfp", "minilm"))
    assert serving._default_model(lines.append) == "minilm"
    assert lines == [
        "note: no connection. Check the network. Opening minilm instead, which is on this machine"
    ]


def test_the_reason_is_given_if_there_is_no_model_at_all(monkeypatch):
    monkeypatch.setattr(zoo, "fetch", refuse)
    monkeypatch.setattr(zoo, "find", present())
    with pytest.raises(HeadscopeError, match="no connection"):
        serving._default_model(print)
