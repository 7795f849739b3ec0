"""The programs that a comparison alternates between: dstrain, PyTorch and DeepSpeed. Each is one process or
several that train the same model, and runs only inside block(steps)."""
import array
import ctypes
import json
import os
import pathlib
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 65

PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl  # looked up here, because nothing may be loaded between fork and exec
THIS_PROCESS = os.getpid()


def die_with_us():
    """Runs in a new process before its exec: asks the kernel to send it SIGKILL when this script ends, for
    whatever reason. SIGKILL also ends a stopped process, which other signals and a closed pipe do not. The
    processes that dstrain starts end with it, since mpirun and the ranks ask the kernel for the same."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != THIS_PROCESS:  # this script ended before the call above
        os._exit(1)


def read_commented_json(text):
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*: (.*)", text)
    products = ", AMX" if " amx_bf16" in text else ", AVX512_BF16" if " avx512_bf16" in text else ""
    return (found.group(1) if found else platform.processor()) + products


def peak_rss(pids):
    """Returns the peak resident set size of each process, in bytes."""
    peaks = []
    for pid in pids:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        peaks.append(int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024)
    return peaks


def torch_environment(python, folder):
    """Returns the environment variables that PyTorch's bf16 products need on this machine: none on most
    machines, the preload of amx_palette.c where the hypervisor hides AMX's palettes, or else a limit to a lower
    instruction set."""
    probe = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); (a @ a).sum().item()"
    shim = folder / "amx_palette.so"
    source = ROOT / "benchmarks/peers/amx_palette.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, source], check=False)
    for extra in ({}, {"LD_PRELOAD": str(shim)}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}):
        run = subprocess.run([python, "-c", probe], env={**os.environ, **extra}, capture_output=True)
        if run.returncode == 0:
            return extra
    sys.exit(f"PyTorch does not run here:\n{run.stderr.decode()}")


def take_turns(ours, theirs, rounds, steps, middle=statistics.median):
    """Runs one block of each program per round. Returns all of our times, all of theirs, and for each round the
    ratio of their median (or what `middle` makes of a block's times) to ours."""
    our_ms, their_ms, ratios = [], [], []
    for _ in range(rounds):
        b = theirs.block(steps)
        a = ours.block(steps)
        our_ms += a
        their_ms += b
        ratios.append(middle(b) / middle(a))
    return our_ms, their_ms, ratios


class Asked:
    """Processes that run steps when a line on their standard input asks for them. Every process is asked; the
    times of the first one are used. `under`: for each process the words in front of the command."""

    def __init__(self, command, environments, under=None):
        self.processes = [
            subprocess.Popen(
                [*words, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, **environment}, preexec_fn=die_with_us,
            )
            for words, environment in zip(under or [()] * len(environments), environments)
        ]  # fmt: skip
        self.ready = self.answers()
        self.version = self.ready[0]["ready"]

    def answers(self):
        lines = [p.stdout.readline() for p in self.processes]
        if not all(lines):
            sys.exit("a peer's process ended; its error is above")
        return [json.loads(line) for line in lines]

    def block(self, steps):
        for p in self.processes:
            p.stdin.write(f"{steps}\n")
            p.stdin.flush()
        return self.answers()[0]["ms"]

    def peak_rss(self):
        return peak_rss(p.pid for p in self.processes)

    def close(self):
        for p in self.processes:
            p.kill()
            p.wait()


def words_of(settings):
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def torch_contender(python, model, batch, dtype, threads, environment):
    command = [python, str(ROOT / "benchmarks/peers/torch_steps.py")]
    settings = {"model": model["type"], "batch": batch, "dtype": dtype, "threads": threads}
    if "config" in model:  # one of transformers' models
        model = {**model, "config": json.dumps(model["config"])}
    settings |= {k: v for k, v in model.items() if k != "type"}
    return Asked(
        command + words_of(settings), [{"OMP_NUM_THREADS": str(threads), **environment}]
    )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def deepspeed_contender(python, model, batch, dtype, zero, ranks, environment, tensor=1):
    """Starts one process per rank, each on its own core, over gloo, as DeepSpeed's launcher would. `zero`: the section
    zero_optimization. `tensor`: ranks of a tensor group."""
    more = {"zero": json.dumps(zero), "tensor": tensor}
    return ranks_contender(python, "deepspeed_steps.py", model, batch, dtype, ranks, environment, more)


def ranks_contender(python, script, model, batch, dtype, ranks, environment, more=None):
    """Starts one process of a peer's script per rank, each on its own core."""
    port = free_port()
    command = [python, str(ROOT / "benchmarks/peers" / script)]
    settings = {"model": model["type"], "batch": batch, "dtype": dtype, "threads": 1, **(more or {})}
    if "config" in model:  # one of transformers' models
        model = {**model, "config": json.dumps(model["config"])}
    settings |= {k: v for k, v in model.items() if k != "type"}
    each = [
        {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
            "LOCAL_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **environment,
        }
        for rank in range(ranks)
    ]  # fmt: skip
    return Asked(command + words_of(settings), each)


class Dstrain:
    """Our command and its ranks, stopped except inside block(). `settings` is added to the configuration of
    model, batch and optimizer. `under`: the words that start the ranks of a run on several hosts."""

    def __init__(self, program, model, batch, dtype, folder, ranks=1, settings=None, under=()):
        folder.mkdir(exist_ok=True)
        config = {
            "train_micro_batch_size_per_gpu": batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0,
            "steps_per_print": 1000000,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.01}},
            "dstrain": {"model": model, "steps": 1000000, "save_last": False},
        }
        for section, values in (settings or {}).items():
            if isinstance(values, dict):
                values = {**config.get(section, {}), **values}
            config[section] = values
        if dtype == "bf16":
            config["bf16"] = {"enabled": True}
        if "block_size" in model:  # it reads tokens
            vocabulary = model["config"]["vocab_size"] if "config" in model else VOCABULARY
            tokens = array.array("H", random.Random(1).choices(range(vocabulary), k=200000))
            (folder / "tokens.bin").write_bytes(tokens.tobytes())
            data = {"path": str(folder / "tokens.bin"), "format": "bin", "order": "sequential"}
            config["dstrain"]["data"] = data
        if "config" in model:  # one of transformers' models
            (folder / "model.json").write_text(json.dumps(model["config"]))
            config["dstrain"]["model"] = str(folder / "model.json")
            config["dstrain"]["data"]["seq_len"] = model["block_size"]
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        self.log = open(folder / "log.txt", "w")
        command = [*under, program] if under else [program, "--num_gpus", str(ranks)]
        command += ["--device", "cpu", "--config", folder / "config.json", "--overwrite", "--output", folder / "out"]
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=die_with_us,
        )  # fmt: skip
        self.metrics = folder / "out" / "metrics.jsonl"
        self.folder, self.read, self.newest, self.ranks = folder, 0, {}, ranks
        self.program = program
        self.steps(2)
        self.signal(signal.SIGSTOP)

    def family(self):
        """Returns the command's process and its descendants. They share a session, but not a process group; ranks that
        mpirun started on another host have a session of their own, and the folder among their arguments."""
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # the process has ended
            if int(fields[3]) == self.process.pid or str(self.folder / "config.json").encode() in words:
                pids.append(int(entry.name))
        return pids

    def rank_pids(self):
        """Returns the processes that train: the largest ones."""
        family = sorted(self.family(), key=lambda pid: -peak_rss([pid])[0])
        return family[: self.ranks]

    def peak_rss(self):
        return peak_rss(self.rank_pids())

    def state_bytes(self):
        """Returns the bytes of weights, gradients and moments on a rank, as the plan places them."""
        command = [self.program, "plan", "--config", self.folder / "config.json", "--num_gpus", str(self.ranks)]
        plan = subprocess.run([*command, "--device", "cpu", "--json"], capture_output=True, text=True, check=True)
        memory = json.loads(plan.stdout)["memory"]
        return sum(memory[part] for part in ("parameters", "gradients", "optimizer"))

    def signal(self, number):
        for pid in self.family():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def steps(self, count):
        """Waits for `count` more steps and returns their times."""
        times = []
        while len(times) < count:
            if self.process.poll() is not None:
                sys.exit("dstrain ended:\n" + (self.folder / "log.txt").read_text())
            times += self.unread()
            time.sleep(0.05)  # looking takes the processor from the steps
        return times

    def unread(self):
        """Returns the times of the steps that ended since the last call."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().split("\n")[:-1]
        records = [record for record in map(json.loads, lines[self.read :]) if "loss" in record]
        self.read = len(lines)
        self.newest = records[-1] if records else self.newest
        return [record["step_ms"] for record in records]

    def block(self, steps):
        self.signal(signal.SIGCONT)
        # The first step to end was running when the process was stopped, so its time does not count.
        times = self.steps(steps + 1)[1 : steps + 1]
        self.signal(signal.SIGSTOP)
        self.unread()  # steps that ended before the signal; the first to end in the next block was then running
        return times

    def close(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
