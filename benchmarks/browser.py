"""How long a click in the studio's page waits until its answer is drawn, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

CLICKS = 200
WARM_UP = 20
REST = 100
"""Milliseconds from an answer to the next click, as a fast hand takes them."""

NEXT_ANSWER = """() => ({
  come: new Promise((done) => {
    const watch = new PerformanceObserver(() => { watch.disconnect(); done(); });
    watch.observe({ type: "measure" });
    setTimeout(done, 5000);
  }),
})"""
"""Waits without looking: asking the page again and again whether it is done would slow it down."""


def click_times(address: str, length: int) -> Sequence[float] | None:
    """Milliseconds from each click on a token until the plots are drawn; None without a browser.

    The page itself measures them.

    Args:
        address: Of a studio.
        length: Steps of the window.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    flags = ["--disable-gpu", "--disable-background-networking", "--no-sandbox"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(f"{address}#episode=300&length={length}&mask=id")
        page.wait_for_selector(
            "section[aria-label='The answer'][aria-busy='false'] [data-testid=errors]"
        )
        for click in range(CLICKS + WARM_UP):
            cell = page.locator(f".cell[data-row='{click % 3}'][data-step='{click * 7 % length}']")
            box = cell.bounding_box()
            assert box is not None
            answer = page.evaluate_handle(NEXT_ANSWER)
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.evaluate("(answer) => answer.come", answer)
            page.wait_for_timeout(REST)
        times = page.evaluate("performance.getEntriesByName('answer').map((e) => e.duration)")
        browser.close()
    return [float(t) for t in times[-CLICKS:]]
