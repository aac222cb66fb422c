"""The page of a study: whole, safe, the same twice, small, and true to the table."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import RECORD, SMALL, STATISTICS, THREE, made_up

from headscope.report.notebook import study_html
from headscope.report.page.render import render
from headscope.report.rendered_figures import render_figures
from headscope.report.run_facts import corpus_facts, reproduction, summary
from headscope.report.sections import findings_of
from headscope.report.write import write_report
from headscope.study.study import Study
from headscope.tables import Row, to_frame

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--"
SCRIPT_SAFE = {"svg", "g", "defs", "path", "text", "tspan", "use", "clippath", "rect", "image"}


class Reader(HTMLParser):
    """Tags with attributes, and the text of script elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def page() -> str:
    return render(made_up())


@pytest.fixture(scope="module")
def data(page: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Reader(page).scripts[0])
    return loaded


def test_the_page_loads_nothing_and_names_its_one_script(page: str) -> None:
    reader = Reader(page)
    policy = next(attrs["content"] for tag, attrs in reader.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    addresses = [attrs[key] for _, attrs in reader.tags for key in ("src", "href") if key in attrs]
    assert [address for address in addresses if not address.startswith(("#", "data:"))] == []
    assert not re.search(r"@import|url\((?!#)", page)


def test_model_corpus_and_counts_are_shown(page: str) -> None:
    for words in (
        "tiny",
        "8 heads: encoder 2 layers × 4 heads",
        "texts.txt",
        "1\u202f503",
        "3 empty",
        "52\u202f000",
    ):
        assert words in page
    for words in ("ab" * 32, "cd" * 32, "headscope analyze tiny", "load 1.2 s, pass 9.8 s"):
        assert words in page
    assert "Share of attention to the token before the query token, averaged over queries." in page


def test_the_data_of_the_page_is_the_table(data: dict[str, Any]) -> None:
    study = made_up()
    for statistic in data["statistics"]:
        rows = study.heads[study.heads["statistic"] == statistic["name"]]
        (columns,) = statistic["stacks"]
        assert columns["value"] == pytest.approx(rows["value"].tolist(), rel=1e-5)
        assert columns["count"] == rows["count"].tolist()
        lows = [np.nan if low is None else low for low in columns["low"]]
        assert lows == pytest.approx(rows["low"].tolist(), rel=1e-5, nan_ok=True)


def test_maps_survive_one_byte_a_weight(data: dict[str, Any]) -> None:
    weights = made_up().maps["map/encoder"]
    for index, text in enumerate(data["maps"]["data"][0]):
        codes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(
            data["maps"]["shapes"][0]
        )
        expected = weights[divmod(index, 4)]
        assert np.array_equal(codes == 255, np.isnan(expected))
        valid = codes != 255
        assert np.abs((codes[valid] / 254) ** 2 - expected[valid]).max() < 0.005


@pytest.mark.parametrize(
    "where", ["model", "file", "statistic", "command", "version", "reason", "stack"]
)
def test_markup_in_names_stays_text(where: str) -> None:
    record = json.loads(json.dumps(RECORD))
    statistics, stacks = ["previous", "entropy"], SMALL
    if where == "model":
        record["model"] = dict.fromkeys(
            ("name", "class", "family", "revision", "note", "sha256", "path"), EVIL
        )
    elif where == "file":
        record["data"]["files"] = [{"path": EVIL, "sha256": EVIL, "format": EVIL}]
    elif where == "statistic":
        statistics = [EVIL, "previous", "__proto__", "constructor"]
    elif where == "command":
        record |= {
            "command": EVIL,
            "options": {EVIL: EVIL},
            "seed": EVIL,
            "lens": EVIL,
            "schema": EVIL,
        }
    elif where == "version":
        record |= {"versions": {EVIL: EVIL}, "durations": {EVIL: 1.0}}
    elif where == "reason":
        record["data"]["skipped"] = {EVIL: 3}
    else:
        stacks = {"encoder": (2, 2)}
    study = made_up(stacks, statistics, record=record)
    if where == "stack":
        study.heads["stack"] = EVIL
        study.maps = {
            f"map/{EVIL}": study.maps["map/encoder"],
            f"offset/{EVIL}": study.maps["offset/encoder"],
        }
    for text in (render(study), study_html(study)):
        reader = Reader(text)
        tags = [tag for tag, _ in reader.tags]
        assert tags.count("script") == (2 if text.startswith("<!doctype") else 0)
        assert not [attrs for _, attrs in reader.tags if any(key.startswith("on") for key in attrs)]
        assert not [
            attrs
            for tag, attrs in reader.tags
            if tag == "img" and not attrs["src"].startswith("data:image/png")
        ]
        assert "<img src=x" not in text
        if reader.scripts:
            json.loads(reader.scripts[0])
            assert not set(reader.scripts[0]) & set("<>&")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"model": None},
        {"model": "x", "data": []},
        {"data": {"files": None, "skipped": 3, "read": "many"}},
        {
            "data": {"files": ["x", {"path": None}]},
            "versions": [1],
            "durations": {"load": "long"},
            "options": {"a": {1, 2}},
        },
    ],
)
def test_a_poor_record_never_fails(record: dict[str, Any]) -> None:
    study = made_up(SMALL, ["previous"], record=record, has_maps=False)
    assert "</html>" in render(study)
    assert study_html(study)


