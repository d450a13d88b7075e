"""The report in a real browser: it loads nothing, says nothing on the console, fits its window, and shows names as text."""

from __future__ import annotations

import pytest
from browser import CHROMIUM, DRIVER, Browser
from comparison_harness import FakeJudgement
from small_scenarios import HOSTILE, hostile, two_tenants

from simkit import api
from simkit.report import write_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()),
        reason=f"needs {CHROMIUM} and {DRIVER} (Debian packages chromium and chromium-driver)",
    ),
]
WIDTHS = (400, 1400)


@pytest.fixture(scope="module")
def browser():
    found = Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report with every chart, and one in which all names are hostile and there is much to show."""
    folder = tmp_path_factory.mktemp("reports")
    overload = {
        "hysteresis": {
            "signal": "max_utilisation",
            "modes": {"high": {"enter": 0.5, "leave": 0.3}},
            "do": {"high": [{"defer": ["background"]}]},
        }
    }
    modes = {"name": "modes", "order": "fifo", "overload": overload}
    plain = api.compare(
        two_tenants(policies=["fifo", "strict_priority", "weighted_fair", modes]), replications=3, jobs=1
    )
    nasty = api.compare(hostile(name="<img src=x onerror=alert(2)>" + "x" * 150, about=HOSTILE), replications=2, jobs=1)
    nasty.expectations = [FakeJudgement(f"{HOSTILE} " + "long" * 60, False, "fifo")]
    return {"plain": write_report(plain, folder / "plain"), "hostile": write_report(nasty, folder / "hostile")}


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_page_asks_for_nothing_but_itself(browser, pages, name):
    browser.open(pages[name])
    assert [address for address in browser.requests() if not address.startswith("data:")] == [pages[name].as_uri()]


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_console_stays_empty(browser, pages, name):
    browser.open(pages[name])
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true); return 0")
    assert browser.log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_page_never_scrolls_sideways(browser, pages, name, width):
    browser.width(width)
    browser.open(pages[name])
    size = "return [window.innerWidth, document.documentElement.scrollWidth, document.body.scrollWidth]"
    assert browser.run(size) == [width, width, width]
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true); return 0")
    assert browser.run(size) == [width, width, width]


def test_a_hostile_name_stays_text(browser, pages):
    browser.open(pages["hostile"])
    assert (
        browser.run("return document.querySelectorAll('script:not([type=\"application/json\"]), img, iframe').length")
        == 0
    )
    assert browser.run("return document.querySelectorAll('svg').length") >= 5
    assert HOSTILE in browser.run("return document.body.innerText")
    assert HOSTILE in browser.run(
        "return Array.from(document.querySelectorAll('svg text')).map(one => one.textContent).join('\\n')"
    )
    assert browser.run("return document.querySelector('h1').textContent").startswith("<img src=x onerror=alert(2)>")


def test_the_data_in_the_page_can_be_read_by_a_script(browser, pages):
    browser.open(pages["plain"])
    found = browser.run("return JSON.parse(document.getElementById('simkit-results').textContent)")
    assert found["scenario"] == "two_tenants"
    assert set(found["policies"]) == {"fifo", "strict_priority", "weighted_fair", "modes"}
    figures = browser.run("return JSON.parse(document.getElementById('simkit-figures').textContent).length")
    assert figures == 4


CONTRAST = """
const luminance = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(Number).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const paper = luminance(getComputedStyle(document.body).backgroundColor);
const worst = {};
for (const selector of ['h1', '.soft', '.better', '.open', 'td', 'summary', '.choice strong', 'svg text']) {
  for (const one of document.querySelectorAll(selector)) {
    const style = getComputedStyle(one);
    const found = ratio(luminance(one.tagName === 'text' ? style.fill : style.color), paper);
    worst[selector] = Math.min(worst[selector] || 99, found);
  }
}
return [paper, worst];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(browser, pages, scheme):
    browser.media(prefers_color_scheme=scheme)
    browser.open(pages["plain"])
    paper, worst = browser.run(CONTRAST)
    browser.media()
    assert (paper > 0.9) == (scheme == "light")
    assert (paper < 0.02) == (scheme == "dark")
    assert len(worst) == 8
    for selector, ratio in worst.items():
        assert ratio >= 4.5, selector  # WCAG 2.1, 1.4.3: normal text


def test_print_is_black_on_white_and_hides_what_is_closed(browser, pages):
    browser.media(media="print", prefers_color_scheme="dark")
    browser.open(pages["plain"])
    paper, _ = browser.run(CONTRAST)
    shown = browser.run(
        "return Array.from(document.querySelectorAll('details')).filter(one => one.offsetHeight > 0).length"
    )
    browser.media()
    assert paper == pytest.approx(1.0)
    assert shown == 0


def test_charts_fit_the_window_or_scroll_within_their_own_box(browser, pages):
    for width in WIDTHS:
        browser.width(width)
        browser.open(pages["plain"])
        boxes = browser.run(
            "return Array.from(document.querySelectorAll('figure')).map(one => [one.getBoundingClientRect().right, "
            "parseFloat(getComputedStyle(one.querySelector('svg text')).fontSize) * one.querySelector('svg').getBoundingClientRect().width"
            " / one.querySelector('svg').viewBox.baseVal.width])"
        )
        assert len(boxes) >= 8
        for right, text_size in boxes:
            assert right <= width
            assert text_size >= 9  # pixels, whatever the window


def test_these_checks_notice_a_page_that_does_what_ours_must_not(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<div style='width: 3000px'>wide</div><script>console.error('oh')</script><img src='http://127.0.0.1:9/x.png'>"
    )
    browser.width(400)
    browser.open(bad)
    assert "http://127.0.0.1:9/x.png" in browser.requests()
    assert [entry for entry in browser.log("browser") if "oh" in entry["message"]]
    assert browser.run("return document.documentElement.scrollWidth") > 400
