#!/usr/bin/env python3
"""Tests of bench.py with a program in the place of retape that fails in every way: each must be seen.

    tests/gpu/test_bench.py
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# Answers as gpu_bench does, and goes wrong at the workload or check that $WRONG names: `NAME:HOW`.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, time
at, _, how = os.environ.get("WRONG", "").partition(":")

def answer(**what):
    print("{{ a line of something else", flush=True)
    print(json.dumps(what), flush=True)

def go_wrong(name):
    if name != at:
        return
    if how == "die":
        sys.exit("an illegal address")
    if how == "sleep":
        time.sleep(60)

words = [word for word in sys.argv[1:] if word != "--quick"]
if words == ["device"]:
    answer(name="none", driver_supports_cuda=13000)
elif words[0] == "serve":
    for line in sys.stdin:
        name = line.split()[-1]
        go_wrong(name)
        if line.startswith("prepare"):
            loss = 2.0 if (name, how) == (at, "differ") else 1.0
            answer(**({{"failed": "the loss is NaN"}} if (name, how) == (at, "nan") else {{"loss_after_5": loss}}))
        else:
            answer(**({{}} if line == "drop\\n" else {{"ms": 1.0}}))
else:
    go_wrong(words[-1])
    answer(loss=1.0, cold_s=0.1, size="tiny")
"""


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "figures.json")
        program = self.write("gpu_bench", PROGRAM)
        os.chmod(program, 0o755)
        self.write("commit", "abc\n")

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def bench(self, only, *options, wrong=""):
        """Runs it; returns the exit code and the figures."""
        command = [sys.executable, os.path.join(HERE, "bench.py"), "--pack", self.folder.name, "--out", self.out,
                   "--quick", "--skip", "torch,torch.compile,jax", "--only", only, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, WRONG=wrong))
        with open(self.out) as file:
            figures = json.load(file)
        with open(os.path.splitext(self.out)[0] + ".txt") as file:
            self.assertEqual(file.read().count("failed: "), len(figures["failures"]), done.stdout + done.stderr)
        return done.returncode, figures

    def test_nothing_wrong(self):
        code, figures = self.bench("check,cold,negate,mlp")
        self.assertEqual((code, figures["failures"], figures["left_out"]), (0, [], {}))
        self.assertEqual(list(figures["workloads"]), ["negate", "mlp"])
        self.assertEqual(figures["workloads"]["mlp"]["programs"]["retape"]["ms"], 1.0)
        self.assertEqual(set(figures["checks"]), {"twice", "threads", "memory", "leaks"})

    def test_what_goes_wrong_is_a_failure_and_the_rest_goes_on(self):
        for how, reason in [("die", "illegal address"), ("sleep", "no"), ("nan", "NaN"), ("differ", "2.0")]:
            with self.subTest(how):
                code, figures = self.bench("negate,mlp", "--patience", "5", wrong=f"negate:{how}")
                self.assertEqual(code, 1)
                self.assertIn(reason, " ".join(figures["failures"]))
                self.assertIn("ms", figures["workloads"]["mlp"]["programs"]["retape"])

    def test_checks_and_first_calls_count(self):
        for at in ("cold", "leaks"):
            code, figures = self.bench("check,cold", wrong=f"{at}:die")
            self.assertEqual(code, 1)
            self.assertIn("illegal address", " ".join(figures["failures"]))

    def test_parts_add_up(self):
        self.bench("negate")
        code, figures = self.bench("mlp,negate", "--budget", "0")
        self.assertEqual((code, list(figures["workloads"]), list(figures["left_out"])), (0, ["negate"], ["mlp"]))
        _, figures = self.bench("mlp")
        self.assertEqual((list(figures["workloads"]), figures["left_out"]), (["negate", "mlp"], {}))
        # Figures of another commit do not stay.
        self.write("commit", "def\n")
        _, figures = self.bench("cold")
        self.assertEqual(figures["workloads"], {})


if __name__ == "__main__":
    unittest.main()
