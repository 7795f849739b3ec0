#!/usr/bin/env python3
"""Times our training step and PyTorch's alternately on the same cores; prints the median ratio.

    python3 -m venv .deps/peer && .deps/peer/bin/pip install torch numpy
    .deps/peer/bin/python benchmarks/peers/compare_steps.py [--cases REGEX] [--rounds N]

Both programs live at the same time and take turns: while one runs its block of steps the other is
stopped (SIGSTOP) or waits for a request. A round is one block of each; its ratio is PyTorch's median
step over ours, so above 1 means that dstrain is faster. The machine's mood cancels out of a ratio,
as it would not out of two runs made one after the other. Results go to benchmarks/results/steps.json.
"""
import argparse
import array
import ctypes
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 65

PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may be loaded
THIS_PROCESS = os.getpid()


def die_with_us():
    """In a new process, before its exec: the kernel kills it when this script ends, however that is.
    SIGKILL also ends a stopped process, which no other signal and no closed pipe would. What dstrain
    itself starts falls with it: mpirun and the ranks each ask the kernel for the same."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != THIS_PROCESS:  # this script ended before the line above
        os._exit(1)


def read_commented_json(text):
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def cases():
    """name -> (our model section, micro-batch, dtype)"""
    table = {}
    for dtype in ("fp32", "bf16"):
        for t, batch in ((256, 8), (2048, 1)):
            for dropout in (0.0, 0.1):
                model = {"type": "gptlite", "block_size": t, "dropout": dropout, "vocab_size": VOCABULARY}
                table[f"gptlite-T{t}-dropout{dropout:g}-{dtype}"] = (model, batch, dtype)
        for name in ("wide", "deep"):
            config = read_commented_json((ROOT / f"configs/benchmark_{name}.json").read_text())
            table[f"benchmark-{name}-{dtype}"] = (
                config["dstrain"]["model"], config["train_batch_size"], dtype
            )  # fmt: skip
    return table


def torch_environment(python, folder):
    """What PyTorch needs to reach its bf16 products here: nothing on most machines, the preload of
    amx_palette.c where the hypervisor hides AMX's palettes, else a lower instruction set."""
    probe = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum().item()"
    shim = folder / "amx_palette.so"
    source = ROOT / "benchmarks/peers/amx_palette.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, source], check=False)
    for extra in ({}, {"LD_PRELOAD": str(shim)}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}):
        run = subprocess.run([python, "-c", probe], env={**os.environ, **extra}, capture_output=True)
        if run.returncode == 0:
            return extra
    sys.exit(f"PyTorch does not run here:\n{run.stderr.decode()}")


class Torch:
    """The PyTorch process; idle (blocked on its input) except inside block()."""

    def __init__(self, python, model, batch, dtype, threads, environment):
        command = [python, str(ROOT / "benchmarks/peers/torch_steps.py")]
        settings = {"model": model["type"], "batch": batch, "dtype": dtype, "threads": threads}
        settings |= {k: v for k, v in model.items() if k != "type"}
        for key, value in settings.items():
            command += [f"--{key}", str(value)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **environment},
            preexec_fn=die_with_us,
        )  # fmt: skip
        self.version = self.answer()["ready"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the PyTorch process ended; its error is above")
        return json.loads(line)

    def block(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self.answer()["ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Dstrain:
    """Our process, one rank, stopped except inside block()."""

    def __init__(self, program, model, batch, dtype, folder):
        config = {
            "train_micro_batch_size_per_gpu": batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0,
            "steps_per_print": 1000000,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
            "dstrain": {"model": model, "steps": 1000000},
        }
        if dtype == "bf16":
            config["bf16"] = {"enabled": True}
        if model["type"] == "gptlite":
            tokens = array.array("H", random.Random(1).choices(range(VOCABULARY), k=200000))
            (folder / "tokens.bin").write_bytes(tokens.tobytes())
            data = {"path": str(folder / "tokens.bin"), "format": "bin", "order": "sequential"}
            config["dstrain"]["data"] = data
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        self.log = open(folder / "log.txt", "w")
        command = [program, "--num_gpus", "1", "--device", "cpu"]
        command += ["--config", folder / "config.json", "--output", folder / "out"]
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=die_with_us,
        )  # fmt: skip
        self.metrics = folder / "out" / "metrics.jsonl"
        self.folder, self.read = folder, 0
        self.steps(2)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        """To the process and what it started: ranks are children of the command."""
        os.killpg(self.process.pid, number)

    def steps(self, count):
        """Waits for `count` more steps and returns their times."""
        times = []
        while len(times) < count:
            if self.process.poll() is not None:
                sys.exit("dstrain ended:\n" + (self.folder / "log.txt").read_text())
            if self.metrics.exists():
                lines = self.metrics.read_text().split("\n")[:-1]
                for line in lines[self.read :]:
                    record = json.loads(line)
                    if "loss" in record:
                        times.append(record["step_ms"])
                self.read = len(lines)
            time.sleep(0.005)
        return times

    def block(self, steps):
        self.signal(signal.SIGCONT)
        # The first step that ends was under way when the process was stopped.
        times = self.steps(steps + 1)[1:]
        self.signal(signal.SIGSTOP)
        return times

    def close(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()


def compare(name, options):
    model, batch, dtype = cases()[name]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-peers-"))
    ours = theirs = None
    try:
        ours = Dstrain(options.program, model, batch, dtype, folder)
        environment = torch_environment(options.python, folder)
        theirs = Torch(options.python, model, batch, dtype, options.threads, environment)
        our_ms, their_ms, ratios = [], [], []
        for _ in range(options.rounds):
            b = theirs.block(options.steps)
            a = ours.block(options.steps)
            our_ms += a
            their_ms += b
            ratios.append(statistics.median(b) / statistics.median(a))
        return {
            "case": name,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "dstrain_ms": statistics.median(our_ms),
            "torch_ms": statistics.median(their_ms),
            "torch": theirs.version,
            "torch_environment": sorted(environment),
        }
    finally:
        for process in (ours, theirs):
            if process:
                process.close()
        shutil.rmtree(folder)


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*: (.*)", text)
    return found.group(1) if found else platform.processor()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cases", default="", help="only cases whose name matches this expression")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3, help="steps of a block")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/steps.json"))
    options = p.parse_args()
    if options.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")

    version = subprocess.run([options.program, "--version"], capture_output=True, text=True)
    results = []
    record = {
        "dstrain": version.stdout.strip(),
        "processor": processor(),
        "threads": options.threads,
        "results": results,
    }
    path = pathlib.Path(options.result)
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"{'case':36} {'dstrain ms':>11} {'torch ms':>10} {'ratio':>7}   lowest-highest")
    for name in cases():
        if not re.search(options.cases, name):
            continue
        r = compare(name, options)
        results.append(r)
        print(
            f"{name:36} {r['dstrain_ms']:11.1f} {r['torch_ms']:10.1f} {r['ratio']:6.2f}x   "
            f"{min(r['ratios']):.2f}-{max(r['ratios']):.2f}",
            flush=True,
        )
        # After every case, so that a run that is stopped keeps what it has measured.
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
