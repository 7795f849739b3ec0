#!/usr/bin/env python3
"""scripts/gpu_check.sh with fake programs on PATH: what it skips and why, and that it writes its results whatever
fails and whoever ends it. Builds and measures nothing."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

NCCL = """#!/bin/sh
echo "All tests passed (9 assertions in 3 test cases)"
"""
NVCC = """#!/bin/sh
echo 'Cuda compilation tools, release 13.0, V13.0.88'
"""
CTEST = """#!/bin/sh
case "$*" in
  *check_sass*) echo "1/1 Test #1: check_sass ...***Skipped" ;;
  *_cuda*) echo "$CTEST_GPU" ;;
esac
"""
# Configures nothing; a build puts the programs below into the build's folder.
CMAKE = """#!/bin/sh
case "$*" in
  --build*) [ -z "$BUILD_FAILS" ] || { echo "error: a line that does not compile"; exit 1; }
            mkdir -p "$2/bin" && cp "$STRAW"/made/* "$2/bin" ;;
  *) mkdir -p "$4" && echo "NCCL_LIBRARY:FILEPATH=/straw" >"$4/CMakeCache.txt" ;;
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
import fcntl, json, os, pathlib, sys, time
words = sys.argv[1:]
if os.environ.get("HANG") in words:
    print("a rank waits for ever", flush=True)
    pid = pathlib.Path(os.environ["STRAW"], "pid")
    pid.with_suffix(".new").write_text(str(os.getpid()))
    pid.with_suffix(".new").rename(pid)
    time.sleep(300)
running = open(pathlib.Path(os.environ["STRAW"], "running"), "w")
try:
    fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit("another program runs on the GPU")
if words == ["--version"]:
    sys.exit(print("dstrain"))
if words[0] == "plan":
    sys.exit(print(json.dumps({"memory": {"total": 1}, "instructions": [{"flops": 1e12}]})))
value = lambda name: words[words.index(name) + 1]
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
time.sleep(0.05)
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
                           ("made/dstrain", DSTRAIN), ("made/bench_cuda", BENCH), ("made/test_nccl", NCCL)):
            path = self.straw / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (self.straw / "python").mkdir()
        (self.straw / "python/torch.py").write_text("raise ImportError\n")

    def tearDown(self):
        self.folder.cleanup()

    def command(self, *words, **environment):
        """Returns the words and the environment of a call; the last of equal words counts."""
        command = [ROOT / "scripts/gpu_check.sh", "--build", self.straw / "build", "--output", self.straw / "out",
                   "--part", "checks", *words]
        path = f"{self.straw}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        return command, {**os.environ, "PATH": path, "STRAW": str(self.straw),
                         "PYTHONPATH": str(self.straw / "python"), **environment}

    def results(self, part="checks"):
        path = self.straw / "out" / f"{part}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def log(self, part="checks"):
        return (self.straw / "out" / f"{part}.log").read_text()

    def check(self, *words, **environment):
        """Runs it; returns its status, what it printed and the results of its checks."""
        command, environment = self.command(*words, **environment)
        run = subprocess.run(command, text=True, capture_output=True, timeout=280, env=environment)
        return run.returncode, run.stdout + run.stderr, self.results()

    @staticmethod
    def by_name(results):
        return {step["name"]: (step["result"], step.get("reason", "")) for step in results["steps"]}

    def test_without_a_gpu(self):
        status, text, results = self.check()
        steps = self.by_name(results)
        self.assertEqual(status, 0, text)
        self.assertIsNone(results["gpu"])
        self.assertEqual(results["figures"], {})
        for name in ("parity suite, GPU", "loss curve, GPU, fp32", "compute-sanitizer", "one rank through NCCL"):
            self.assertEqual(steps[name], ("skipped", "no GPU"))
        for name in ("build", "parity suite, emulated device", "graph on and off",
                     "loss curve, emulated device, fp32", "two ranks on one GPU, through the host"):
            self.assertEqual(steps[name][0], "passed", text)
        self.assertEqual(steps["machine code of the kernels"], ("skipped", "no nvdisasm and cuobjdump here"))
        self.assertIn("the run needs 2 TB", results["texts"]["out_of_memory"])
        self.assertIn("no GPU here: nothing above says that dstrain runs on one", text)

    def test_the_log_holds_the_output_of_every_step(self):
        self.check()
        log = self.log()
        self.assertIn("==== configure: passed", log)
        self.assertIn("==== out of memory is found by the plan: passed\nthe run needs 2 TB", log)
        self.assertIn("allowed 1e-05", log)

    def test_figures_are_a_part_of_their_own(self):
        status, text, checks = self.check("--part", "figures")
        self.assertEqual((status, checks), (0, None), text)
        results = self.results("figures")
        self.assertEqual(results["part"], "figures")
        self.assertEqual([(s["name"], s["result"]) for s in results["steps"]],
                         [("configure", "passed"), ("build", "passed"), ("step figures, emulated device", "passed"),
                          ("kernel figures, emulated device", "passed")])
        self.assertIn('"name": "tiny"', self.log("figures"))

    def test_all_parts(self):
        status, text, checks = self.check("--part", "all", "--only", "graph|kernel figures")
        self.assertEqual(status, 0, text)
        self.assertEqual(self.by_name(checks)["graph on and off"][0], "passed")
        self.assertEqual(self.by_name(self.results("figures"))["kernel figures, emulated device"][0], "passed")

    def test_what_takes_too_long_is_ended_and_the_rest_not_begun(self):
        status, text, results = self.check("--seconds", "14", "--only", "starts|loss|graph", HANG="--version")
        steps = self.by_name(results)
        self.assertEqual(status, 1, text)
        self.assertEqual(steps["starts without asking for a GPU"],
                         ("failed", "not done in time; last: a rank waits for ever"))
        self.assertEqual(steps["graph on and off"], ("skipped", "no time left (--seconds)"))
        self.assert_ended()

    def test_a_call_that_is_ended_leaves_its_results_and_no_program(self):
        command, environment = self.command(HANG="dstrain.cuda_graph=on")
        with open(self.straw / "printed", "w") as printed:
            run = subprocess.Popen(command, env=environment, stdout=printed, stderr=printed)
            until = time.monotonic() + 120
            while not (self.straw / "pid").exists() and time.monotonic() < until:
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(timeout=60), 1)
        steps = self.by_name(self.results())
        self.assertEqual(steps["loss curve, emulated device, fp32"][0], "passed")
        self.assertNotIn("graph on and off", steps)
        self.assertIn("==== graph on and off: ended with gpu_check.sh\na rank waits for ever", self.log())
        self.assert_ended()

    def assert_ended(self):
        pid = int((self.straw / "pid").read_text())
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)
        self.fail(f"process {pid} runs on")

    def test_failures_are_noted_and_the_rest_goes_on(self):
        status, text, results = self.check(GPU="NVIDIA Straw", OTHER_LOSS="cuda",
                                           CTEST_GPU="1/3 Test #1: kernels_cuda ...***Skipped 0.1 sec")
        steps = self.by_name(results)
        self.assertEqual(status, 1)
        self.assertEqual((results["gpu"], results["driver"]), ("NVIDIA Straw", "580.1"))
        self.assertEqual(steps["parity suite, GPU"][0], "failed")  # a suite that was skipped shows nothing
        self.assertEqual(steps["loss curve, GPU, fp32"][0], "failed")
        self.assertIn("difference of the loss", steps["loss curve, GPU, fp32"][1])
        self.assertEqual(steps["two ranks on one GPU, through the host"][0], "passed", text)
        self.assertEqual(steps["one rank through NCCL"][0], "passed", text)
        self.assertEqual(steps["compute-sanitizer racecheck, kernels"],
                         ("skipped", "compute-sanitizer does not support this device"))
        self.assertEqual(steps["compute-sanitizer memcheck, attention"][0], "failed")
        self.assertIn("Invalid __global__ read", steps["compute-sanitizer memcheck, attention"][1])
        self.assertEqual(steps["compute-sanitizer synccheck, products"][0], "passed")
        self.assertEqual(steps["compute-sanitizer memcheck, training"][0], "passed")
        self.assertIn("parity suite, GPU", text.split("failed: ")[-1])

    def test_figures_of_a_gpu(self):
        status, text, _ = self.check("--part", "figures", GPU="NVIDIA Straw")
        self.assertEqual(status, 1)
        results = self.results("figures")
        steps = self.by_name(results)
        self.assertEqual(list(steps), ["configure", "build", "step figures", "kernel figures"])  # steps say the most
        self.assertEqual(steps["kernel figures"], ("failed", "1 figures failed, the first: bad: it broke"))
        figures = results["figures"]
        self.assertEqual([f["name"] for f in figures["kernels"]], ["good", "bad"])
        self.assertEqual(steps["step figures"][0], "passed", text)
        step = figures["steps"][0]
        self.assertEqual((step["name"], step["step_ms"]), ("GPT-2 124M", 10))
        self.assertEqual(step["torch"], {"skipped": "no PyTorch here"})

    def test_steps_run_one_after_the_other_and_each_is_noted_as_it_ends(self):
        nproc = self.straw / "bin/nproc"
        nproc.write_text("#!/bin/sh\necho 16\n")
        nproc.chmod(nproc.stat().st_mode | stat.S_IXUSR)
        status, text, results = self.check("--only", "starts|loss|graph|two ranks|memory is", GPU="NVIDIA Straw",
                                           CTEST_GPU="passed")
        self.assertEqual(status, 0, text)
        passed = [step["name"] for step in results["steps"] if step["result"] == "passed"]
        self.assertEqual(passed[:3], ["configure", "build", "starts without asking for a GPU"])
        self.assertIn("graph on and off", passed)

    def test_all_parts_share_the_seconds_of_the_call(self):
        status, text, _ = self.check("--part", "all", "--seconds", "200", "--only", "no step")
        self.assertEqual(status, 0, text)
        seconds = [int(n) for n in re.findall(r"^part: .* (\d+) seconds$", text, re.MULTILINE)]
        self.assertEqual(seconds[0], 100)
        self.assertTrue(100 < seconds[1] <= 200, seconds)  # the checks needed few of theirs

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
        self.assertIn("usage: scripts/gpu_check.sh [--part PART] [--deps FOLDER]", text)

    @unittest.skipIf(shutil.which("dpkg-query") is None, "no Debian packages here")
    def test_what_travels_has_a_limit(self):
        pack = [ROOT / "scripts/pack_gpu_deps.sh", "--limit"]
        run = subprocess.run([*pack, "64", self.straw / "deps"], text=True, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"what travels: .* of at most 64 MiB")
        for header in ("libaio.h", "fmt/core.h", "boost/context/protected_fixedsize_stack.hpp"):
            self.assertTrue((self.straw / "deps/usr/include" / header).exists(), header)
        run = subprocess.run([*pack, "1", self.straw / "deps"], text=True, capture_output=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("that is too much", run.stderr)


if __name__ == "__main__":
    unittest.main()
