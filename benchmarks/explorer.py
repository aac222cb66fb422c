"""Response times of the explorer, measured in headless Chromium on a real model.

Prints one JSON line with these times:

overview            from the model's answer to all thumbnails, with 128 tokens
pointer             from a move of the pointer to the painted value
toggle              from a click on a head's switch to the new prediction, with 32 tokens
longest_task        longest task of the page's main thread while 512 tokens are open_text, scrolled and zoomed, as a map
                    and as arcs
saved_longest_task  the same on a saved page

`ms` is wall-clock time: medians, and the maximum for the longest tasks. Other programs increase it (`load` is the load
of the machine). `processor_ms` is the processor time of the page's main thread, for `toggle` with all threads of the
server; it hardly depends on other programs.

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
    new PerformanceObserver((list) => window.__tasks.push(...list.getEntries().map((entry) => entry.duration)))
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


def open_text(page: Page, url: str, tokens: int, **state: str) -> None:
    """Open a text with this number of tokens, and wait until it is drawn. state: of the address, such as heads."""
    page.goto("about:blank")
    page.goto(f"{url}#{urlencode({'text': text_of(tokens), **state})}")
    attribute = "data-head" if "heads" in state else "data-drawn"
    page.wait_for_selector(f"html[{attribute}]", state="attached", timeout=120_000)


class MainThread:
    """Calls an action and returns its result and the processor time of each task of the page's main thread, in ms."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.browser, self.page = browser, page

    def __call__(self, act: Callable[[], Any]) -> tuple[Any, list[float]]:
        self.browser.start_tracing(page=self.page, categories=["toplevel"])
        result = act()
        events = json.loads(self.browser.stop_tracing())["traceEvents"]
        threads = {
            (event["pid"], event["tid"])
            for event in events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        tasks = [
            event
            for event in events
            if event.get("ph") == "X" and (event["pid"], event["tid"]) in threads
        ]
        return result, [
            event.get("tdur", 0) / 1000 for event in tasks if event["name"].endswith("RunTask")
        ]


def measure(
    page: Page, traced: MainThread, url: str, saved: str, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Wall-clock and processor times in ms, by name. url, saved: the explorer and a saved page."""
    clock: dict[str, float] = {}
    processor: dict[str, float] = {}

    open_text(page, url, 128)
    texts = [" ".join(["keeper"] * n + [WORD] * (126 - n)) for n in range(1, repeats + 1)]
    took, tasks = traced(lambda: [page.evaluate(OVERVIEW, text) for text in texts])
    clock["overview"], processor["overview"] = median(took), sum(tasks) / repeats

    open_text(page, url, 128, heads="2.0")
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

    open_text(page, url, 32)
    start = time.process_time()
    took, tasks = traced(lambda: [page.evaluate(TOGGLE, f"2.{n % 12}") for n in range(repeats)])
    served = 1000 * (time.process_time() - start)
    clock["toggle"], processor["toggle"] = median(took), (sum(tasks) + served) / repeats

    for name, address in {"longest_task": url, "saved_longest_task": saved}.items():
        longest = [_scroll(page, traced, address, view) for view in ("map", "arcs")]
        clock[name], processor[name] = (max(times) for times in zip(*longest, strict=True))
    return clock, processor


def _scroll(page: Page, traced: MainThread, url: str, view: str) -> tuple[float, float]:
    """Wall-clock and processor time of the longest task while a page is open_text, scrolled and zoomed."""
    open_text(page, url, 512)
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
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on this machine")
    model = headscope.load(options.model)
    with (
        headscope.serve(model, port=0, browser=False, wait=False) as explorer,
        TemporaryDirectory() as folder,
        sync_playwright() as playwright,
    ):
        saved = headscope.look(model, text_of(512)).save(Path(folder) / "look.html").as_uri()
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        times = measure(page, MainThread(browser, page), explorer.url, saved, options.repeats)
        browser.close()
    clock, processor = ({name: round(ms, 1) for name, ms in of_clock.items()} for of_clock in times)
    within = {name: processor[name] < budget for name, budget in BUDGETS.items()}
    result = {
        "ms": clock,
        "processor_ms": processor,
        "budgets_ms": BUDGETS,
        "within": within,
        "load": os.getloadavg()[0],
    }
    print(json.dumps({"model": options.model, **result}))


if __name__ == "__main__":
    main()
