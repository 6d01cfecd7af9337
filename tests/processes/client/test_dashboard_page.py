"""The page of `tftj dashboard` in a headless Chromium, over invented jobs."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.browser import Page, chromium
from tests.support.client.dashboard_page import dashboard, follow_log, served
from tests.support.client.tunnel import tunnelled
from tests.support.needed import need_or_skip
from tftraining_client.commands.dashboard.feeds import Feeds

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


async def open_list(page: Page, url: str, jobs: int, width: int = 1280, dark: bool = False) -> None:
    await page.open("about:blank")
    await page.open(url, width, dark=dark)
    await page.wait_for(f"{ROWS}.length === {jobs}")


# Labels that are wider than others: small, negative, and of many steps.
WIDE_LABELS = "drawCurve('loss', [[123456, -0.001234], [123456789, -123456.789]], [], 'step')"


@pytest.mark.parametrize("width", [420, 1000, 1300])
async def test_nothing_is_cut_overlaps_or_breaks_in_the_colours_of_the_system(tmp_path: Path, width: int) -> None:
    async with dashboard("_with_a_long_name" * 8, more=100) as url, chromium(tmp_path) as page:
        for dark in (False, True):
            await open_list(page, url, 104, width, dark)
            assert await page.layout_faults() == []
            await page.open("about:blank")
            await open_job(page, url, width, dark)
            await follow_log(page)
            await page.value(f"document.getElementById('curves').append({WIDE_LABELS})")
            await page.value("showProblem({ problem: 'a_long_word_'.repeat(40), broken: true })")
            assert await page.layout_faults() == []
            red, green, blue = map(
                int, re.findall(r"\d+", await page.value("getComputedStyle(document.body).backgroundColor"))
            )
            assert (red + green + blue < 150) == dark


async def test_letters_apart_texts_on_one_another_and_what_is_cut_are_found(tmp_path: Path) -> None:
    async with dashboard() as url, chromium(tmp_path) as page:
        await open_list(page, url, 4, 1300)
        assert await page.layout_faults() == []
        style = "document.getElementById('jobs').rows[1].cells[0].style"
        await page.value(f"{style}.cssText = 'display: block; min-width: 0; width: 2rem'")
        assert "broken: resnet" in await page.layout_faults()
        await page.value(f"{style}.cssText = ''")
        apart = await page.value("document.querySelector('#jobs tbody td:nth-child(2)').offsetLeft")
        await page.value(f"{style}.cssText = 'position: relative; left: {apart}px'")
        assert any(fault.startswith("overlap: resnet and ") for fault in await page.layout_faults())
        await page.value(f"{style}.cssText = 'position: relative; left: -3rem'")
        assert "outside: resnet" in await page.layout_faults()


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
        # On a telephone a table has no look of one, and is one.
        await open_list(page, url, 4, 420)
        roles = [node["role"]["value"] for node in await page.nodes()]
        assert (roles.count("row"), roles.count("columnheader"), roles.count("combobox")) == (5, 7, 2)


NAMES = "[...document.querySelectorAll('#jobs tbody a')].map((each) => each.text)"
ROWS = "document.querySelectorAll('#jobs tbody tr')"
PROBLEM = "document.getElementById('problem')"


async def choose(page: Page, control: str, value: str) -> None:
    await page.value(f"document.getElementById('{control}').value = '{value}'")
    await page.value(f"document.getElementById('{control}').dispatchEvent(new Event('input'))")


async def test_of_a_hundred_jobs_the_failed_are_the_first_and_each_is_found(tmp_path: Path) -> None:
    async with served(more=100) as (url, feeds), chromium(tmp_path) as page:
        await open_list(page, url, 104)
        phases = await page.value(f"[...{ROWS}].map((each) => each.cells[1].textContent)")
        assert phases[:11] == ["Failed"] * 11 and phases[11] == "Restarting" and phases[-1] == "Succeeded"
        await choose(page, "order", "restarts")
        assert (await page.value(NAMES))[0].endswith("-057")
        await choose(page, "order", "progress")
        assert (await page.value(NAMES))[0].endswith("-000")
        await choose(page, "order", "name")
        assert (await page.value(NAMES))[0] == "digits"
        assert await page.value("document.getElementById('phase').options[1].text") == "Failed (11)"
        await choose(page, "phase", "Failed")
        assert await page.value("document.getElementById('count').textContent") == "11 of 104 jobs"
        await choose(page, "filter", "resn")
        assert await page.value(NAMES) == ["resnet"]
        # The keyboard stays where it is when the row is drawn anew.
        await page.value("document.querySelector('#jobs tbody a').focus()")
        feeds.jobs.rows["team/resnet"] = {**feeds.jobs.rows["team/resnet"], "ready": "1/8"}
        feeds.jobs._wake()
        await page.wait_for(f"{ROWS}[0].innerText.includes('1/8')")
        assert await page.value("document.activeElement.text") == "resnet"


async def test_a_cut_tunnel_is_told_and_a_job_that_was_deleted_meanwhile_goes(tmp_path: Path) -> None:
    async with served() as (url, feeds), tunnelled(url) as (address, tunnel), chromium(tmp_path) as page:
        await open_list(page, address, 4)
        tunnel.flowing.clear()
        tunnel.cut()
        await page.wait_for(f"{PROBLEM}.innerText.startsWith('The connection to tftj is lost')")
        assert "what is shown may be old" in await page.value(f"{PROBLEM}.innerText")
        del feeds.jobs.rows["team/mnist"]
        tunnel.flowing.set()
        await page.wait_for(f"{ROWS}.length === 3 && {PROBLEM}.hidden")


async def test_a_tunnel_that_says_nothing_is_told(tmp_path: Path) -> None:
    async with dashboard() as url, tunnelled(url) as (address, tunnel), chromium(tmp_path) as page:
        await page.open(f"{address}{JOB}")
        await page.wait_for("document.querySelectorAll('figure').length === 2")
        await follow_log(page)
        tunnel.flowing.clear()
        await page.value("silence = -1; checkSilence(); silence = 40000")
        assert (await page.value(f"{PROBLEM}.innerText")).startswith("tftj does not answer")
        assert await page.value("document.getElementById('log-state').textContent") == "The connection to tftj is lost."
        tunnel.flowing.set()
        await page.wait_for(f"{PROBLEM}.hidden")


def streams(feeds: Feeds) -> int:
    return feeds.jobs.subscribers


async def test_hidden_pages_leave_the_browsers_six_connections_to_the_one_that_is_seen(tmp_path: Path) -> None:
    async with served() as (url, feeds), chromium(tmp_path) as page:
        for _ in range(6):
            await page.command("Target.createTarget", url=url, background=True)
        await open_list(page, url, 4)
        assert streams(feeds) == 1


async def test_a_page_that_was_hidden_goes_on_where_it_was(tmp_path: Path) -> None:
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true }); "
    change = "document.dispatchEvent(new Event('visibilitychange'))"
    async with served() as (url, feeds), chromium(tmp_path) as page:
        await open_job(page, url)
        await follow_log(page)
        await page.value(hide % "true" + change)
        async with asyncio.timeout(10):
            while streams(feeds):  # noqa: ASYNC110  the server has no event for it
                await asyncio.sleep(0.05)
        await page.value("document.getElementById('log').replaceChildren()")
        await page.value(hide % "false" + change)
        await page.wait_for("document.querySelectorAll('#log .replica').length >= 6")
        assert streams(feeds) == 1


@pytest.mark.parametrize("address", ["#/team/%1b[2J", "#/../..", "#/team/..", "#/team/%zz", "#/team/a%2f..%2fb"])
async def test_an_address_that_names_no_job_leads_to_the_list(tmp_path: Path, address: str) -> None:
    async with dashboard() as url, chromium(tmp_path) as page:
        await open_list(page, f"{url}{address}", 4)
        assert page.complaints == [] and await page.value("document.getElementById('job').hidden")


async def test_what_the_server_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    async with dashboard() as url, chromium(tmp_path) as page:
        await page.open(f"{url}#/other/job")
        await page.wait_for(f"{PROBLEM}.innerText.startsWith('this dashboard is about namespace team')")


async def test_the_list_is_filtered_and_the_end_of_the_server_is_told(tmp_path: Path) -> None:
    async with chromium(tmp_path) as page:
        async with dashboard() as url:
            await page.open(url)
            await page.wait_for("document.querySelectorAll('#jobs tbody tr').length === 4")
            assert (
                await page.value("document.getElementById('scope').textContent") == "namespace team, context production"
            )
            await choose(page, "filter", "fail")
            assert await page.value("document.querySelector('#jobs tbody').innerText.split('\\t')[0]") == "resnet"
            assert await page.value("document.getElementById('count').textContent") == "1 of 4 jobs"
            await page.value("document.querySelector('#jobs a').click()")
            await page.wait_for("!document.getElementById('problem').hidden || !document.getElementById('gone').hidden")
        await page.wait_for(
            "document.getElementById('problem-text').textContent.startsWith('The connection to tftj is lost')"
        )
