"""The explorer's answers to a fixed sequence of requests are those stored."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import chdir
from typing import Any

import pytest
import torch
from golden_files import MASKED, Golden, as_text
from golden_studies import Studies

import headscope

LONGEST = 300  # seconds: a limit against hanging
TEXT, SECOND = "the old cat sat on a mat .", "a good dog ran"
# Lenses that are compared: a new one does not change the stored answers.
LENSES = {
    "heads": ("raw", "norm", "effective", "effective-simplex", "gradient"),
    "tokens": ("rollout", "flow", "gradient-rollout", "relevance", "value-zeroing", "knock-out"),
}
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def ask(studies: Studies) -> Iterator[Ask]:
    """Requests to an explorer of two classifiers with a study; the answers name states `<state 1>`, `<state 2>` …"""
    studies.make("analyze")
    torch.set_num_threads(1)
    states: dict[str, str] = {}
    options: dict[str, Any] = {"browser": False, "wait": False, "port": 0, "log": lambda line: None}
    with chdir(studies.folder):  # models are named by their paths
        models = [headscope.load(name, dtype="float64") for name in ("bert", "other")]
        explorer = headscope.serve(models[0], compare=models[1], study="analyze", **options)
    with explorer:

        def request(path: str, body: dict[str, Any] | None = None) -> Any:
            for state, name in states.items():
                path = path.replace(name, state)
            connection = http.client.HTTPConnection("127.0.0.1", explorer.port, timeout=LONGEST)
            headers = {} if body is None else {"Content-Type": "application/json"}
            sent = None if body is None else json.dumps(body)
            try:
                connection.request("GET" if body is None else "POST", path, sent, headers)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            kind = answer.headers["content-type"]
            if kind != "application/json":
                return {"status": answer.status, "type": kind, "bytes": len(content)}
            value = json.loads(content)
            if isinstance(value, dict) and "id" in value:
                states.setdefault(value["id"], f"<state {len(states) + 1}>")
            return {"status": answer.status, "answer": _named(value, states)}

        yield request


def _named(value: Any, states: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: MASKED if key == "sha256" else _named(item, states) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_named(item, states) for item in value]
    return states.get(value, value) if isinstance(value, str) else value


def test_about_and_the_study(golden: Golden, ask: Ask) -> None:
    for name, path in {
        "about": "/api/about",
        "study-heads": "/api/study/heads",
        "study-card": "/api/study/cards/1.0",
        "study-examples": "/api/study/examples/1.0",
    }.items():
        answer = ask(path)
        if name == "about":
            for model in answer["answer"]["models"]:
                model["lenses"] = {
                    kind: [lens for lens in model["lenses"][kind] if lens in lenses]
                    for kind, lenses in LENSES.items()
                }
        golden.check(f"explorer/{name}.json", as_text(answer))


def test_states_and_their_comparison(golden: Golden, ask: Ask) -> None:
    request = {"model": "a", "text": TEXT, "second": SECOND, "off": ""}
    answers = {
        "attend": ask("/api/attend", request),
        "attend-off": ask("/api/attend", request | {"off": "0.1,1.*"}),
        "attend-other": ask("/api/attend", request | {"model": "b"}),
        "attend-norm": ask("/api/attend", request | {"lens": "norm"}),
        "maps": ask("/api/maps/<state 1>/encoder/0"),
        "thumbnails": ask("/api/thumbnails/<state 1>/encoder"),
        "difference": ask("/api/difference/<state 1>/<state 2>/encoder"),
        "difference-maps": ask("/api/difference/<state 1>/<state 3>/encoder/1"),
    }
    for name, answer in answers.items():
        assert answer["status"] == 200, (name, answer)
        golden.check(f"explorer/{name}.json", as_text(answer))


def test_refusals(golden: Golden, ask: Ask) -> None:
    request = {"model": "a", "text": TEXT, "second": None, "off": ""}
    answers = [
        ask("/api/attend", request | {"model": "c"}),
        ask("/api/attend", request | {"off": "9.9"}),
        ask("/api/attend", request | {"lens": "none"}),
        ask("/api/attend", request | {"text": ""}),
        ask("/api/translate", request),
        ask("/api/maps/none/encoder/0"),
        ask("/api/study/cards/0.*"),
        ask("/api/none"),
    ]
    golden.check("explorer/refusals.json", as_text(answers))
