"""How long a click in the studio's page waits until its answer is drawn, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

CLICKS = 200
WARM_UP = 20


def click_times(address: str, length: int) -> Sequence[float] | None:
    """Milliseconds from each click on a token until the plots are drawn; None without a browser.

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
        answered = "section[aria-label='The answer'][aria-busy='false'] [data-testid=errors]"
        page.wait_for_selector(answered)
        for click in range(CLICKS + WARM_UP):
            page.click(f".cell[data-row='{click % 3}'][data-step='{click * 7 % length}']")
            page.wait_for_selector(answered)
        page.wait_for_timeout(100)
        times = page.evaluate("performance.getEntriesByName('answer').map((e) => e.duration)")
        browser.close()
    return [float(t) for t in times[-CLICKS:]]
