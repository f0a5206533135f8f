"""The lines for curl in the README of the example do what stands beside them."""

import os
import pathlib
import re
import subprocess
import unittest

from support import PaymentsTest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/payments/README.md"


def lines_for_curl(document):
    text = document.read_text(encoding="utf-8")
    return re.search(r"^```sh\n(pay\(\) \{.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)


class LinesForCurl(PaymentsTest):
    def run_lines(self, lines):
        """The answers: status line and fields, empty line, body."""
        servers = {"ONE": self.pod, "TWO": self.other, "GATEWAY": self.gateway}
        urls = {name: f"http://127.0.0.1:{server.port}" for name, server in servers.items()}
        ran = subprocess.run(["sh", "-eu"], input=lines, capture_output=True, text=True,
                             env={**os.environ, **urls}, check=True)  # fmt: skip
        answers = re.split(r"^(?=HTTP/)", ran.stdout.replace("\r", ""), flags=re.MULTILINE)
        return [answer for answer in answers if answer]

    def statuses(self, answers):
        return [int(answer.split()[1]) for answer in answers]

    def test_those_of_the_example(self):
        answers = self.run_lines(lines_for_curl(EXAMPLE))
        self.assertEqual(self.statuses(answers), [201, 201, 422, 400, 201])
        bodies = [answer.split("\n\n", 1)[1] for answer in answers]
        self.assertEqual(bodies[0], bodies[1])
        self.assertIn("Idempotent-Replayed: true", answers[1])
        self.assertNotIn("Idempotent-Replayed", answers[0])
        self.assertIn("80.00", bodies[4].splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
