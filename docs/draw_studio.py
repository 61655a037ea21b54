"""Take the pictures of the studio that the docs show, of runs of one's own.

    python docs/draw_studio.py RUN OTHER_RUN

RUN was trained on the hopper, OTHER_RUN too. It needs `playwright` and Debian's
`chromium`, as the tests of the page do.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from mtm.core.atomic_write import write_atomically
from mtm.evaluation.studio.serving import Serving

IMAGES = Path(__file__).parent / "images"
PATIENCE = 600_000
ANSWERED = "section[aria-label='The answer'][aria-busy='false'] [data-testid=errors]"


def main() -> None:
    """Open each view and take its picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs=2, type=Path, help="RUN OTHER_RUN")
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=list(VIEWS))
    arguments = parser.parse_args()
    flags = ["--disable-gpu", "--disable-background-networking", "--no-sandbox"]
    with Serving(arguments.runs, port=0) as serving, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        episode = _held_out(browser, serving.address)
        here = f"{serving.address}#other={arguments.runs[1].name}&episode={episode}&start=40"
        for view in arguments.views:
            _take(VIEWS[view](browser, here), f"studio-{view}")
        browser.close()


def _ask(browser: Browser, here: str) -> Page:
    return _open(browser, f"{_alone(here)}&length=12&mask=waypoints", ANSWERED)


def _what_if(browser: Browser, here: str) -> Page:
    names = ["states[0]", "states[1]", "states[5]", "returns", "actions[0]", "actions[1]"]
    state = f"{_alone(here)}&length=8&mask=plan&features={'*'.join(names)}"
    page = _open(browser, state, ANSWERED, theme="dark")
    page.get_by_label("What if: returns").focus()
    page.keyboard.press("End")
    page.wait_for_selector(ANSWERED)
    return page


def _two_runs(browser: Browser, here: str) -> Page:
    return _open(browser, f"{here}&length=12&mask=goal", ANSWERED)


def _act(browser: Browser, here: str) -> Page:
    page = _open(browser, f"{here}&view=act&episodes=4", ".act")
    page.get_by_role("button", name="Let it act").click()
    page.wait_for_selector(".act tbody tr:nth-child(2)")  # returns arrive as it goes
    return page


def _quality(browser: Browser, here: str) -> Page:
    page = _open(browser, f"{here}&view=quality", "[data-testid=ranking]")
    page.wait_for_selector("progress", state="detached")
    return page


def _phone(browser: Browser, here: str) -> Page:
    return _open(browser, f"{_alone(here)}&length=8&mask=waypoints", ANSWERED, width=390)


VIEWS = {
    "ask": _ask,
    "what-if": _what_if,
    "two-runs": _two_runs,
    "act": _act,
    "quality": _quality,
    "phone": _phone,
}


def _alone(address: str) -> str:
    """Without the other run."""
    return re.sub("other=[^&]*&", "", address)


def _held_out(browser: Browser, address: str) -> int:
    """The longest of the first held-out episodes."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}#view=act")
    ask = "fetch('/api/episodes?run=0&data=0&offset=0&count=20&side=held-out').then(r => r.json())"
    while not (found := page.evaluate(ask))["episodes"]:
        page.wait_for_timeout(1000)  # the split is being worked out
    page.close()
    return int(max(found["episodes"], key=lambda e: e["length"])["episode"])


def _open(
    browser: Browser, address: str, until: str, *, width: int = 1280, theme: str = "light"
) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 844 if width < 600 else 800},
        color_scheme="dark" if theme == "dark" else "light",
    )
    context.add_init_script("localStorage.setItem('mtm-studio-hint', '1')")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector(until)
    return page


def _take(page: Page, name: str) -> None:
    """Save what is seen, in few colours: the files are part of the repository."""
    page.wait_for_timeout(500)  # plots are drawn after the numbers
    size = page.viewport_size or {"width": 1280, "height": 800}
    ends = page.evaluate("document.querySelector('main').lastElementChild.getBoundingClientRect()")
    size["height"] = min(size["height"], int(ends["bottom"]) + 12)
    shot = Image.open(io.BytesIO(page.screenshot(clip={"x": 0, "y": 0, **size}))).convert("RGB")
    file = io.BytesIO()
    shot.quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    write_atomically(IMAGES / f"{name}.png", file.getvalue())
    print(f"{name}.png: {len(file.getvalue()) // 1000} kB")
    page.context.close()


if __name__ == "__main__":
    main()
