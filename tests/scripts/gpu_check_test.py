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
SUITE = """#!/bin/sh
[ -z "$NO_GPU_FOUND" ] || { echo "no GPU"; exit 77; }
echo "All tests passed (9 assertions in 3 test cases), sources in $DSTRAIN_SOURCES"
"""
# What does not depend on Python itself: a check of machine code, for which tools are missing.
PYTHON = f"""#!/bin/sh
case "$1" in *check_sass.py) echo "no nvdisasm"; exit 77 ;; esac
exec {sys.executable} "$@"
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
  # a line at a time: a reader that has seen enough of them would end it
  -L) for i in ${GPUS:-0}; do echo "GPU $i: $GPU (UUID: x)" && sleep 0.02 || exit; done ;;
  *memory.used*) echo "140000 MiB, 900 MiB, 139100 MiB" ;;
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
NCU = """#!/bin/sh
[ "$2" != regex:query_gradient_kernel ] || { echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1; }
echo "  $2 (1, 2, 3)x(128, 1, 1), Duration us 70"
"""
DSTRAIN = """#!/usr/bin/env python3
import fcntl, json, os, pathlib, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
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
if words.count("--num_gpus") > 1:
    sys.exit("dstrain: error: --num_gpus is given 2 times")
value = lambda name: words[words.index(name) + 1]
settings = dict(word.split("=", 1) for word in words if "=" in word)
if words[0] == "generate":
    sys.exit(print("text of", "another model" if os.environ.get("OTHER_LOSS") == value("--device") else "the model"))
if "train_micro_batch_size_per_gpu=4096" in words:
    sys.exit("the run needs 2 TB, and 3 are free: to fit, use less")
loss = 1.5 if os.environ.get("OTHER_LOSS") == value("--device") else 1.0
out = pathlib.Path(value("--output"))
out.mkdir(parents=True, exist_ok=True)
steps = min(int(value("--steps")), 30)
large = "gpt2_124m" in value("--config")
lines = [json.dumps({"step": i + 1, "loss": 10.82 - i / 9 if large else loss, "step_ms": 10, "tokens": 1024,
                     "peak_bytes": 1 << 20, "skipped": "fp16.enabled=true" in words and i < 2}, separators=(",", ":"))
         for i in range(steps)]
write_trace = lambda path: pathlib.Path(path).write_text('{"traceEvents": [{"ph": "X", "name": "linear h", "dur": 5}]}')
if value("--steps") == "100000" and out.name == "killed":
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "--output", str(out), "more"])
if int(settings.get("dstrain.eval_interval", 0)): lines.append('{"step": %d, "val_loss": 1.5}' % steps)
(out / "metrics.jsonl").write_text("\\n".join(lines) + "\\n")
(out / "model.safetensors").write_text("weights")
if "dstrain.trace" in settings: write_trace(settings["dstrain.trace"])
if "wall_clock_breakdown" in settings:
    for _ in range(steps):
        print("time (ms) | fwd: 3.00 | bwd: 5.00 | bwd_inner: 4.00 | bwd_allreduce: 1.00 | step: 2.00")
    pathlib.Path(settings["flops_profiler.output_file"]).write_text("fwd FLOPS per GPU: 1 TFLOPS\\n")
if sys.stdout.isatty():
    print(f"step {steps}/{steps} | loss 1.0 | MFU 48% | mem 1MB", end="\\r")
if settings.get("optimizer.params.lr") == "1e30":
    print("rank 3 failed: the first gradient with a non-finite value is ln.weight")
    sys.exit(2)
if out.name == "requested":
    signal.sigwait([signal.SIGUSR2])
    print("SIGUSR2: a trace is taken", flush=True)
    write_trace(out / "trace_step_31.json")
    time.sleep(60)
if value("--steps") == "100000":
    status = rank.wait()
    print(f"rank 1 was killed by signal {-status}")
    sys.exit(2)
if value("--steps") == "1000000":
    time.sleep(60)
