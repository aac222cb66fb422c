"""Does the explorer answer at once? Measured in headless Chromium, by the page's own clock, on a real model.

Prints one JSON line, medians of the repeats in milliseconds: from the model's answer to all thumbnails of 128 tokens;
from the pointer to the value, painted; from the press of a head's switch to the new prediction at 32 tokens; and the
longest task of the main thread while 512 tokens are opened, scrolled and zoomed. `load` is the machine's, for whoever
compares runs: other programs slow all of this down.

    python benchmarks/explorer.py [--repeats 7] [--model minilm]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from statistics import median
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

import headscope

WORD = "lamp"  # one token
BUDGETS = {"overview": 1000, "pointer": 50, "toggle": 300, "longest_task": 200}

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


def opened(page: Page, url: str, tokens: int, **state: str) -> Page:
    page.goto("about:blank")
    page.goto(f"{url}#{urlencode({'text': ' '.join([WORD] * (tokens - 2)), **state})}")
    wanted = "data-head" if "heads" in state else "data-drawn"
    page.wait_for_selector(f"html[{wanted}]", state="attached", timeout=120_000)
    return page


def measured(page: Page, url: str, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    opened(page, url, 128)
    texts = [" ".join(["keeper"] * n + [WORD] * (126 - n)) for n in range(1, repeats + 1)]
    found["overview"] = median(page.evaluate(OVERVIEW, text) for text in texts)

    opened(page, url, 128, heads="2.0")
    box = page.locator("#maps canvas").first.bounding_box()
    assert box is not None
    spots = [(box["x"] + box["width"] * 0.5 + n, box["y"] + box["height"] * 0.5 + n) for n in range(4 * repeats)]
    pointed = [page.evaluate(POINTER, spot) for spot in spots]
    assert all(value for _, value in pointed)
    found["pointer"] = median(ms for ms, _ in pointed)

    opened(page, url, 32)
    found["toggle"] = median(page.evaluate(TOGGLE, f"2.{n % 12}") for n in range(repeats))

    longest = []
    for view in ("map", "arcs"):
        opened(page, url, 512)
        page.evaluate(WATCH_TASKS)
        page.click(".thumb[aria-label='2.1']")
        page.wait_for_selector("html[data-head]", state="attached")
        page.locator(f"input[name='view'][value='{view}']").check(force=True)
        page.evaluate(SCROLL)
        longest.append(max(page.evaluate("window.__tasks"), default=0))
    found["longest_task"] = max(longest)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--model", default="minilm")
    given = parser.parse_args()
    there = shutil.which("chromium") or shutil.which("google-chrome")
    if there is None:
        raise SystemExit("no chromium on this machine")
    with headscope.serve(headscope.load(given.model), port=0, browser=False, wait=False) as explorer, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=there, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        found = measured(page, explorer.url, given.repeats)
        browser.close()
    within = all(found[name] < most for name, most in BUDGETS.items())
    rounded = {name: round(ms, 1) for name, ms in found.items()}
    print(json.dumps({"model": given.model, "ms": rounded, "budgets_ms": BUDGETS, "within": within, "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
