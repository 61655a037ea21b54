"""Take the pictures of the studio that the docs show, of runs of one's own.

    python docs/draw_studio.py RUN OTHER_RUN

RUN needs an environment, OTHER_RUN the same modalities. It needs `playwright` and Debian's
`chromium`, as the tests of the page do.
"""

from __future__ import annotations

import argparse
import io
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
    runs: list[Path] = parser.parse_args().runs
    flags = ["--disable-gpu", "--disable-background-networking", "--no-sandbox"]
    with Serving(runs, port=0) as serving, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        here = f"{serving.address}#episode=2&start=40"
        page = _open(browser, f"{here}&length=12&mask=waypoints", ANSWERED)
        _take(page, "studio-ask")
        page = _open(browser, f"{here}&length=4&mask=rcbc", ANSWERED, theme="dark")
        page.get_by_label("What if: returns").focus()
        page.keyboard.press("End")
        page.wait_for_selector(ANSWERED)
        _take(page, "studio-what-if")
        page = _open(browser, f"{here}&length=12&mask=goal&other={runs[1].name}", ANSWERED)
        _take(page, "studio-two-runs")
        page = _open(browser, f"{here}&view=act&episodes=4&target=900", ".act")
        page.get_by_role("button", name="Let it act").click()
        page.wait_for_selector("[data-testid=acting]:has-text('All episodes ended')")
        _take(page, "studio-act")
        page = _open(browser, f"{here}&view=quality", "[data-testid=ranking]")
        page.wait_for_selector("progress", state="detached")
        _take(page, "studio-quality")
        page = _open(browser, f"{here}&length=8&mask=waypoints", ANSWERED, width=390)
        _take(page, "studio-phone")
        browser.close()


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
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    file = io.BytesIO()
    shot.quantize(128, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    write_atomically(IMAGES / f"{name}.png", file.getvalue())
    print(f"{name}.png: {len(file.getvalue()) // 1000} kB")
    page.context.close()


if __name__ == "__main__":
    main()