def test_a_study_without_heads_still_has_a_page() -> None:
    empty = Study(to_frame([]))
    assert "no heads" in render(empty)
    assert study_html(empty)


def test_the_same_study_gives_the_same_page(page: str) -> None:
    assert render(made_up()) == page


def test_no_id_is_used_twice() -> None:
    match = re.findall(r'\sid="([^"]+)"', render(made_up(THREE, ["previous", "cls", "entropy"])))
    assert len(set(match)) == len(match)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stacks", "positions"), [({"encoder": (12, 12)}, 128), ({"decoder": (30, 9)}, 64)]
)
def test_a_page_of_a_whole_model_stays_mailable(
    stacks: dict[str, tuple[int, int]], positions: int
) -> None:
    study = made_up(stacks, STATISTICS, positions=positions)
    assert len(render(study).encode("utf-8")) <= 3_000_000
    assert len(study_html(study).encode("utf-8")) <= 200_000


def test_script_and_style_stay_small() -> None:
    report = Path(sys.modules["headscope.report.page.render"].__file__ or "").parents[1]
    files = (report / "static" / "study.js", report / "templates" / "study.css")
    assert sum(file.stat().st_size for file in files) <= 300_000


def test_the_policy_names_the_hash_of_the_script_which_makes_no_markup(page: str) -> None:
    script = page.rsplit("<script>", 1)[1].rsplit("</script>", 1)[0]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", script)
    assert "http" not in script.replace("http://www.w3.org/2000/svg", "")


def test_write_report_writes_every_figure_and_the_page(tmp_path: Path) -> None:
    study = made_up(SMALL, ["previous", "entropy"])
    write_report(study, tmp_path)
    names = {f"{f.name}.{'png' if f.is_raster else 'svg'}" for f in render_figures(study)}
    assert {file.name for file in (tmp_path / "figures").iterdir()} == names
    assert (tmp_path / "index.html").read_text("utf-8") == render(study)


def test_findings_name_heads_above_a_half_with_their_intervals() -> None:
    values = [0.2, 0.9, 0.6, 0.5]
    study = Study(
        to_frame(
            [
                Row("encoder", 0, h, "previous", v, v - 0.01, v + 0.01, 9)
                for h, v in enumerate(values)
            ]
        )
    )
    (finding,) = findings_of(study)
    assert str(finding) == (
        "2 of 4 heads give more than half of their attention to the previous token. "
        "0.1: 0.900 [0.890, 0.910]; 0.2: 0.600 [0.590, 0.610]."
    )


def test_findings_say_so_when_no_head_does() -> None:
    rows = [
        Row("decoder", 1, 0, "next", 0.3, np.nan, np.nan, 1),
        Row("decoder", 1, 1, "next", 0.1, 0.0, 0.2, 9),
    ]
    (finding,) = findings_of(Study(to_frame(rows)))
    assert (
        str(finding)
        == "No head gives more than half of its attention to the next token. 1.0: 0.300 (the largest share)."
    )


def test_findings_count_what_they_do_not_name_and_say_which_stack() -> None:
    rows = [
        Row(s, 0, h, "previous", 0.8, 0.7, 0.9, 9) for s in ("encoder", "decoder") for h in range(8)
    ]
    first, second = findings_of(Study(to_frame(rows)))
    assert (
        first.sentence
        == "8 of 8 heads of the encoder stack give more than half of their attention to the previous token"
    )
    assert (len(first.heads), first.more, second.heads[0].head) == (6, 2, "decoder.0.0")


def test_every_finding_is_a_row_of_the_table() -> None:
    study = made_up(THREE)
    for finding in findings_of(study):
        for measured in finding.heads:
            stack, layer, head = measured.head.split(".")
            row = study.heads.query(
                "stack == @stack and layer == @layer and head == @head and statistic == @finding.statistic",
                local_dict={
                    "stack": stack,
                    "layer": int(layer),
                    "head": int(head),
                    "finding": finding,
                },
            )
            assert (measured.value, measured.low, measured.high) == tuple(
                row[["value", "low", "high"]].iloc[0]
            )


def test_facts_leave_out_what_was_not_recorded() -> None:
    study = made_up(record={"data": {"used": 12}})
    assert corpus_facts(study) == [("texts used", "12")]
    assert reproduction(study) == []
    assert summary(made_up({"encoder": (1, 1)})) == "1 head: encoder 1 layer × 1 head"


@pytest.mark.slow
def test_importing_the_page_does_not_load_matplotlib() -> None:
    names = ("page.render", "write", "notebook", "page.payload", "sections")
    code = (
        "".join(f"import headscope.report.{name};" for name in names)
        + "import sys; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "matplotlib" not in loaded
