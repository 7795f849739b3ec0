#!/usr/bin/env python3
"""The arithmetic and the guards of benchmarks/cuda/measure.py, without a GPU."""
import json
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "cuda"))

import figures  # noqa: E402
import measure  # noqa: E402

# Answers "dies" by dying, "fails" by a failure, "sleeps" not at all, everything else by its own name.
PROGRAM = """
import json, sys, time
print(json.dumps({"ready": "x"}), flush=True)
for line in sys.stdin:
    name = line.strip()
    if name == "dies": sys.exit(3)
    if name == "sleeps": time.sleep(60)
    print(json.dumps({"failed": "why"} if name == "fails" else {"us": float(len(name))}), flush=True)
"""


class Arithmetic(unittest.TestCase):
    def test_models_have_the_size_of_their_name(self):
        self.assertEqual(figures.parameters_of("GPT-2 124M"), 124_439_808)
        self.assertEqual([figures.padded(v) for v in (50257, 50304, 1)], [50304, 50304, 128])
        for name, millions in (("GPT-2 350M", 355), ("GPT-2 774M", 774), ("GPT-2 1.5B", 1558)):
            self.assertAlmostEqual(figures.parameters_of(name) / 1e6, millions, delta=millions * 0.01)

    def test_the_largest_power_of_two_that_fits(self):
        needed = lambda b: 10 + 5 * b  # noqa: E731
        self.assertEqual(figures.fitting_micro_batch(needed, (10 + 5 * 16) / figures.SHARE_OF_MEMORY + 1), 16)
        self.assertEqual(figures.fitting_micro_batch(needed, (10 + 5 * 16) / figures.SHARE_OF_MEMORY - 1), 8)
        self.assertEqual(figures.fitting_micro_batch(needed, 1e9), figures.LARGEST_MICRO_BATCH)
        self.assertIsNone(figures.fitting_micro_batch(needed, 15))

    def test_a_step(self):
        plan = {"instructions": [{"flops": 3e14}, {"flops": 1e14}, {"flops": 0}]}
        flops = figures.step_flops(plan)
        self.assertEqual(flops, 4e14)
        f = figures.step_figure(8, [900, 1000, 1200], flops, 800, "NVIDIA H200")
        self.assertAlmostEqual(f["tokens_per_second"], 8 * 1024)
        self.assertAlmostEqual(f["tflops"], 400)
        self.assertAlmostEqual(f["of_gemm_probe"], 0.5)
        self.assertAlmostEqual(f["mfu"], 400 / 989.4)
        unknown = figures.step_figure(8, [1000], flops, None, "a GPU of tomorrow")
        self.assertIsNone(unknown["mfu"])
        self.assertIsNone(unknown["of_gemm_probe"])

    def test_peaks_go_by_the_longest_name(self):
        self.assertEqual(figures.peak_of("NVIDIA H100 PCIe"), 756e12)
        self.assertEqual(figures.peak_of("NVIDIA H100 80GB HBM3"), 989.4e12)

    def test_a_ratio_is_against_the_fastest_way(self):
        rounds = [([1, 1], {"a": 6, "b": 4}), ([2, 2], {"a": 6, "b": 4}), ([1, 3], {"a": 6, "b": 8})]
        f = figures.ratio_figure("x", rounds)
        self.assertEqual((f["torch_way"], f["torch_us"], f["us"]), ("b", 4, 4))
        self.assertEqual(f["ratios"], [2, 1, 2])
        self.assertEqual(f["ratio"], 2)

    def test_comparisons_name_cases_once(self):
        for ours, theirs in figures.peers().values():
            self.assertTrue(ours and theirs)
            self.assertEqual(len(set(theirs)), len(theirs))


class Guards(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.log = open(pathlib.Path(self.folder.name) / "log", "w")
        self.server = measure.Server([sys.executable, "-c", PROGRAM], self.log, seconds=5)

    def tearDown(self):
        self.server.close()
        self.log.close()
        self.folder.cleanup()

    def ask(self, name):
        return measure.guarded(name, lambda: self.server.ask(name), time.monotonic() + 60)

    def test_a_failure_is_noted_and_the_rest_goes_on(self):
        self.assertEqual(self.ask("four")["us"], 4)
        self.assertEqual(self.ask("fails"), {"name": "fails", "failed": "why"})
        self.assertIn("status 3", self.ask("dies")["failed"])
        self.server.seconds = 0.2
        self.assertIn("no answer in 0.2 s", self.ask("sleeps")["failed"])
        self.server.seconds = 5
        self.assertEqual(self.ask("four")["us"], 4)

    def test_after_the_deadline_nothing_is_begun(self):
        figure = measure.guarded("x", self.fail, time.monotonic() - 1)
        self.assertEqual(figure, {"name": "x", "skipped": "no time left"})

    def test_a_way_of_the_peer_that_fails_is_left_out(self):
        theirs = measure.Server([sys.executable, "-c", PROGRAM], self.log, seconds=5)
        try:
            f = measure.compare("x", self.server, ["ab", "cd"], theirs, ["fails", "abcdefgh"])
            self.assertEqual((f["ratio"], f["torch_failed"]), (2, {"fails": "why"}))
            with self.assertRaises(measure.Failed):
                measure.compare("x", self.server, ["ab"], theirs, ["fails"])
        finally:
            theirs.close()

    def test_results_stay_and_are_replaced_by_name(self):
        path = pathlib.Path(self.folder.name) / "figures.json"
        measure.Figures(path).add("kernels", {"name": "a", "us": 1})
        again = measure.Figures(path)
        again.add("kernels", {"name": "b", "us": 2})
        again.add("kernels", {"name": "a", "us": 3})
        self.assertEqual(json.loads(path.read_text()),
                         {"kernels": [{"name": "b", "us": 2}, {"name": "a", "us": 3}]})


if __name__ == "__main__":
    unittest.main()
