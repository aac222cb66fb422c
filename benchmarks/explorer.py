"""Does the explorer answer at once? Measured in headless Chromium on a real model.

Prints one JSON line: from the model's answer to all thumbnails of 128 tokens; from the pointer to the value, painted;
from the press of a head's switch to the new prediction at 32 tokens; the longest task of the page's main thread while
512 tokens are opened, scrolled and zoomed, as map and as arcs; the same on a saved page. `ms` are medians by the clock
(the longest task: the longest), which other programs stretch (`load` is the machine's); `processor_ms` is what the
page's main thread itself took, for the switch with all threads of the server, and is the same on a busy machine.

    python benchmarks/explorer.py [--repeats 7] [--model minilm]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright

import headscope

WORD = "lamp"  # one token
BUDGETS = {
    "overview": 1000,
    "pointer": 50,
    "toggle": 300,
    "longest_task": 200,
    "saved_longest_task": 200,
}

OVERVIEW = """async (text) => {
    performance.clearMarks();
    const box = document.getElementById('text');
    box.value = text;
    box.dispatchEvent(new Event('input', { bubbles: true }));
    const mark = (name) => performance.getEntriesByName(name).at(-1)?.startTime;
    while (!mark('overview')) await new Promise((next) => setTimeout(next, 5));
    return mark('overview') - mark('answered');
}"""

POINTER = """async ([x, y]) => {
    const canvas = document.querySelector('#maps canvas'), began = performance.now();
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true }));
    const value = document.querySelector('#tip b').textContent;
    await new Promise((next) => requestAnimationFrame(() => setTimeout(next, 0)));
    return [performance.now() - began, value];
}"""

TOGGLE = """(name) => new Promise((resolve) => {
    const root = document.documentElement, began = performance.now();
    const seen = new MutationObserver(() => { seen.disconnect(); resolve(performance.now() - began); });
    seen.observe(root, { attributes: true, attributeFilter: ['data-answer'] });
    document.querySelector(`.cell:has(.thumb[aria-label="${name}"]) .switch`).click();
})"""

WATCH_TASKS = """() => {
    window.__tasks = [];
    new PerformanceObserver((list) => window.__tasks.push(...list.getEntries().map((one) => one.duration)))
        .observe({ entryTypes: ['longtask'] });
}"""

SCROLL = """async () => {
    const frame = () => new Promise((next) => requestAnimationFrame(next));
    for (let at = 0; at < 5; at++) { document.getElementById('in').click(); await frame(); }
    for (const scroller of document.querySelectorAll('.scroller, .flow')) {
        for (let at = 0; at < 40; at++) { scroller.scrollBy(40, 90); await frame(); }
    }
    for (let at = 0; at < 40; at++) { window.scrollBy(0, 20); await frame(); }
    await new Promise((next) => setTimeout(next, 300));
}"""


def text_of(tokens: int) -> str:
    return " ".join([WORD] * (tokens - 2))


def opened(page: Page, url: str, tokens: int, **state: str) -> Page:
    page.goto("about:blank")
    page.goto(f"{url}#{urlencode({'text': text_of(tokens), **state})}")
    wanted = "data-head" if "heads" in state else "data-drawn"
    page.wait_for_selector(f"html[{wanted}]", state="attached", timeout=120_000)
    return page


class Traced:
    """What the page's main thread took for something: each task, in milliseconds of processor time."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.browser, self.page = browser, page

    def __call__(self, act: Callable[[], Any]) -> tuple[Any, list[float]]:
        self.browser.start_tracing(page=self.page, categories=["toplevel"])
        result = act()
        events = json.loads(self.browser.stop_tracing())["traceEvents"]
        named = [
            one
            for one in events
            if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
        ]
        threads = {(one["pid"], one["tid"]) for one in named}
        tasks = [
            one for one in events if one.get("ph") == "X" and (one["pid"], one["tid"]) in threads
        ]
        return result, [
            one.get("tdur", 0) / 1000 for one in tasks if one["name"].endswith("RunTask")
        ]


def measured(
    page: Page, traced: Traced, url: str, saved: str, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    clock: dict[str, float] = {}
    processor: dict[str, float] = {}

    opened(page, url, 128)
    texts = [" ".join(["keeper"] * n + [WORD] * (126 - n)) for n in range(1, repeats + 1)]
    took, tasks = traced(lambda: [page.evaluate(OVERVIEW, text) for text in texts])
    clock["overview"], processor["overview"] = median(took), sum(tasks) / repeats

    opened(page, url, 128, heads="2.0")
    box = page.locator("#maps canvas").first.bounding_box()
    assert box is not None
    spots = [
        (box["x"] + box["width"] * 0.5 + n, box["y"] + box["height"] * 0.5 + n)
        for n in range(4 * repeats)
    ]
    pointed, tasks = traced(lambda: [page.evaluate(POINTER, spot) for spot in spots])
    assert all(value for _, value in pointed)
    clock["pointer"], processor["pointer"] = (
        median(ms for ms, _ in pointed),
        sum(tasks) / len(spots),
    )

    opened(page, url, 32)
    began = time.process_time()
    took, tasks = traced(lambda: [page.evaluate(TOGGLE, f"2.{n % 12}") for n in range(repeats)])
    served = 1000 * (time.process_time() - began)
    clock["toggle"], processor["toggle"] = median(took), (sum(tasks) + served) / repeats

    for name, place in {"longest_task": url, "saved_longest_task": saved}.items():
        longest = [_scrolled(page, traced, place, view) for view in ("map", "arcs")]
        clock[name], processor[name] = (max(times) for times in zip(*longest, strict=True))
    return clock, processor


def _scrolled(page: Page, traced: Traced, url: str, view: str) -> tuple[float, float]:
    opened(page, url, 512)
    page.evaluate(WATCH_TASKS)

    def act() -> None:
        page.click(".thumb[aria-label='2.1']")
        page.wait_for_selector("html[data-head]", state="attached")
        page.locator(f"input[name='view'][value='{view}']").check(force=True)
        page.evaluate(SCROLL)

    _, tasks = traced(act)
    return max(page.evaluate("window.__tasks"), default=0), max(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="minilm")
    given = parser.parse_args()
    there = shutil.which("chromium") or shutil.which("google-chrome")
    if there is None:
        raise SystemExit("no chromium on this machine")
    model = headscope.load(given.model)
    with (
        headscope.serve(model, port=0, browser=False, wait=False) as explorer,
        TemporaryDirectory() as folder,
        sync_playwright() as playwright,
    ):
        saved = headscope.look(model, text_of(512)).save(Path(folder) / "look.html").as_uri()
        browser = playwright.chromium.launch(
            executable_path=there, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        found = measured(page, Traced(browser, page), explorer.url, saved, given.repeats)
        browser.close()
    clock, processor = ({name: round(ms, 1) for name, ms in times.items()} for times in found)
    within = {name: processor[name] < most for name, most in BUDGETS.items()}
    told = {
        "ms": clock,
        "processor_ms": processor,
        "budgets_ms": BUDGETS,
        "within": within,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({"model": given.model, **told}))


if __name__ == "__main__":
    main()
