"""The explorer as it is started and ended: ports, tokens, two models, Ctrl-C; from Python and from the shell."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from asking import Asking
from studies import made_up, record_for
from transformers import BertForSequenceClassification, BertModel

import headscope
from headscope.errors import HeadscopeError
from headscope.explorer import model_thread, serving
from headscope.explorer.serving import Explorer
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame
from sampling import slow
from waiting import LONGEST
from worded import saved, worded

Start = Callable[..., Explorer]


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_taken_port_is_replaced_by_the_next_with_a_message(start: Start) -> None:
    messages: list[str] = []
    with taken_port() as port:
        explorer = start(worded(BertModel), port=port, log=messages.append)
        assert port < explorer.port <= port + 20
        assert messages == [f"port {port} is taken, using {explorer.port}", explorer.url]
        assert Asking(explorer, worded(BertModel)).get("/api/about").status == 200


def test_two_explorers_do_not_meet(start: Start) -> None:
    single = start(worded(BertModel), port=0)
    other = start(worded(BertModel), port=single.port)
    assert other.port != single.port


def test_ports_that_are_all_taken_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TRIED_PORTS", 1)
    with (
        taken_port() as port,
        pytest.raises(HeadscopeError, match=f"ports {port} to {port} are all taken"),
    ):
        headscope.serve(worded(BertModel), port=port, browser=False, wait=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 65536}, "`port` must be at least 0 and at most 65535, got 65536."),
        ({"port": -1}, "`port` must be at least 0 and at most 65535, got -1."),
        ({"host": "203.0.113.7"}, "`host`: cannot listen on 203.0.113.7 port "),
        ({"host": "no such host"}, "`host`: cannot listen on no such host port "),
        (
            {"token": "short"},
            "`token` must be eight or more letters, digits,",
        ),
        ({"token": "with spaces;"}, "`token` must be eight or more letters, digits,"),
        (
            {"max_length": 33},
            "`max_length`: 33 tokens are more than worded can read. Expected at most 32.",
        ),
        ({"study": "nowhere"}, "nowhere: there is no such directory."),
    ],
)
def test_what_cannot_be_served_is_reported(options: dict[str, object], message: str) -> None:
    with pytest.raises(HeadscopeError) as refused:
        headscope.serve(
            worded(BertModel), **{"browser": False, "wait": False, "port": 0, **options}
        )  # type: ignore[arg-type]
    assert message in str(refused.value)


def of_importance(value: float, sha256: str = "ab" * 32) -> Study:
    rows = [
        Row("encoder", 0, head, "ablation-loss", value, value - 0.1, value + 0.1, 9)
        for head in range(2)
    ]
    heads = to_frame(rows)
    return Study(heads, {}, record_for(heads, sha256))


def test_several_studies_of_a_model_are_joined_as_in_a_report(start: Start, tmp_path: Path) -> None:
    whole = made_up()
    for name, study in (
        ("what", whole),
        ("which", of_importance(0.5)),
        ("other", of_importance(0.7)),
    ):
        study.record = record_for(whole.heads, "ab" * 32)
        (tmp_path / name).mkdir()
        write_tables(study, tmp_path / name)
    messages: list[str] = []
    explorer = start(
        worded(BertModel),
        study=[tmp_path / one for one in ("what", "which", "other")],
        log=messages.append,
    )
    summary = Asking(explorer, worded(BertModel)).get("/api/about").json["study"]
    assert {"entropy", "ablation-loss", "ablation-loss (other)"} <= set(summary["statistics"])
    assert messages[0].startswith(
        "note: ablation-loss: other has other values than an earlier study"
    )


def test_studies_of_different_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HeadscopeError, match="of one model, got study 1 of tiny and study 2 of tiny"
    ):
        headscope.serve(
            worded(BertModel),
            study=[made_up(), of_importance(0.5, "cd" * 32)],
            port=0,
            browser=False,
            wait=False,
        )


def test_this_machine_alone_is_listened_to(start: Start) -> None:
    explorer = start(worded(BertModel))
    assert explorer.token is None
    assert explorer.url == f"http://127.0.0.1:{explorer.port}/"


def test_another_host_has_a_token(start: Start) -> None:
    explorer = start(worded(BertModel), host="0.0.0.0")
    assert explorer.token is not None
    assert len(explorer.token) >= 24
    assert explorer.url == f"http://127.0.0.1:{explorer.port}/?token={explorer.token}"
    asking = Asking(explorer, worded(BertModel))
    assert asking.get("/api/about").status == 401
    assert asking.get("/api/about", **{"X-Headscope-Token": explorer.token}).status == 200


def test_addresses_for_other_machines_are_printed_and_can_be_opened(start: Start) -> None:
    messages: list[str] = []
    explorer = start(worded(BertModel), host="0.0.0.0", log=messages.append)
    assert explorer.elsewhere[0].startswith(
        f"http://{socket.gethostname().lower()}:{explorer.port}/?token="
    )
    assert messages == [explorer.url, f"from other machines: {' or '.join(explorer.elsewhere)}"]
    assert not any("127.0.0" in url or "0.0.0.0" in url for url in explorer.elsewhere)
    asking = Asking(explorer, worded(BertModel))
    for url in explorer.elsewhere:
        host, _, path = url.removeprefix("http://").partition("/")
        assert asking.get(f"/{path}", Host=host).status == 303, (
            "the token is taken, and becomes a cookie"
        )
    assert start(worded(BertModel)).elsewhere == []


def test_the_browser_is_opened_where_wanted(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    start(worded(BertModel))
    assert opened == []
    explorer = start(worded(BertModel), browser=True)
    assert opened == [explorer.url]


def test_it_is_gone_after_stop() -> None:
    with headscope.serve(
        worded(BertModel), port=0, browser=False, wait=False, log=lambda line: None
    ) as explorer:
        assert Asking(explorer, worded(BertModel)).attend("the cat")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", explorer.port), timeout=LONGEST)


def test_two_models_are_shown_side_by_side(start: Start) -> None:
    """The second was cut: its heads keep their numbers, and a difference is of the heads that both have."""
    model = worded(BertForSequenceClassification, num_attention_heads=4)
    small = headscope.prune(
        worded(BertForSequenceClassification, num_attention_heads=4), "0.1"
    ).model
    asking = Asking(start(model, compare=small), model)
    about = asking.get("/api/about").json["models"]
    assert [one["id"] for one in about] == ["a", "b"]
    assert about[1]["stacks"][0]["layers"][0]["heads"] == [0, 2, 3]
    states = [asking.attend("the cat sat", model=name)["id"] for name in "ab"]
    assert states[0] != states[1]
    maps = [asking.maps(f"/api/maps/{state}/encoder/1").values for state in states]
    assert np.abs(maps[0] - maps[1]).max() > 0.01, "the cut of the first layer shows in the second"
    first = asking.maps(f"/api/difference/{states[0]}/{states[1]}/encoder/0")
    assert first.places == [(0, 0), (0, 2), (0, 3)]
    assert np.abs(first.values).max() < 1e-6
    second = asking.maps(f"/api/difference/{states[0]}/{states[1]}/encoder/1")
    np.testing.assert_allclose(second.values, maps[1] - maps[0], atol=0.02)
    scale = asking.get(f"/api/difference/{states[0]}/{states[1]}/encoder").json["full"]
    assert scale == pytest.approx(np.abs(second.values).max(), rel=1e-3), (
        "of all layers, here that of the second"
    )
    assert asking.get(f"/api/alike/{states[0]}/{states[1]}").status == 422, (
        "classifiers give no vectors"
    )


def test_vectors_of_two_encoders_are_compared(start: Start) -> None:
    model, other = worded(BertModel), worded(BertModel, seed=3)
    wide = worded(BertModel, hidden_size=32)
    asking = Asking(start(model, compare=other), model)
    states = [asking.attend("the cat sat", "a dog", model=name)["id"] for name in "ab"]
    cosines = asking.get(f"/api/alike/{states[0]}/{states[1]}").json["cosines"]
    for text, cosine in zip(("the cat sat", "a dog"), cosines, strict=True):
        first, second = (
            m.model(**m.tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)  # type: ignore[misc]
            for m in (model, other)
        )
        assert cosine == pytest.approx(
            float((first @ second) / (first.norm() * second.norm())), abs=1e-5
        )
    alone = asking.attend("the cat sat", model="b")["id"]
    assert asking.get(f"/api/alike/{states[0]}/{alone}").status == 422, "of other texts"
    asking = Asking(start(model, compare=wide), model)
    states = [asking.attend("the cat sat", model=name)["id"] for name in "ab"]
    assert asking.get(f"/api/alike/{states[0]}/{states[1]}").json == {"cosines": None}


# From the shell


SHELL = (sys.executable, "-m", "headscope", "serve")


def started(folder: Path, *words: str, before: Sequence[str] = SHELL) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background jobs ignore it
    )


@pytest.mark.parametrize(("sign", "status"), [slow(signal.SIGINT, 0), slow(signal.SIGTERM, 143)])
def test_control_c_ends_it_cleanly(sign: signal.Signals, status: int, tmp_path: Path) -> None:
    saved(tmp_path / "bert", BertModel)
    with taken_port() as port:
        process = started(tmp_path, "bert", "--port", str(port), "--no-browser")
        try:
            assert process.stdout is not None
            outputs = [process.stdout.readline().strip() for _ in range(3)]
            match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", outputs[1])
            assert match is not None, outputs
            own_port = int(match[1])
            assert outputs == [
                f"port {port} is taken, using {own_port}",
                f"http://127.0.0.1:{own_port}/",
                "Press Ctrl-C to stop",
            ]
            connection = http.client.HTTPConnection(
                "127.0.0.1", own_port, timeout=LONGEST
            )  # left open: it must not be waited for
            connection.request("GET", "/api/about")
            assert json.loads(connection.getresponse().read())["models"][0]["name"] == "bert"
            process.send_signal(sign)
            out, err = process.communicate(timeout=LONGEST)
        finally:
            process.kill()
    assert (process.returncode, err) == (status, "loading bert …\n")
    assert out == ("stopped\n" if sign == signal.SIGINT else "")


@pytest.mark.slow
def test_what_is_loaded_is_reported_at_once(tmp_path: Path) -> None:
    saved(tmp_path / "bert", BertModel)
    (tmp_path / "study").mkdir()
    study = made_up({"encoder": (2, 2)})
    study.record = record_for(study.heads, "ab" * 32)
    write_tables(study, tmp_path / "study")
    process = started(
        tmp_path, "bert", "--study", "study", "--compare", "bert", "--port", "0", "--no-browser"
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
    assert [line for line in err.splitlines() if "…" in line] == [
        "loading bert …",
        "reading study …",
        "loading bert …",
    ]


BUSY = """
import os, runpy, threading
from headscope.explorer.request_queue import RequestQueue
from headscope.explorer.session import Session
real = RequestQueue._wait
def wait(self, page, turn):
    os.write(1, b"one waits\\n")
    return real(self, page, turn)
