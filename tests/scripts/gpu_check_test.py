#!/usr/bin/env python3
"""scripts/gpu_check.sh with programs of straw on PATH: what it skips and why, and that it writes its
results whatever fails. Takes seconds; builds and measures nothing."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

NVCC = """#!/bin/sh
echo 'Cuda compilation tools, release 13.0, V13.0.88'
"""
CTEST = """#!/bin/sh
case "$*" in *_cuda*) echo "$CTEST_GPU" ;; esac
"""
# Configures nothing; a build puts the programs below into the build's folder.
CMAKE = """#!/bin/sh
case "$*" in
  --build*) [ -z "$BUILD_FAILS" ] || { echo "error: a line that does not compile"; exit 1; }
            mkdir -p "$2/bin" && cp "$STRAW"/made/* "$2/bin" ;;
esac
"""
SMI = """#!/bin/sh
[ -n "$GPU" ] || { echo "no devices were found"; exit 9; }
case "$*" in
  -L) echo "GPU 0: $GPU (UUID: x)" ;;
  *memory.total*) echo 140000 ;;
  *compute_cap*) echo 9.0 ;;
  *) echo "$GPU, 580.1" ;;
esac
"""
SANITIZER = """#!/bin/sh
case "$*" in
  *racecheck*) echo "Error: Device not supported. Please refer to the documentation"; exit 1 ;;
  *memcheck*attention*) echo "========= Invalid __global__ read of size 4"; exit 9 ;;
esac
"""
DSTRAIN = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("dstrain"))
if words[0] == "plan":
    sys.exit(print(json.dumps({"memory": {"total": 1}, "instructions": [{"flops": 1e12}]})))
value = lambda name: words[words.index(name) + 1]
if value("--num_gpus") == "2" and "RANKS" not in os.environ:
    sys.exit("no two ranks without a friend")
if "train_micro_batch_size_per_gpu=4096" in words:
    sys.exit("the run needs 2 TB, and 3 are free: to fit, use less")
loss = 1.5 if os.environ.get("OTHER_LOSS") == value("--device") else 1.0
out = pathlib.Path(value("--output"))
out.mkdir(parents=True, exist_ok=True)
steps = min(int(value("--steps")), 20)
lines = [json.dumps({"step": i + 1, "loss": loss, "step_ms": 10}) for i in range(steps)]
(out / "metrics.jsonl").write_text("\\n".join(lines) + "\\n")
(out / "model.safetensors").write_text("weights")
if value("--steps") == "1000000":
    time.sleep(60)
"""
BENCH = """#!/usr/bin/env python3
import json, sys
print(json.dumps({"ready": "straw", "probes": {"copy_gb_per_second": 1, "gemm_tflops": 1},
                  "cases": ["good", "bad"]}), flush=True)
for line in sys.stdin:
    name = line.strip()
    figure = {"name": name, "us": 1, "gb_per_second": 1, "tflops": 1, "fraction": 1, "bound": "copy"}
    if name == "bad" and "emulated" not in sys.argv: figure = {"name": name, "failed": "it broke"}
    print(json.dumps(figure), flush=True)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.straw = pathlib.Path(self.folder.name)
        for name, text in (("bin/nvcc", NVCC), ("bin/ctest", CTEST), ("bin/cmake", CMAKE),
                           ("bin/nvidia-smi", SMI), ("bin/compute-sanitizer", SANITIZER),
                           ("made/dstrain", DSTRAIN), ("made/bench_cuda", BENCH)):
            path = self.straw / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.straw / "python").mkdir()
        (self.straw / "python/torch.py").write_text("raise ImportError\n")

    def tearDown(self):
        self.folder.cleanup()

    def check(self, *words, **environment):
        """Runs it; returns its status, what it printed and its results."""
        output = self.straw / "results.json"
        command = [ROOT / "scripts/gpu_check.sh", "--build", self.straw / "build", "--output", output]
        path = f"{self.straw}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        run = subprocess.run(
            [*command, *words], text=True, capture_output=True, timeout=280,
            env={**os.environ, "PATH": path, "STRAW": str(self.straw),
                 "PYTHONPATH": str(self.straw / "python"), **environment},
        )  # fmt: skip
        results = json.loads(output.read_text()) if output.exists() else None
        return run.returncode, run.stdout + run.stderr, results

    @staticmethod
    def by_name(results):
        return {step["name"]: (step["result"], step.get("reason", "")) for step in results["steps"]}

    def test_without_a_gpu(self):
        status, text, results = self.check()
        steps = self.by_name(results)
        self.assertEqual(status, 0, text)
        self.assertIsNone(results["gpu"])
        self.assertEqual(results["figures"], {})
        for name in ("parity suite, GPU", "loss curve, GPU, fp32", "compute-sanitizer", "step figures"):
            self.assertEqual(steps[name], ("skipped", "no GPU"))
        for name in ("build", "parity suite, emulated device", "graph on and off",
                     "loss curve, emulated device, fp32", "kernel figures, emulated device"):
            self.assertEqual(steps[name][0], "passed", text)
        self.assertEqual(steps["ZeRO stages 0-3, two ranks"],
                         ("skipped", "two ranks do not start here: no two ranks without a friend"))
        self.assertIn("the run needs 2 TB", results["texts"]["out_of_memory"])
        self.assertIn("no GPU here: nothing above says that dstrain runs on one", text)

    def test_failures_are_noted_and_the_rest_goes_on(self):
        status, text, results = self.check(GPU="NVIDIA Straw", RANKS="2", OTHER_LOSS="cuda",
                                           CTEST_GPU="1/3 Test #1: kernels_cuda ...***Skipped 0.1 sec")
        steps = self.by_name(results)
        self.assertEqual(status, 1)
        self.assertEqual((results["gpu"], results["driver"]), ("NVIDIA Straw", "580.1"))
        self.assertEqual(steps["parity suite, GPU"][0], "failed")  # a suite that was skipped shows nothing
        self.assertEqual(steps["loss curve, GPU, fp32"][0], "failed")
        self.assertIn("difference of the loss", steps["loss curve, GPU, fp32"][1])
        self.assertEqual(steps["ZeRO stages 0-3, two ranks"][0], "passed", text)
        self.assertEqual(steps["compute-sanitizer racecheck, kernels"],
                         ("skipped", "compute-sanitizer does not support this device"))
        self.assertEqual(steps["compute-sanitizer memcheck, attention"][0], "failed")
        self.assertIn("Invalid __global__ read", steps["compute-sanitizer memcheck, attention"][1])
        self.assertEqual(steps["compute-sanitizer synccheck, products"][0], "passed")
        self.assertEqual(steps["compute-sanitizer memcheck, training"][0], "passed")
        self.assertEqual(steps["kernel figures"], ("failed", "1 figures failed, the first: bad: it broke"))
        figures = results["figures"]
        self.assertEqual([f["name"] for f in figures["kernels"]], ["good", "bad"])
        self.assertEqual(steps["step figures"][0], "passed", text)
        step = figures["steps"][0]
        self.assertEqual((step["name"], step["step_ms"]), ("GPT-2 124M", 10))
        self.assertEqual(step["torch"], {"skipped": "no PyTorch here"})
        self.assertIn("parity suite, GPU", text.split("failed: ")[-1])

    def test_a_build_that_fails(self):
        status, _, results = self.check(BUILD_FAILS="1")
        self.assertEqual(status, 1)
        self.assertEqual(self.by_name(results), {"configure": ("passed", ""),
                                                 "build": ("failed", "error: a line that does not compile")})

    def test_some_steps_alone(self):
        status, _, results = self.check("--only", "graph")
        steps = self.by_name(results)
        self.assertEqual(status, 0)
        self.assertEqual(steps["graph on and off"][0], "passed")
        self.assertEqual(steps["out of memory is found by the plan"],
                         ("skipped", "not asked for (--only)"))

    def test_an_argument_that_it_does_not_know(self):
        status, text, results = self.check("--fast")
        self.assertEqual((status, results), (1, None))
        self.assertIn("usage: scripts/gpu_check.sh [--deps FOLDER]", text)


if __name__ == "__main__":
    unittest.main()
