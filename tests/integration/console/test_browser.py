"""The console in a real browser: what it shows, with the keyboard alone, in both schemes and languages, on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from alerting import programs
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Every text that is seen, with the contrast to what is behind it (WCAG 2.1, relative luminance).
CONTRASTS = """() => {
  const channel = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = (element) => {
    for (let node = element; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("noscript, script")) continue;
    const [one, other] = [parse(getComputedStyle(element).color), ground(element)].map(luminance);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([Math.round(100 * ratio) / 100, text.slice(0, 40)]);
  }
  return found;
}"""

IS_GONE = "([body, row]) => !body.contains(row)"
PATIENCE_SECONDS = 30.0


def cells(page: Page, column: str) -> list[str]:
    return page.locator(f"#requests tbody td[data-column={column}]").all_inner_texts()


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


def test_it_shows_everything_without_an_error_and_from_here_only(scripted_url: str, opened: Callable[..., Any]) -> None:
    watched = opened(scripted_url)
    page = watched.page
    expect(page.locator("#state-title")).to_have_text("Serving under pressure: act now")
    expect(page.locator("#advice")).to_contain_text("spec.scheduler.maxConcurrencySoft (hot) to 22")
    expect(page.locator("[data-pages=used] strong")).to_have_text("700")
    expect(page.locator("[data-pages=cached] strong")).to_have_text("120")
    expect(page.locator("[data-pages=free] strong")).to_have_text("80")
    expect(page.locator("[data-pages=swapped]")).to_contain_text("33 of 200 pages")
    bar = page.get_by_role("img", name=re.compile(r"700 of 900 pages are used \(78 %\).*queue 70 %: crossed"))
    box = bar.bounding_box()
    for name, share in (("queue", 0.7), ("preempt", 0.9)):
        line = page.locator(f".bar .line.{name}").bounding_box()
        assert abs(line["x"] + line["width"] - box["x"] - share * box["width"]) < 4, name
    expect(page.locator("[data-fact=slow]")).to_have_text("20")
    expect(page.locator("[data-fact=oldest]")).to_contain_text("42 s")
    assert len(cells(page, "id")) == 200
    expect(page.locator("#requests-count")).to_contain_text("200 of 230 sequences")
    expect(page.locator("#crossings tbody tr")).to_have_count(2)
    expect(page.locator("#crossings tbody tr").first).to_contain_text("9 s, still")
    expect(page.locator("[data-key='scheduler.maxQueuedRequests']")).to_contain_text("999default 512")
    expect(page.locator("#parts tbody")).to_contain_text("KV slab")
    expect(page.locator("[data-fact=tokens] strong")).not_to_have_text("–")
    assert watched.problems == []
    assert {address for address in watched.asked if not address.startswith(f"{scripted_url}/")} == set()


def test_with_the_keyboard_alone(scripted_url: str, opened: Callable[..., Any]) -> None:
    page = opened(scripted_url).page
    order = []
    for _ in range(4):
        page.keyboard.press("Tab")
        order.append(focused(page))
    assert order[:3] == ["skip", "language", "theme"]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid", "the focus is seen"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#state-title")).to_have_text("服务承压：请立即处理")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(page.locator("#requests thead")).to_contain_text("已生成")
    assert focused(page) == "language", "the focus stays"
    page.reload()
    expect(page.locator("#state-title")).to_have_text("服务承压：请立即处理")
    sort = page.locator("th[data-column=ageSeconds] button")
    sort.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[data-column=ageSeconds]")).to_have_attribute("aria-sort", "descending")
    assert cells(page, "id")[0] == "000000c7-0"
    page.keyboard.press("Enter")
    expect(page.locator("th[data-column=ageSeconds]")).to_have_attribute("aria-sort", "ascending")
    page.wait_for_timeout(1500)
    assert cells(page, "id")[0] == "00000000-0", "new answers keep the order"
    assert page.evaluate("document.activeElement.closest('th').dataset.column") == "ageSeconds"


def test_the_skip_link_leads_past_the_buttons(scripted_url: str, opened: Callable[..., Any]) -> None:
    page = opened(scripted_url).page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert focused(page) == "numbers"


def test_the_theme_follows_the_system_until_the_button_says_otherwise(
    scripted_url: str, opened: Callable[..., Any]
) -> None:
    page = opened(scripted_url, color_scheme="dark").page

    def ground() -> int:
        return sum(
            int(each) for each in re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
        )

    assert ground() < 200
    page.emulate_media(color_scheme="light")
    assert ground() > 600
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#theme")).to_have_text("Theme: dark")
    assert ground() < 200
    page.reload()
    assert ground() < 200
    page.locator("#theme").press("Enter")
    page.emulate_media(color_scheme="dark")
    assert ground() > 600, "light, whatever the system says"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_every_text_can_be_read(scripted_url: str, opened: Callable[..., Any], scheme: str, locale: str) -> None:
    page = opened(scripted_url, color_scheme=scheme, locale=locale).page
    found = page.evaluate(CONTRASTS)
    assert len(found) > 300
    assert [each for each in found if each[0] < 4.5] == []
    untranslated = [text for _, text in found if re.fullmatch(r"[a-z]+(\.[a-zA-Z]+)+", text)]
    settings = ("scheduler", "model", "overload", "server", "spec")
    assert [text for text in untranslated if text.split(".")[0] not in settings] == []


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_on_a_phone_nothing_is_wider_than_the_screen(
    scripted_url: str, opened: Callable[..., Any], locale: str
) -> None:
    page = opened(scripted_url, viewport={"width": 360, "height": 740}, locale=locale).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#requests-scroll").evaluate("element => element.scrollWidth > element.clientWidth"), "scrolls"


def test_a_name_of_hundreds_of_letters_leaves_the_state_on_the_screen(
    scripted_url: str, opened: Callable[..., Any]
) -> None:
    page = opened(scripted_url, viewport={"width": 360, "height": 740}).page
    height = "element => { element.textContent = 'W'.repeat(500); return element.offsetHeight; }"
    assert page.locator("#model").evaluate(height) <= 60
    expect(page.locator("#model")).to_have_text("scripted")
    assert page.locator("#model").get_attribute("title") == "scripted"


def test_an_id_can_be_selected_and_copied_while_numbers_move(scripted_url: str, opened: Callable[..., Any]) -> None:
    page = opened(scripted_url).page
    chosen = page.evaluate("""() => {
      getSelection().selectAllChildren(document.querySelector("#requests tbody td[data-column=id]"));
      return getSelection().toString();
    }""")
    before = page.locator("#engine").inner_text()
    expect(page.locator("#engine")).not_to_have_text(before)
    assert chosen
    assert page.evaluate("getSelection().toString()") == chosen
    body = page.locator("#requests tbody").element_handle()
    row = page.locator("#requests tbody tr").first.element_handle()
    page.evaluate("getSelection().removeAllRanges()")
    programs.until("the row is gone", lambda: page.evaluate(IS_GONE, [body, row]), PATIENCE_SECONDS)


def test_who_wants_no_motion_gets_none(scripted_url: str, opened: Callable[..., Any]) -> None:
    page = opened(scripted_url, reduced_motion="reduce").page
    assert page.locator(".bar .used").evaluate("element => getComputedStyle(element).transitionDuration") == "0s"


def test_names_and_roles(scripted_url: str, opened: Callable[..., Any]) -> None:
    page = opened(scripted_url).page
    expect(page.get_by_role("status")).to_have_text(re.compile("act now"))
    expect(page.get_by_role("button", name="切换到中文")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for region in page.locator("[tabindex='0']").all():
        assert region.get_attribute("aria-label") or region.get_attribute("aria-labelledby")
    assert page.locator("th:not([scope])").count() == 0
    ids = page.locator("[id]").evaluate_all("all => all.map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_it_says_when_what_it_shows_is_old_and_recovers_by_itself(
    scripted_server: Any, opened: Callable[..., Any]
) -> None:
    page = opened(scripted_server.url).page
    expect(page.locator("#stale")).to_be_hidden()
    scripted_server.kill()
    expect(page.locator("#stale")).to_contain_text("This server does not answer. What you see is old.")
    expect(page.locator("#stale-age")).to_have_text(re.compile(r"Last answer \d+ s ago; asked again in \d+ s\."))
    expect(page.get_by_role("status")).to_have_text("This server does not answer. What you see is old.")
    scripted_server.start()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.get_by_role("status")).to_have_text(re.compile("act now"))
    expect(page.locator("#pulse-text")).to_have_text("live")
