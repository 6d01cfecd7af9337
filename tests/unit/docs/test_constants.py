"""Numbers in sentences of the pages that the code holds as constants, and the settings that a running job takes."""

import pytest

from tests.support.repository import REPOSITORY
from tftraining.launch.config.settings_and_defaults import UPDATABLE, key_of
from tftraining.launch.failure.backoff import LONGEST_BACKOFF
from tftraining_api.kube.api import WATCH_SILENCE
from tftraining_operator import __main__ as program
from tftraining_operator import runtime
from tftraining_operator.cluster import children, lease, reflector, work_queue
from tftraining_operator.plan import avoided_nodes, failing_pass, status_writes, workertemp_cleanup

WORDS, ORDINALS = {3: "three", 10: "ten"}, {3: "third"}
SILENCE = int(WATCH_SILENCE)
SENTENCES = [
    ("behaviour.md", f"0, 1, 2, 4 … {LONGEST_BACKOFF:.0f} s"),
    ("launcher.md", f"1, 2, 4 … {LONGEST_BACKOFF:.0f} s"),
    ("scale.md", f"up to {runtime.WORKERS} passes run at a time"),
    ("scale.md", f"share {children.CONCURRENCY} writes at a time equally, with {children.LEAST_CONCURRENCY} at least"),
    ("scale.md", f"{status_writes.PROGRESS_WRITES} writes a second for all progress together"),
    ("scale.md", f"{work_queue.FIRST_PAUSE:g}, 1, 2 … {work_queue.LONGEST_PAUSE:g} s"),
    ("scale.md", f"after the {ORDINALS[failing_pass.FIRST]} the job has the condition `ReconcileError`"),
    ("scale.md", f"a silent watch is opened again after {SILENCE} s"),
    ("scale.md", f"`/healthz` fails after {SILENCE + int(reflector.LONGEST_PAUSE)} s"),
    ("scale.md", f"the limit of {program.MOST_FILES:,}"),
    ("scale.md", f"renews it every {lease.RETRY_PERIOD:.0f}\nseconds"),
    (
        "status.md",
        f"after {WORDS[workertemp_cleanup.TRIES]} tries, or {WORDS[workertemp_cleanup.LIMIT.seconds // 60]} minutes",
    ),
    ("status.md", f"the nodes that new pods avoid, at most {avoided_nodes.MOST}"),
    ("status.md", f"({avoided_nodes.HOLDS.days * 24} hours from the last suspicion)"),
    (
        "scale.md",
        f"{lease.LEASE_SECONDS} seconds after the leader's last renewal, which is at most {lease.RETRY_PERIOD:.0f}",
    ),
]


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_a_page_has_the_number_of_the_code(page: str, sentence: str) -> None:
    assert sentence in (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def test_the_page_names_every_setting_that_a_running_job_takes() -> None:
    text = (REPOSITORY / "docs" / "disruptions.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n### Changing the number of workers\n")
    section, _, _ = section.partition("\n### ")
    assert [each for each in map(key_of, UPDATABLE) if f"`{each}`" not in section] == []
