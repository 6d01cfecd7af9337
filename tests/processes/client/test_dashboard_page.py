"""The page of `tftj dashboard` in a headless Chromium, over invented jobs."""

import re
from pathlib import Path

import pytest

from tests.support.browser import Page, chromium
from tests.support.client.dashboard_page import dashboard, follow_log
from tests.support.needed import need_or_skip

# On a bare machine Chromium is a download of 124 MB.
pytestmark = pytest.mark.slow_fault
MARKUP = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'</script>"
JOB = "#/team/digits"
NAMED = {"button", "link", "image", "searchbox", "combobox", "progressindicator", "table", "log", "heading"}


@pytest.fixture(autouse=True)
def browser() -> None:
    need_or_skip("chromium")


async def open_job(page: Page, url: str, width: int = 1280, dark: bool = False) -> None:
    await page.open(f"{url}{JOB}", width, dark=dark)
    await page.wait_for("document.querySelectorAll('figure').length === 2")


async def test_texts_of_users_and_programs_are_never_markup(tmp_path: Path) -> None:
    async with dashboard(MARKUP) as url, chromium(tmp_path) as page:
        await open_job(page, url)
        await follow_log(page)
        assert await page.value("document.querySelectorAll('img, body script, iframe').length") == 0
        shown = await page.value("document.body.innerText")
        # The message, the exception, the metrics, an event, the nodes and the lines of the logs.
        assert shown.count("<script>") >= 12 and "onerror=" in shown
        assert await page.value("document.title") == "digits Running"
        # What the program says is no address and no style either.
        assert await page.value("[...document.querySelectorAll('[style], [onclick], [onerror]')].length") == 0
        await page.value("location.hash = '#'")
        await page.wait_for("document.querySelectorAll('#jobs tbody tr').length === 4")
        assert "<script>" in await page.value("document.getElementById('jobs').innerText")
        assert await page.value("document.querySelectorAll('img, body script').length") == 0
        assert {address.startswith(url) for address in page.requested} == {True}, page.requested
        assert page.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_the_page_fits_a_telephone_and_the_colours_of_the_system(tmp_path: Path, dark: bool) -> None:
    async with dashboard("with_a_long_name_" * 8) as url, chromium(tmp_path) as page:
        await open_job(page, url, 400, dark)
        await follow_log(page)
        assert await page.value("document.documentElement.scrollWidth") <= 400
        red, green, blue = map(
            int, re.findall(r"\d+", await page.value("getComputedStyle(document.body).backgroundColor"))
        )
        assert (red + green + blue < 150) == dark
        await page.value("location.hash = '#'")
        await page.wait_for("document.querySelectorAll('#jobs tbody tr').length === 4")
        assert await page.value("document.documentElement.scrollWidth") <= 400


async def test_a_screen_reader_and_the_keyboard_find_everything(tmp_path: Path) -> None:
    async with dashboard() as url, chromium(tmp_path) as page:
        await open_job(page, url)
        await follow_log(page)
        nodes = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in await page.nodes()]
        assert [role for role, name in nodes if role in NAMED - {"table"} and not name] == []
        assert ("button", "Stop") in nodes and ("link", "All jobs") in nodes
        assert any(name.startswith("3 restarts between ") for _, name in nodes)
        assert any(name.startswith("loss: last 0.0585, least ") and name.endswith("3 restarts") for _, name in nodes)
        assert await page.value("document.activeElement.id") == "job-name"


async def test_the_list_is_filtered_and_the_end_of_the_server_is_told(tmp_path: Path) -> None:
    async with chromium(tmp_path) as page:
        async with dashboard() as url:
            await page.open(url)
            await page.wait_for("document.querySelectorAll('#jobs tbody tr').length === 4")
            assert (
                await page.value("document.getElementById('scope').textContent") == "namespace team, context production"
            )
            await page.value("document.getElementById('filter').value = 'fail'")
            await page.value("document.getElementById('filter').dispatchEvent(new Event('input'))")
            assert await page.value("document.querySelector('#jobs tbody').innerText.split('\\t')[0]") == "resnet"
            assert await page.value("document.getElementById('count').textContent") == "1 of 4 jobs"
            await page.value("document.querySelector('#jobs a').click()")
            await page.wait_for("!document.getElementById('problem').hidden || !document.getElementById('gone').hidden")
        await page.wait_for(
            "document.getElementById('problem-text').textContent.startsWith('The connection to tftj is lost')"
        )
