"""The live page in a real browser: what a player sees, with a mouse, a keyboard and a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.page.browser import page
from tests.serve.running import Served, configure, eventually, run, serving

from maxboard.client import Client
from maxboard.devstack import Stack

pytestmark = pytest.mark.servers
SEEN_MS = 5_000


def rows(found: Any) -> list[list[str]]:
    texts: list[list[str]] = found.eval_on_selector_all(
        "#rows tr[data-player]",
        "rows => rows.map(row => [row.querySelector('.medal').textContent, row.dataset.player,"
        " row.querySelector('.score').textContent])",
    )
    return texts


def until(found: Any, expression: str) -> None:
    """Wait in Python: the page's policy allows no evaluation inside it."""
    eventually(lambda: bool(found.evaluate(expression)), expression, SEEN_MS / 1000)


def wait_for_rows(found: Any, player: str) -> None:
    found.wait_for_selector(f'#rows tr[data-player="{player}"]', timeout=SEEN_MS)


def test_the_board_is_there_and_moves_when_a_run_arrives(browser: Any, served: Served) -> None:
    with page(browser, served.url) as found, Client(served.url) as client:
        wait_for_rows(found, "player-30")
        assert rows(found)[0] == ["1", "player-30", "30,000"]
        assert len(rows(found)) == 10
        client.submit(run("new", "player-new", 500_000))
        until(found, "document.querySelector('#rows tr')?.dataset.player === 'player-new'")
        assert [row[0] for row in rows(found)] == [str(rank) for rank in range(1, 11)]
        found.wait_for_selector('#moves button:text-is("player-new")', timeout=SEEN_MS)
        assert "players" in found.inner_text("#subtitle")
        until(found, "/ago is in/.test(document.querySelector('#fresh').textContent)")


def test_a_player_is_found_with_the_keyboard_alone(browser: Any, served: Served) -> None:
    with page(browser, served.url) as found:
        wait_for_rows(found, "player-30")
        found.keyboard.press("/")
        found.keyboard.type("player-07")
        found.keyboard.press("Enter")
        found.wait_for_selector('#around li[aria-current="true"]', timeout=SEEN_MS)
        assert found.inner_text("#who") == "player-07"
        assert found.locator("#around li").count() == 7
        assert "7,000" in found.inner_text("#facts")
        found.keyboard.press("Escape")
        found.keyboard.press("Escape")
        found.wait_for_selector("#person", state="hidden", timeout=SEEN_MS)
        found.evaluate("document.activeElement.blur()")
        found.keyboard.press("ArrowDown")
        found.keyboard.press("ArrowDown")
        found.keyboard.press("Enter")
        found.wait_for_selector("#person", timeout=SEEN_MS)
        assert found.inner_text("#who") == rows(found)[1][1]
        assert "player=" in found.url


def test_boards_change_with_the_arrow_keys_and_a_link_leads_back(browser: Any, served: Served) -> None:
    with page(browser, served.url) as found:
        wait_for_rows(found, "player-30")
        before = found.evaluate("document.querySelector('h1').textContent")
        found.keyboard.press("ArrowRight")
        until(found, f"document.querySelector('h1').textContent !== {before!r}")
        wait_for_rows(found, "player-30")
        found.go_back()
        until(found, f"document.querySelector('h1').textContent === {before!r}")


def test_pages_lead_down_and_back_to_the_live_top(browser: Any, served: Served) -> None:
    with page(browser, served.url) as found:
        wait_for_rows(found, "player-30")
        found.wait_for_selector("#next:enabled", timeout=SEEN_MS)
        found.click("#next")
        until(found, "document.querySelector('#rows .medal')?.textContent === '11'")
        found.click("#first")
        until(found, "document.querySelector('#rows .medal')?.textContent === '1'")


def test_a_name_is_text_and_never_markup(browser: Any, served: Served) -> None:
    name = "<img/src=x/onerror=document.title=1>"
    with Client(served.url) as client:
        client.submit(run("evil", name, 900_000))
    with page(browser, served.url) as found:
        until(found, "document.querySelector('#rows tr')?.dataset.player?.startsWith('<img')")
        assert rows(found)[0][1] == name
        assert found.locator("#rows img").count() == 0
        assert found.title() != "1"


def test_a_phone_shows_all_without_scrolling_sideways_and_rests_for_who_wants_that(
    browser: Any, served: Served
) -> None:
    options = {"color_scheme": "dark", "reduced_motion": "reduce", "has_touch": True}
    with page(browser, served.url, 360, 740, **options) as found:
        wait_for_rows(found, "player-30")
        assert found.evaluate("document.documentElement.scrollWidth") <= 360
        assert found.evaluate("document.documentElement.dataset.theme") == "dark"
        assert found.evaluate("document.getAnimations().length") == 0


CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3)
    .map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const wrong = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".face, :disabled, .hidden, .skip, noscript")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const words = element.textContent.slice(0, 20);
    if (ratio < 4.5) wrong.push(`${element.tagName}.${element.className} ${words} ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_that_readers_need(browser: Any, served: Served, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    with page(browser, f"{served.url}/#player=player-07", color_scheme=scheme, reduced_motion="reduce") as found:
        wait_for_rows(found, "player-30")
        found.wait_for_selector('#around li[aria-current="true"]', timeout=SEEN_MS)
        assert found.evaluate(CONTRAST) == []


def test_every_control_has_a_name(browser: Any, served: Served) -> None:
    with page(browser, served.url) as found:
        wait_for_rows(found, "player-30")
        nameless = found.eval_on_selector_all(
            "button, input, select, a",
            "all => all.filter(e => e.checkVisibility() && !(e.ariaLabel || e.textContent.trim() || e.labels?.length))"
            ".map(e => e.outerHTML)",
        )
        assert nameless == []
        assert found.locator("html[lang]").count() == 1


def test_a_server_with_keys_asks_for_one(browser: Any, own_stack: Stack, tmp_path: Path) -> None:
    from tests.brokers import maxboard

    file = tmp_path / "keys.json"
    config = configure(own_stack, tmp_path, f'[serve]\nkeys = "{file}"\n')
    done = maxboard(config, "keys", "add", "viewer", "--scope", "read", "--scope", "submit")
    assert done.returncode == 0, done.stderr
    key = done.stdout.decode().strip()
    with serving(config, "--workers", "1") as served, Client(served.url, key) as client:
        eventually(lambda: client.boards().boards[0].state == "live", "live")
        client.submit(run(1, "a", 5))
        context = browser.new_context()
        found = context.new_page()
        found.goto(served.url)
        found.wait_for_selector("#gate", timeout=SEEN_MS)
        found.fill("#key", key)
        found.press("#key", "Enter")
        wait_for_rows(found, "a")
        context.close()
