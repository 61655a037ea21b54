"""The studio's page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import mtm
from mtm.core.config import ModelConfig, TrainConfig
from mtm.inference.run_data import episode_shown_to
from mtm.masks.capabilities import NAMED_MASKS
from mtm.training.train import train

pytest.importorskip("starlette", reason="the extra `studio` is not installed")
pytest.importorskip("uvicorn", reason="the extra `studio` is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium: `apt-get install chromium`", allow_module_level=True)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from mtm.evaluation.studio.serving import Serving

EVIL = "<img src=x onerror=alert(1)>"
"""A name that a folder can have."""

PATIENCE = 60_000
"""Milliseconds; the machine may be busy."""

BUSY = "section[aria-label='The answer'][aria-busy='false']"


@pytest.fixture(scope="module")
def evil_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second run on the same data, in a folder with an evil name."""
    path = tmp_path_factory.mktemp("studio") / EVIL
    model = ModelConfig(width=16, encoder_layers=1, heads=2, dropout=0.0)
    config = TrainConfig(steps=2, batch_size=8, validation_segments=8, seed=1, model=model)
    train("builtin:hopper", config, path, silent=True)
    return path


@pytest.fixture(scope="module")
def studio(hopper_run: Path, evil_run: Path, gears_run: Path) -> Iterator[Serving]:
    from mtm.evaluation.studio.serving import Serving

    with Serving([hopper_run, evil_run, gears_run], port=0) as serving:
        yield serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    flags = ["--disable-gpu", "--disable-background-networking", "--no-sandbox"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


class Desk:
    """A page of the studio, and what a test does with it."""

    def __init__(self, browser: Browser, address: str, width: int = 1280) -> None:
        self.address = address
        self.context = browser.new_context(
            viewport={"width": width, "height": 860}, accept_downloads=True
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)  # a breach of the security policy, among others

    def open(self, state: str = "", wait: bool = True) -> Desk:
        self.page.goto(f"{self.address}#{state}")
        if wait:
            self.answered()
        return self

    def answered(self) -> None:
        self.page.wait_for_selector(BUSY)

    def cell(self, modality: int, step: int) -> Locator:
        return self.page.locator(f".cell[data-row='{modality}'][data-step='{step}']")

    def is_shown(self, modality: int, step: int) -> bool:
        return self.cell(modality, step).get_attribute("aria-selected") == "true"

    def grid(self) -> list[str | None]:
        return [c.get_attribute("aria-label") for c in self.page.locator(".grid .cell").all()]

    def errors(self, column: int = 0) -> dict[str, float]:
        """Modality -> the number in a column of the table of errors."""
        found = {}
        for row in self.page.locator("[data-testid=errors] tbody tr").all():
            cell = row.locator("td").nth(column)
            value = cell.get_attribute("data-value")
            found[str(row.get_attribute("data-modality"))] = float(value or "nan")
        return found

    def table(self) -> dict[tuple[str, str, int], float]:
        """(Modality, feature, step) -> prediction, of the CSV that the page saves."""
        with self.page.expect_download() as saved:
            self.page.get_by_role("button", name="CSV").click()
        text = Path(saved.value.path()).read_text()
        return {
            (row["modality"], row["feature"], int(row["step"])): float(row["prediction"])
            for row in csv.DictReader(io.StringIO(text))
        }

    def copied(self, button: str) -> str:
        """What a button copies."""
        self.page.get_by_role("button", name=button).click()
        self.page.get_by_role("status").filter(has_text="copied").wait_for()
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def python(self) -> dict[str, Any]:
        """What the Python that the page copies gives."""
        text = self.copied("Copy Python")
        assert text == self.page.locator("pre.python").text_content()
        names: dict[str, Any] = {}
        exec(text, names)
        answer: dict[str, Any] = names["answer"]
        return answer


@pytest.fixture
def desk(browser: Browser, studio: Serving) -> Iterator[Desk]:
    opened = Desk(browser, studio.address)
    yield opened
    opened.context.close()
    assert opened.faults == []


def flat(answer: dict[str, Any], start: int) -> dict[tuple[str, str, int], float]:
    """As `Desk.table`, of arrays."""
    found = {}
    for name, values in answer.items():
        rows = np.asarray(values).reshape(len(values), -1)
        for (step, feature), value in np.ndenumerate(rows):
            label = name if rows.shape[1] == 1 else f"{name}[{feature}]"
            found[name, label, start + step] = float(value)
    return found


def test_a_mask_gives_the_numbers_of_predict(desk: Desk, hopper_run: Path) -> None:
    desk.open("run=hopper&episode=3&start=4&length=8")
    desk.page.get_by_role("button", name="Mask goal:").click()
    desk.page.wait_for_selector("button[aria-label^='Mask goal'][aria-pressed=true]")
    desk.answered()
    assert "the way" in (desk.page.get_by_test_id("use").text_content() or "")

    run = mtm.load_run(hopper_run)
    episode = episode_shown_to(run, mtm.load_dataset("builtin:hopper"), 3).episode(0)
    window = {m.name: episode[m.name][4:12] for m in run.modalities}
    visible = NAMED_MASKS["goal"].question(run.modalities, 8).visible
    present = {m.name: visible[:, i] for i, m in enumerate(run.modalities) if visible[:, i].any()}
    given = {name: window[name] for name in present}
    answer = mtm.predict(run, given, list(window), present=present)

    page = desk.table()
    expected = flat(answer, 4)
    assert page.keys() == expected.keys()
    assert page == pytest.approx(expected, rel=1e-5, abs=1e-6)
    hidden = ~visible[:, run.modalities.place("states")]
    std = run.normalizer.statistics["states"].std
    error = (((answer["states"] - window["states"]) / std)[hidden] ** 2).mean()
    assert desk.errors()["states"] == pytest.approx(error, rel=1e-4)
    assert flat(desk.python(), 4) == pytest.approx(page, rel=1e-5, abs=1e-6)
    with desk.page.expect_download() as saved:
        desk.page.get_by_role("button", name="PNG").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")


def test_clicks_drags_and_keys_show_and_hide(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&mask=id&length=8")
    assert desk.is_shown(0, 2)
    desk.cell(0, 2).click()
    assert not desk.is_shown(0, 2)
    desk.answered()
    before = desk.errors()["states"]

    desk.page.keyboard.press("ArrowRight")
    desk.page.keyboard.press("Space")
    desk.page.keyboard.press("Shift+ArrowRight")  # paints what it left
    desk.answered()
    assert [desk.is_shown(0, step) for step in range(1, 6)] == [True, False, False, False, True]
    assert desk.errors()["states"] != before
    desk.page.keyboard.press("ArrowDown")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert desk.page.evaluate(focused).startswith("returns, step 4")

    first, last = desk.cell(2, 0).bounding_box(), desk.cell(2, 6).bounding_box()
    assert first is not None
    assert last is not None
    desk.page.mouse.move(first["x"] + 5, first["y"] + 5)
    desk.page.mouse.down()
    desk.page.mouse.move(last["x"] + 5, last["y"] + 5, steps=2)  # faster than the cells
    desk.page.mouse.up()
    assert [desk.is_shown(2, step) for step in range(8)] == [True] * 7 + [False]
    desk.answered()
    assert "own mask" in (desk.page.get_by_test_id("use").text_content() or "")


def test_scrubbing_and_browsing(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&length=4&mask=id")
    window = desk.page.get_by_role("slider", name="Window within the episode")
    window.press("ArrowRight")
    window.press("PageUp")
    desk.answered()
    assert window.get_attribute("aria-valuenow") == "5"
    assert desk.cell(0, 0).get_attribute("aria-label") == "states, step 5: visible"
    window.press("End")
    desk.answered()
    assert window.get_attribute("aria-valuenow") == window.get_attribute("aria-valuemax")

    desk.page.get_by_text("browse the episodes").click()
    desk.page.locator("details select").select_option("held-out")
    desk.page.wait_for_selector("details tbody tr:first-child .badge.held-out")
    assert desk.page.locator("details tbody .badge.training").count() == 0
    first = desk.page.locator("details tbody button").first
    number = first.text_content()
    first.click()
    desk.answered()
    assert desk.page.locator("#episode").input_value() == number
    desk.page.wait_for_selector("summary .badge.held-out")


def test_the_timeline_s_label_does_not_lie_on_its_curve(desk: Desk) -> None:
    desk.open("run=gears&episode=0&length=4")
    label = desk.page.get_by_text("hatched: something is absent").bounding_box()
    strip = desk.page.locator(".timeline canvas").bounding_box()
    assert label is not None
    assert strip is not None
    assert label["y"] + label["height"] <= strip["y"]
    desk.page.get_by_label("Run", exact=True).select_option(index=0)
    desk.page.get_by_text(re.compile(r"^rewards, .* to .*")).wait_for()


def test_every_mask_that_is_offered_answers(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&length=8")
    buttons = desk.page.locator(".masks button:not([disabled])")
    offered = [name for name in buttons.all_text_contents() if name not in ("all", "none")]
    assert {"fd", "id", "bc", "rcbc", "goal", "waypoints", "past", "random draw"} <= set(offered)
    for name in offered:
        desk.page.locator(".masks").get_by_role("button").filter(
            has_text=re.compile(f"^{name}$")
        ).click()
        desk.answered()
        assert desk.errors(), name
    desk.page.get_by_role("button", name="none").click()
    assert "Show at least one token" in (desk.page.get_by_role("alert").text_content() or "")


def test_what_if(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&mask=rcbc&length=4")
    recorded = desk.table()
    slider = desk.page.get_by_label("What if: returns")
    slider.focus()
    desk.page.keyboard.press("End")
    desk.answered()
    asked = desk.table()
    action = ("actions", "actions[0]", 3)
    assert asked["returns", "returns", 0] == pytest.approx(float(slider.input_value()))
    assert asked[action] != recorded[action]
    assert flat(desk.python(), 0) == pytest.approx(asked, rel=1e-5, abs=1e-6)
    desk.page.get_by_role("button", name="Undo").click()
    desk.answered()
    assert desk.table() == recorded

    desk.cell(0, 3).click()  # hides it
    desk.cell(0, 3).click()
    desk.page.get_by_label("states[1] at step 3").fill("0.5")
    desk.page.keyboard.press("Tab")
    desk.answered()
    typed = desk.table()
    assert typed["states", "states[1]", 3] == 0.5
    assert typed[action] != recorded[action]


def test_a_visible_value_is_dragged_in_its_plot(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&mask=fd&length=4")
    before = desk.table()
    figure = desk.page.locator("figure[data-feature='states[0]'] .u-over")
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] * 0.4 / 3.8  # step 0, with the room at the side
    for y in np.arange(box["y"] + 2, box["y"] + box["height"], 5):
        desk.page.mouse.move(x, float(y))
        if desk.page.locator("figure[data-feature='states[0]'] .u-over.grab").count():
            break
    else:
        pytest.fail("no visible value is where it should be drawn")
    desk.page.mouse.down()
    desk.page.mouse.move(x, box["y"] + box["height"] / 2, steps=3)
    desk.page.mouse.move(x, box["y"] + 10, steps=3)
    desk.page.mouse.up()
    desk.answered()
    after = desk.table()
    assert after["states", "states[0]", 0] != before["states", "states[0]", 0]
    assert after["states", "states[0]", 3] != before["states", "states[0]", 3]
    assert "changed" in str(desk.cell(0, 0).get_attribute("aria-label"))


def test_the_address_restores_everything(desk: Desk, browser: Browser) -> None:
    desk.open("run=hopper&episode=3&start=2&length=10&mask=waypoints&baselines=1")
    desk.cell(1, 4).click()
    desk.page.get_by_label("returns at step 6").fill("1.25")
    desk.page.keyboard.press("Tab")
    desk.page.get_by_text("Features: ").click()
    desk.page.get_by_label("states[2]", exact=True).uncheck()
    desk.answered()
    other = Desk(browser, desk.address)
    other.open(desk.copied("Copy address").partition("#")[2])
    assert other.grid() == desk.grid()
    assert other.errors() == desk.errors()
    assert other.table() == desk.table()
    drawn = [d.page.locator("figure.plot").count() for d in (desk, other)]
    assert drawn == [14, 14]
    assert other.page.get_by_label("draw interpolation").is_checked()
    other.context.close()
    assert other.faults == []


def test_two_runs_side_by_side(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&mask=fd&length=4")
    alone = desk.errors()
    desk.page.get_by_label("Run beside it").select_option(index=1)
    desk.answered()
    assert desk.errors(0) == alone
    beside = desk.errors(1)
    assert beside != alone
    desk.page.get_by_label("Run", exact=True).select_option(index=1)
    desk.answered()
    assert desk.errors(0) == beside


def test_names_are_text_not_markup(desk: Desk, browser: Browser, studio: Serving) -> None:
    desk.open()
    desk.page.get_by_label("Run", exact=True).select_option(index=1)
    desk.answered()
    assert EVIL in (desk.page.locator("select").first.text_content() or "")
    assert desk.page.locator("img[src='x']").count() == 0

    faked = Desk(browser, studio.address)  # mtm itself lets no modality have such a name

    def fake(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"states"', json.dumps(EVIL)))

    def unfake(route: Any) -> None:
        body = (route.request.post_data or "").replace(json.dumps(EVIL), '"states"')
        answer = route.fetch(post_data=body)
        route.fulfill(response=answer, body=answer.text().replace('"states"', json.dumps(EVIL)))

    faked.page.route("**/api/studio", fake)
    faked.page.route("**/api/window?*", fake)
    for path in ("mask", "answer"):
        faked.page.route(f"**/api/{path}", unfake)
    faked.open("mask=fd")
    assert faked.page.locator(".who").nth(1).text_content() == EVIL
    assert EVIL in faked.errors()
    assert faked.page.locator("img[src='x']").count() == 0
    faked.context.close()
    assert faked.faults == []


def test_the_newest_question_wins(desk: Desk) -> None:
    desk.open("run=hopper&episode=3&mask=id&length=8")
    held: list[Any] = []

    def slow(route: Any) -> None:
        if not held:
            held.append(route)  # the first is never answered
        else:
            route.continue_()

    desk.page.route("**/api/answer", slow)
    desk.cell(0, 2).click()
    desk.page.wait_for_timeout(50)
    desk.cell(0, 3).click()
    desk.answered()
    assert len(held) == 1
    assert (
        desk.page.get_by_test_id("errors")
        .locator("tr", has_text="states")
        .locator("td")
        .last.text_content()
        == "2"
    )


def test_a_server_that_ends_is_told_and_waited_for(browser: Browser, hopper_run: Path) -> None:
    from mtm.evaluation.studio.serving import Serving

    with Serving([hopper_run], port=0) as serving:
        desk = Desk(browser, serving.address).open("episode=3&mask=id&length=8")
        port = serving.port
    desk.cell(0, 2).click()
    told = desk.page.get_by_test_id("gone")
    told.wait_for()
    assert f"--port {port}" in (told.text_content() or "")
    with Serving([hopper_run], port=port):
        told.wait_for(state="detached")
        desk.answered()
        assert not desk.is_shown(0, 2)
        assert desk.errors()["states"] > 0
        desk.context.close()
    assert desk.faults == []


def test_classes_gaps_and_names_of_ones_own(desk: Desk, gears_run: Path) -> None:
    desk.open("run=gears&episode=0&length=16&mask=waypoints")
    gap = desk.cell(2, 12)  # throttle is lost at steps 10 to 13
    assert gap.get_attribute("aria-disabled") == "true"
    gap.click(force=True)
    assert not desk.is_shown(2, 12)
    gap.press("Space")
    assert not desk.is_shown(2, 12)
    gear = desk.page.locator("figure[data-feature='gear']")
    assert "% wrong" in (gear.text_content() or "")
    assert desk.page.locator("figure.plot b").all_text_contents() == [
        *("position", "speed", "gear", "throttle"),
    ]
    page = desk.table()
    answer = desk.python()
    assert [page["gear", "gear", step] for step in range(16)] == list(answer["gear"])
    desk.page.get_by_role("button", name="Act", exact=True).click()
    assert "To act, a run needs" in (desk.page.locator(".notice").last.text_content() or "")


def test_worst_steps_are_found_and_looked_at(desk: Desk) -> None:
    desk.open("run=gears&view=quality", wait=False)
    worst = desk.page.get_by_test_id("ranking").locator(".worst button").first
    worst.wait_for()
    label = str(worst.get_attribute("aria-label"))
    found = re.match(r"Look at episode (\d+), (\w+) at step (\d+), surprise", label)
    assert found is not None
    worst.click()
    desk.answered()
    episode, modality, step = found.groups()
    assert desk.page.locator("#episode").input_value() == episode
    hidden = [label for label in desk.grid() if label is not None and ": hidden" in label]
    assert hidden == [f"{modality}, step {step}: hidden"]


def test_acting_reports_each_episode(desk: Desk) -> None:
    pytest.importorskip("gymnasium", reason="acting needs the extra `sim`")
    pytest.importorskip("mujoco", reason="acting needs the extra `sim`")
    desk.open("run=hopper&view=act&episodes=2&policy=rcbc&frames=0", wait=False)
    desk.page.get_by_role("button", name="Let it act").click()
    desk.page.wait_for_selector("[data-testid=acting]:has-text('All episodes ended: 2 of 2')")
    seeds = desk.page.locator(".act tbody td:first-child").all_text_contents()
    assert sorted(seeds) == ["0", "1"]
    told = desk.page.get_by_test_id("acting").text_content() or ""
    assert re.search(r"asked for [\d,.]+, earned [\d,.-]+", told)


def test_acting_is_watched_and_stopped(desk: Desk) -> None:
    pytest.importorskip("gymnasium", reason="acting needs the extra `sim`")
    pytest.importorskip("mujoco", reason="acting needs the extra `sim`")
    desk.open("run=hopper&view=act&episodes=50", wait=False)
    desk.page.get_by_role("button", name="Let it act").click()
    seen = desk.page.locator("img.frame, .notice:has-text('No pictures: ')")
    seen.wait_for()
    desk.page.get_by_role("button", name="Stop").click()
    desk.page.wait_for_selector("[data-testid=acting]:has-text('Stopped')")
    assert desk.page.get_by_role("button", name="Let it act").is_enabled()


@pytest.mark.parametrize("away", ["view", "reload"])
def test_acting_is_found_again(desk: Desk, away: str) -> None:
    pytest.importorskip("gymnasium", reason="acting needs the extra `sim`")
    pytest.importorskip("mujoco", reason="acting needs the extra `sim`")
    desk.open("run=hopper&view=act&episodes=100&policy=plan&frames=0", wait=False)
    desk.page.get_by_role("button", name="Let it act").click()
    desk.page.get_by_test_id("acting").wait_for()
    if away == "view":
        desk.page.get_by_role("button", name="Ask", exact=True).click()
        desk.answered()
        desk.page.get_by_role("button", name="Act", exact=True).click()
    else:
        desk.page.reload()
    desk.page.wait_for_selector("[data-testid=acting]:has-text('of 100 episodes by plan')")
    desk.page.get_by_role("button", name="Stop").click()
    desk.page.wait_for_selector("[data-testid=acting]:has-text('Stopped')")
    desk.page.get_by_label("Run", exact=True).select_option(index=1)
    desk.page.wait_for_selector("h2:has-text('<img')")
    assert desk.page.get_by_test_id("acting").count() == 0  # that was another run


def test_a_run_that_cannot_act_as_it_is_says_how_to_let_it(
    browser: Browser, module_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtm.evaluation.studio.serving import Serving

    monkeypatch.delitem(sys.modules, "point_mass_environment", raising=False)
    with Serving([module_run], port=0) as serving:
        desk = Desk(browser, serving.address).open("view=act", wait=False)
        told = desk.page.locator("section[aria-label=Act] .notice").text_content() or ""
        desk.context.close()
    assert f"mtm studio {module_run} --env point_mass_environment:PointMass-v0" in told
    assert desk.faults == []


@pytest.mark.parametrize("view", ["ask", "act", "quality"])
@pytest.mark.parametrize("run", ["hopper", "gears"])
def test_a_narrow_screen_is_not_scrolled_sideways(
    browser: Browser, studio: Serving, run: str, view: str
) -> None:
    desk = Desk(browser, studio.address, width=390)
    desk.open(f"run={run}&view={view}&length=24", wait=view == "ask")
    if view != "ask":
        desk.page.wait_for_selector(".act, [data-testid=ranking] tbody, .notice:not(.hint)")
    wide = desk.page.evaluate("document.documentElement.scrollWidth")
    desk.context.close()
    assert wide <= 390
    assert desk.faults == []


def test_all_controls_have_names(desk: Desk) -> None:
    """Once in each view, with everything unfolded."""
    nameless = """() => {
      for (const d of document.querySelectorAll("details")) d.open = true;
      const text = (e) => (e.getAttribute("aria-label") || e.innerText || e.labels?.[0]?.innerText
        || "").trim();
      return [...document.querySelectorAll("button, input, select, [role=slider], [role=img]")]
        .filter((e) => !text(e)).map((e) => e.outerHTML);
    }"""
    for view in ("ask", "act", "quality"):
        desk.open(f"run=hopper&view={view}", wait=view == "ask")
        desk.page.wait_for_selector("main section.panel")
        assert desk.page.evaluate(nameless) == []
    assert desk.page.locator("html").get_attribute("data-theme") == "light"
    desk.page.get_by_role("button", name="Switch to dark colours").click()
    assert desk.page.locator("html").get_attribute("data-theme") == "dark"


def test_the_first_visit_is_explained_once(desk: Desk) -> None:
    desk.open("run=hopper")
    hint = desk.page.get_by_label("How it works")
    assert len(re.findall(r"[.?]", hint.locator("p").text_content() or "")) == 3
    hint.get_by_role("button").click()
    desk.page.reload()
    desk.answered()
    assert hint.count() == 0


def test_from_click_to_answer(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Told here, judged by `make bench`: a machine that runs tests is not quiet."""
    desk.open("run=hopper&episode=3&mask=id&length=4")
    for _ in range(20):
        desk.cell(0, 1).click()
        desk.answered()
    time.sleep(0.1)
    took = desk.page.evaluate("performance.getEntriesByName('answer').map((e) => e.duration)")
    assert len(took) >= 20
    with capsys.disabled():
        print(
            f"\nfrom click to answer: {np.median(took):.0f} ms, p95 {np.percentile(took, 95):.0f}"
        )