RequestQueue._wait = wait
def attend(self, text, *given):
    os.write(1, b"at work\\n")
    threading.Event().wait()  # for ever: who waits for it never ends
Session.attend = attend
runpy.run_module("headscope", run_name="__main__")
"""


def test_control_c_does_not_wait_for_the_model(tmp_path: Path) -> None:
    """Neither for the work under way, nor for those in line: they are told."""
    saved(tmp_path / "bert", BertModel)
    words = ["serve", "bert", "--port", "0", "--no-browser"]
    process = started(tmp_path, *words, before=[sys.executable, "-c", BUSY])
    answers: list[int] = []

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST)
        body = json.dumps({"model": "a", "text": "the cat"})
        connection.request("POST", "/api/attend", body, {"Content-Type": "application/json"})
        answers.append(connection.getresponse().status)

    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)/", process.stdout.readline())
        assert match is not None
        process.stdout.readline()
        asking = [threading.Thread(target=ask, args=(int(match[1]),)) for _ in range(2)]
        for item in asking:
            item.start()
        assert {process.stdout.readline() for _ in asking} == {"at work\n", "one waits\n"}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST)
        for item in asking:
            item.join()
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "loading bert …\n")
    assert answers == [503, 503]


def test_the_work_under_way_is_stopped_and_the_model_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        model_thread, "STOPPING_SECONDS", LONGEST
    )  # that it may take on a busy machine
    model = worded(BertModel)
    explorer = headscope.serve(model, port=0, browser=False, wait=False, log=lambda line: None)
    begun = threading.Event()

    def work() -> None:
        with model.edited(headscope.Ablate("0.0")):
            while True:
                model.model(**model.tokenizer("the cat", return_tensors="pt"))  # type: ignore[misc]
                begun.set()

    outcome: list[object] = []

    def wait() -> None:
        try:
            asyncio.run(explorer.server.model_thread.run(work))
        except HeadscopeError as refusal:
            outcome.append(refusal)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(LONGEST)
    explorer.stop()
    waiting.join(LONGEST)
    assert not explorer.is_working
    assert "shutting down" in str(outcome[0])
    whole = headscope.look(model, "the cat").lenses[0].stacks[0].weights
    np.testing.assert_array_equal(
        whole, headscope.look(worded(BertModel), "the cat").lenses[0].stacks[0].weights
    )
    explorer.stop()  # once more does no harm


@pytest.mark.slow
def test_a_wrong_study_is_one_line_before_the_model_is_loaded(tmp_path: Path) -> None:
    process = started(tmp_path, "no-such-model", "--study", "nowhere")
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 2
    assert out == ""
    assert (
        err
        == "headscope: nowhere: there is no such directory. Expected a study that a command wrote.\n"
    )