time.sleep(0.02)
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
        suites = [(f"made/test_{family}_{device}", SUITE) for family in ("kernels", "products", "attention")
                  for device in ("cuda", "emulated")]
        for name, text in (("bin/nvcc", NVCC), ("bin/cmake", CMAKE), ("bin/python3", PYTHON),
                           ("bin/nvidia-smi", SMI), ("bin/compute-sanitizer", SANITIZER), ("bin/ncu", NCU),
                           ("made/dstrain", DSTRAIN), ("made/bench_cuda", BENCH), ("made/test_nccl", NCCL), *suites):
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
                   "--part", "checks", "--jobs", "1", *words]
        path = f"{self.straw}/bin:{os.environ['PATH']}"
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
        skipped = {name: reason for name, (result, reason) in steps.items() if result == "skipped"}
        self.assertEqual({name for name, reason in skipped.items() if reason == "no GPU"},
                         {name for name in steps if name.startswith(("memcheck", "racecheck", "synccheck"))}
                         | {"one rank through NCCL"})
        self.assertEqual({name for name, reason in skipped.items() if reason != "no GPU"},
                         {"packed programs", "machine code of the kernels",
                          "20 losses of GPT-2 124M against PyTorch"})
        self.assertEqual(skipped["machine code of the kernels"], "no nvdisasm and cuobjdump here")
        self.assertEqual({result for result, _ in steps.values()}, {"passed", "skipped"})
        self.assertIn("the run needs 2 TB", results["texts"]["out_of_memory"])
        self.assertIn("linear", results["texts"]["trace"])
        self.assertIn("no GPU here: nothing above says that dstrain runs on one", text)
        log = self.log()
        self.assertIn("==== configure: passed", log)
        self.assertIn("==== out of memory is found by the plan: passed\nthe run needs 2 TB", log)
        self.assertIn("allowed 0.0001", log)
        self.assertIn(f"sources in {ROOT}", log)
        self.assertIn("skipped steps: 2 of 12 on the CPU, 2 on the device", log)

    def test_figures_are_a_part_of_their_own(self):
        status, text, checks = self.check("--part", "figures")
        self.assertEqual((status, checks), (0, None), text)
        results = self.results("figures")
        self.assertEqual(results["part"], "figures")
        self.assertEqual([s["name"] for s in results["steps"] if s["result"] == "passed"],
                         ["configure", "build", "kernels: attention, linear, cross-entropy, Adam",
                          "steps of GPT-2 124M, beside compiled PyTorch"])
        self.assertIn('"name": "tiny"', self.log("figures"))

    def test_several_gpus_are_a_part_of_their_own(self):
        status, text, _ = self.check("--part", "gpus")
        self.assertEqual(status, 0, text)
        results = self.results("gpus")
        self.assertIn("8 ranks, deterministic_collectives false: 102400 tokens/s", results["texts"]["scaling"])
        self.assertIn("rank 1 was killed by signal 9", results["texts"]["killed_rank"])
        status, text, _ = self.check("--part", "gpus", "--only", "1F1B|hpZ", GPU="NVIDIA Straw", GPUS="0 1 2")
        steps = self.by_name(self.results("gpus"))
        self.assertEqual((status, steps["1F1B over 2 ranks"][0]), (0, "passed"), text)
        self.assertEqual(steps["hpZ: parameters divided among 1 of 2 ranks"],
                         ("skipped", "needs 4 GPUs, and 3 are here"))

    def packed(self, **changes):
        """Packs the programs, of which `changes` have another text; returns the folder."""
        stage = self.straw / "stage"
        shutil.copytree(self.straw / "made", stage / "bin")
        for name, text in changes.items():
            (stage / "bin" / name).write_text(text)
        (stage / "lib").mkdir()
        (stage / "lib/not_packed").write_text("libnowhere.so.1\n")
        (self.straw / "deps").mkdir()
        subprocess.run(["tar", "-C", stage, "-cJf", self.straw / "deps/programs.tar.xz", "bin", "lib"], check=True)
        return self.straw / "deps"

    def test_packed_programs_are_not_built(self):
        status, text, results = self.check("--deps", self.packed(), "--only", "starts", BUILD_FAILS="1")
        steps = self.by_name(results)
        self.assertEqual(status, 0, text)
        self.assertEqual(steps["packed programs"][0], "passed")
        self.assertNotIn("build", steps)
        self.assertEqual(steps["starts without asking for a GPU"][0], "passed")

    def test_packed_programs_that_do_not_run_here_are_built(self):
        old = "#!/bin/sh\necho \"version 'GLIBC_2.99' not found\"\nexit 1\n"
        status, text, results = self.check("--deps", self.packed(dstrain=old), "--only", "starts")
        steps = self.by_name(results)
        self.assertEqual(status, 0, text)
        self.assertEqual(steps["packed programs"],
                         ("skipped", "they do not run here and are built from source: version 'GLIBC_2.99' not found"))
        self.assertEqual(steps["build"][0], "passed")
        self.assertEqual(steps["starts without asking for a GPU"][0], "passed")

    def test_all_parts(self):
        status, text, checks = self.check("--part", "all", "--only", "graph|124M, beside")
        self.assertEqual(status, 0, text)
        self.assertEqual(self.by_name(checks)["graph on and off"][0], "passed")
        self.assertEqual(self.by_name(self.results("figures"))["steps of GPT-2 124M, beside compiled PyTorch"][0],
                         "passed")

    def test_what_takes_too_long_is_ended_and_the_rest_not_begun(self):
        status, text, results = self.check("--seconds", "14", "--only", "starts|curve|graph", HANG="--version")
        steps = self.by_name(results)
        self.assertEqual(status, 1, text)
        self.assertEqual(steps["starts without asking for a GPU"],
                         ("failed", "not done in time; last: a rank waits for ever"))
        self.assertEqual(steps["graph on and off"], ("skipped", "no time left (--seconds)"))
        self.assert_ended()

    def test_a_call_that_is_ended_leaves_its_results_and_no_program(self):
        command, environment = self.command("--only", "starts|graph", HANG="dstrain.cuda_graph=on")
        with open(self.straw / "printed", "w") as printed:
            run = subprocess.Popen(command, env=environment, stdout=printed, stderr=printed)
            until = time.monotonic() + 120
            while not (self.straw / "pid").exists() and time.monotonic() < until:
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(timeout=60), 1)
        steps = self.by_name(self.results())
        self.assertEqual(steps["starts without asking for a GPU"][0], "passed")
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
        status, text, results = self.check("--only", "parity of k|curve, fp32|two ranks|NCCL|check|124M,|generate",
                                           GPU="NVIDIA Straw", OTHER_LOSS="cuda", NO_GPU_FOUND="1")
        steps = self.by_name(results)
        self.assertEqual(status, 1)
        self.assertEqual((results["gpu"], results["driver"]), ("NVIDIA Straw", "580.1"))
        self.assertEqual(steps["parity of kernels"], ("failed", "the tests found no GPU"))
        self.assertEqual(steps["loss curve, fp32"][0], "failed")
        self.assertIn("difference of the loss", steps["loss curve, fp32"][1])
        self.assertEqual(steps["generate"][0], "failed")
        for name in ("two ranks on one GPU, through the host", "one rank through NCCL",
                     "15 steps of GPT-2 124M, and the memory after step 1", "synccheck, products", "memcheck, training"):
            self.assertEqual(steps[name][0], "passed", text)
        self.assertEqual(results["texts"]["memory_after_step_1"], "140000 MiB, 900 MiB, 139100 MiB")
        self.assertEqual(steps["racecheck, kernels"], ("skipped", "compute-sanitizer does not support this device"))
        self.assertEqual(steps["memcheck, attention"][0], "failed")
        self.assertIn("Invalid __global__ read", steps["memcheck, attention"][1])
        self.assertIn("parity of kernels", text.split("failed: ")[-1])

    def test_figures_of_a_gpu(self):
        status, text, _ = self.check("--part", "figures", "--only", "kernels: |ncu|124M, beside", GPU="NVIDIA Straw")
        self.assertEqual(status, 1)
        results = self.results("figures")
        steps = self.by_name(results)
        first = "kernels: attention, linear, cross-entropy, Adam"
        self.assertEqual(list(steps)[:5], ["packed programs", "configure", "build", first,
                                           "steps of GPT-2 124M, beside compiled PyTorch"])
        self.assertEqual(steps[first], ("failed", "1 figures failed, the first: bad: it broke"))
        self.assertEqual(steps["ncu: forward_kernel"][0], "passed", text)
        self.assertEqual(steps["ncu: query_gradient_kernel"],
                         ("skipped", "the driver does not let this user read the GPU's counters"))
        self.assertIn("Duration us 70", results["texts"]["ncu_forward_kernel"])
        figures = results["figures"]
        self.assertEqual([f["name"] for f in figures["kernels"]], ["good", "bad"])
        self.assertEqual(steps["steps of GPT-2 124M, beside compiled PyTorch"][0], "passed", text)
        step = figures["steps"][0]
        self.assertEqual((step["name"], step["step_ms"]), ("GPT-2 124M", 10))
        self.assertEqual(step["torch"], {"skipped": "no PyTorch here"})

    def test_checks_run_at_once_as_jobs_says_and_each_is_noted_as_it_ends(self):
        only = ("--only", "starts|curve|graph|two ranks|memory is")
        status, text, results = self.check(*only, GPU="NVIDIA Straw")
        self.assertEqual(status, 0, text)
        passed = [step["name"] for step in results["steps"] if step["result"] == "passed"]
        self.assertEqual(passed[:4], ["configure", "build", "starts without asking for a GPU", "graph on and off"])
        status, text, results = self.check(*only, "--jobs", "4", GPU="NVIDIA Straw")
        self.assertEqual(status, 1, text)
        reasons = {step.get("reason") for step in results["steps"] if step["result"] == "failed"}
        self.assertEqual(reasons, {"another program runs on the GPU"})

    def test_all_parts_share_the_seconds_of_the_call(self):
        status, text, _ = self.check("--part", "all", "--seconds", "200", "--only", "no step")
        self.assertEqual(status, 0, text)
        seconds = [int(n) for n in re.findall(r"^part: .* (\d+) seconds$", text, re.MULTILINE)]
        self.assertEqual(seconds[0], 100)
        self.assertTrue(100 < seconds[1] <= 200, seconds)  # the checks needed few of theirs

    def test_a_build_that_fails(self):
        status, _, results = self.check(BUILD_FAILS="1")
        self.assertEqual(status, 1)
        self.assertEqual(self.by_name(results), {"packed programs": ("skipped", "there are none: they are built from source"),
                                                 "configure": ("passed", ""),
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
        program = self.straw / "elf/bin/dstrain"
        program.parent.mkdir(parents=True)
        shutil.copy(shutil.which("ls"), program)
        pack = [ROOT / "scripts/pack_gpu_deps.sh", "--programs", self.straw / "elf", "--limit"]
        run = subprocess.run([*pack, "64", self.straw / "deps"], text=True, capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"what travels: .* of at most 64 MiB")
        for header in ("libaio.h", "fmt/core.h", "boost/context/protected_fixedsize_stack.hpp"):
            self.assertTrue((self.straw / "deps/usr/include" / header).exists(), header)
        packed = set(subprocess.check_output(["tar", "-tf", self.straw / "deps/programs.tar.xz"], text=True).split())
        needed = set(re.findall(r"^\s*(lib\S+) => ", subprocess.check_output(["ldd", program], text=True), re.MULTILINE))
        self.assertEqual(packed, {"bin/", "lib/", "bin/dstrain", "lib/not_packed"}
                         | {f"lib/{name}" for name in needed if not name.startswith("libc.so")})
        run = subprocess.run([*pack, "1", self.straw / "deps"], text=True, capture_output=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("that is too much", run.stderr)


if __name__ == "__main__":
    unittest.main()
