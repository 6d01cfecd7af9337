"""The simulated members of one gang, in a few processes (`benchmarks.heartbeat_members`), and what they tell."""

import json
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

PROCESSES = 2
SUMS, MAXIMA = ("beats", "echoes", "lost", "expired"), ("oldestEcho", "oldestLease")


class Crowds:
    """The members of the gang. `secret` is the job's."""

    def __init__(self, port: int, first: int, members: int, secret: str, *options: str) -> None:
        self.members = members
        shares = [members // PROCESSES + (index < members % PROCESSES) for index in range(PROCESSES)]
        self._processes = []
        for share in shares:
            command = [sys.executable, "-m", "benchmarks.heartbeat_members", f"--port={port}", f"--first={first}"]
            first += share
            process = subprocess.Popen(
                [*command, f"--count={share}", f"--members={members}", *options],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._processes.append(process)
            self._tell(process, secret)

    def hear(self, what: str, least_round: int = 0) -> list[dict[str, Any]]:
        """The line with this `what`, of this round or a later one, from each process, once all have printed it."""
        return [self._next(process, what, least_round) for process in self._processes]

    def counts(self) -> dict[str, float]:
        """The sums since the last call, and the oldest echo and lease of all."""
        told = self._ask("counts")
        return {
            **{name: sum(each[name] for each in told) for name in SUMS},
            **{name: max(each[name] for each in told) for name in MAXIMA},
        }

    def kill_one(self) -> float:
        """Let one member report a killed program; the time at which it does."""
        self._tell(self._processes[0], "kill")
        return float(self._next(self._processes[0], "killed", 0)["at"])

    def rounds(self) -> dict[str, float]:
        """How many rounds there were, the starts too many or too few, and the shortest time between the end of a round
        in the last member and the start of the next one in the first; negative if two rounds overlap."""
        told = [each["rounds"] for each in self._ask("rounds")]
        rounds = sorted({int(number) for each in told for number in each})
        spans = [[each[str(number)] for each in told if str(number) in each] for number in rounds]
        apart = [
            min(begun for _, begun, _ in later) - max(ended for _, _, ended in earlier)
            for earlier, later in pairwise(spans)
        ]
        wrong = sum(abs(sum(starts for starts, _, _ in span) - self.members) for span in spans)
        return {"rounds": len(rounds), "wrong_starts": wrong, "apart_s": min(apart)}

    def end(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _ask(self, command: str) -> list[dict[str, Any]]:
        for process in self._processes:
            self._tell(process, command)
        return self.hear(command)

    def _tell(self, process: Any, line: str) -> None:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    def _next(self, process: Any, what: str, least_round: int) -> dict[str, Any]:
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["what"] == what and told.get("round", 0) >= least_round:
                return told
        raise RuntimeError(f"members have exited at {time.monotonic():.1f}")
