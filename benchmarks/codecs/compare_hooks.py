#!/usr/bin/env python3
"""Times steps with PyTorch's DDP communication hooks over gloo and with ours alternately, and prints median ratios.

    sudo .deps/peer/bin/python benchmarks/codecs/compare_hooks.py [--mbit 200 1000] [--ranks_per_host 1 2] [--only ...]
    .deps/peer/bin/python benchmarks/codecs/compare_hooks.py --local

With --mbit the ranks are on two hosts, which are network namespaces of this machine with a limited link between them
(benchmarks/overlap/two_hosts.py); with --local there are two ranks on this machine. GPT-lite, fp32, Adam, the same
weights and samples: the first loss must be the same within 1e-6, relative, and the next two, which no factor and no
local step has changed, within 1e-4, or the script fails. Both overlap communication with the backward pass where they
can.

Both programs exist at the same time and alternate, as in benchmarks/peers/compare_steps.py: a round is one block of
steps of each, and its ratio is PyTorch's median step over ours. With post_localSGD a block has whole periods, and
means are compared, because one step of a period does most of the communication. Without --local, the bytes that the
first host puts on the link in a step are counted where they leave it; `link` is the time that our bytes take at the
link's rate, over our step: 1 is a step that only fewer bytes make shorter. `most` is the ratio that PyTorch's step
would have to one that takes no longer than our bytes on the link.

powerSGD and batched_powerSGD have rank 4 from step 3 on. PyTorch has one bucket there: with several, gloo ends the
processes (torch_hook_steps.py). So its batched_powerSGD makes one square of all gradients, ours one of each layer's.
post_localSGD averages the weights every 4 updates from step 3 on, and a group is the ranks of a host, with --local each
rank.

DeepSpeed's OneBitAdam cannot stand beside ours: DeepSpeed 0.19.8 has no 1-bit optimizers any more (no
deepspeed/runtime/fp16/onebit).

Writes benchmarks/results/codecs_hooks.json after every row; rows of other settings from the same kind of machine are
kept.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "benchmarks/peers"), str(ROOT / "benchmarks/overlap")]
from contenders import VOCABULARY, Asked, Dstrain, free_port, processor, take_turns, words_of  # noqa: E402
from two_hosts import NETWORK, Hosts  # noqa: E402

START, PERIOD, RANK = 2, 4, 4
POWER = {"start_powerSGD_iter": START, "matrix_approximation_rank": RANK}
# Of each of PyTorch's hooks our section dstrain.comm_hook.
HOOKS = {
    "none": {},
    "fp16_compress": {},
    "bf16_compress": {},
    "powerSGD": POWER,
    "batched_powerSGD": POWER,
    "post_localSGD": {"start_localSGD_iter": START, "period": PERIOD},
}
# The largest relative difference of the first losses: powerSGD and post_localSGD begin after START steps.
TOLERANCES = [1e-6] + [1e-4] * START
WARM_UP = START + PERIOD


class Counted:
    """A contender, and the bytes that the first host sends in its blocks. `more`: steps in front of a block that are
    counted and not timed. Of dstrain a block has one more, which `step_number` tells."""

    def __init__(self, contender, hosts, step_number, more=0):
        self.contender, self.hosts, self.step_number, self.more = contender, hosts, step_number, more
        self.bytes = self.steps = 0

    def block(self, steps):
        bytes_before, step_before = self.hosts.sent(0), self.step_number()
        times = self.contender.block(steps + self.more)[self.more :]
        self.bytes += self.hosts.sent(0) - bytes_before
        self.steps += (self.step_number() - step_before) or steps + self.more
        return times

    def bytes_of_step(self):
        return self.bytes / self.steps


def model_of(o):
    return {
        "type": "gptlite", "n_layer": o.layers, "n_embd": o.width, "n_head": o.width // 64, "block_size": o.seq,
        "dropout": 0.0, "vocab_size": VOCABULARY,
    }  # fmt: skip


def ours(o, hook, hosts, ranks_per_host, folder):
    section = {"type": "noop" if hook == "none" else hook, **HOOKS[hook]}
    if not hosts:  # else all ranks are one group
        section["post_local_gradient_allreduce"] = False
    settings = {
        "gradient_clipping": 0.0,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.0}},
        "zero_optimization": {"stage": 0, "overlap_comm": True},
        # Ranks are stopped for as long as the others' turn lasts.
        "dstrain": {"comm_hook": section, "silence_s": 100000, "timeout_s": 100000},
    }
    under = hosts.mpirun(o.threads, ranks_per_host) if hosts else ()
    return Dstrain(o.program, model_of(o), o.batch, "fp32", folder, 2 * ranks_per_host, settings, under)


def initial_weights(o, folder):
    words = ["--num_gpus", "1", "--device", "cpu", "--steps", "0", "--quiet"]
    words += ["--config", str(folder / "config.json"), "--overwrite", "--output", str(folder / "initial")]
    done = subprocess.run([o.program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"no initial weights:\n{done.stdout}{done.stderr}")
    return folder / "initial" / "model.safetensors"


def theirs(o, hook, hosts, ranks_per_host, folder):
    """`folder`: that of our run, with its weights and tokens."""
    settings = {
        **model_of(o), "model": "gptlite", "batch": o.batch, "dtype": "fp32", "threads": o.threads, "hook": hook,
        "rank_of_factors": RANK, "start": START, "period": PERIOD, "warm_up": WARM_UP,
        "ranks_per_group": ranks_per_host if hosts else 1,
        "weights": initial_weights(o, folder), "tokens": folder / "tokens.bin",
    }  # fmt: skip
    del settings["type"]
    command = [o.python, str(ROOT / "benchmarks/codecs/torch_hook_steps.py"), *words_of(settings)]
    ranks = 2 * ranks_per_host
    network = {"MASTER_ADDR": f"{NETWORK}.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
    if not hosts:
        network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    each = [
        {"RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(o.threads), **network}
        for rank in range(ranks)
    ]
    return Asked(command, each, [hosts.enter(r // ranks_per_host) for r in range(ranks)] if hosts else None)


def losses_of(us, them):
    """Returns our first losses and theirs, means over ranks."""
    lines = [json.loads(line) for line in us.metrics.read_text().splitlines()]
    means = [statistics.mean(losses) for losses in zip(*(answer["losses"] for answer in them.ready))]
    return [line["loss"] for line in lines[: len(TOLERANCES)]], means[: len(TOLERANCES)]


def compare(o, hook, hosts, mbit, ranks_per_host, folder):
    us = them = None
    try:
        us = ours(o, hook, hosts, ranks_per_host, folder / "ours")
        us.block(WARM_UP)
        them = theirs(o, hook, hosts, ranks_per_host, folder / "ours")
        losses = losses_of(us, them)
        if any(abs(a - b) > tolerance * abs(b) for a, b, tolerance in zip(*losses, TOLERANCES)):
            sys.exit(f"{hook}: our losses {losses[0]} are not PyTorch's {losses[1]}")
        local_sgd = hook == "post_localSGD"
        middle = statistics.mean if local_sgd else statistics.median
        steps = 2 * PERIOD if local_sgd else o.steps
        a, b = us, them
        if hosts:
            # So many more that our blocks, too, have whole periods.
            more = PERIOD - 1 if local_sgd else 0
            a, b = Counted(us, hosts, lambda: us.newest["step"], more), Counted(them, hosts, lambda: 0)
        our_ms, their_ms, ratios = take_turns(a, b, o.rounds, steps, middle)
        row = {
            "hook": hook, "mbit": mbit, "ranks_per_host": ranks_per_host, "ratio": statistics.median(ratios),
            "ratios": ratios, "dstrain_ms": middle(our_ms), "torch_ms": middle(their_ms), "torch": them.version,
            "first_losses": losses,
        }  # fmt: skip
        if hosts:
            row |= {"dstrain_bytes": a.bytes_of_step(), "torch_bytes": b.bytes_of_step()}
            link_ms = row["dstrain_bytes"] * 8 / (mbit * 1e3)
            row |= {"link": link_ms / row["dstrain_ms"], "most": row["torch_ms"] / link_ms}
        return row
    finally:
        for contender in (us, them):
            if contender:
                contender.close()


def text_of(row):
    text = f"{row['ratio']:5.2f} ({min(row['ratios']):.2f}-{max(row['ratios']):.2f})"
    text = f"{row['hook']:17} {text:18} {row['dstrain_ms']:8.1f} {row['torch_ms']:8.1f}"
    if row["mbit"]:
        text += f" {row['dstrain_bytes'] / 1e6:8.2f} {row['torch_bytes'] / 1e6:8.2f}"
        text += f" {row['link']:6.2f} {row['most']:6.2f}"
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = p.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="two ranks on this machine, no limited link")
    where.add_argument("--mbit", type=int, nargs="+", default=[200, 1000], help="rates of the link in either direction")
    p.add_argument("--ranks_per_host", type=int, nargs="+", default=[1, 2])
    p.add_argument("--only", nargs="+", choices=list(HOOKS), default=list(HOOKS))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=4, help="steps per block")
    p.add_argument("--threads", type=int, default=1, help="threads per rank")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--seq", type=int, default=64)
    p.add_argument("--batch", type=int, default=1, help="samples per rank")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with torch installed")
    o = p.parse_args()
    os.environ |= {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": str(o.threads),
    }  # fmt: skip
    path = ROOT / "benchmarks/results/codecs_hooks.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    rows = old.get("results", []) if old.get("processor") == processor() else []
    version = subprocess.run([o.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    said = ("rounds", "steps", "threads", "layers", "width", "seq", "batch")
    arguments = {key: getattr(o, key) for key in said}
    command = shlex.join(["benchmarks/codecs/compare_hooks.py", *sys.argv[1:]])
    places = [(0, 1)] if o.local else [(m, r) for m in o.mbit for r in o.ranks_per_host]
    for mbit, ranks_per_host in places:
        with tempfile.TemporaryDirectory(prefix="dstrain-hooks-") as name, contextlib.ExitStack() as stack:
            hosts = stack.enter_context(contextlib.closing(Hosts(mbit, pathlib.Path(name)))) if mbit else None
            os.environ["TMPDIR"] = name
            print(f"two hosts, {mbit} Mbit/s, ranks of a host: {ranks_per_host}" if mbit else "one host, ranks: 2")
            print("hook              ratio (range)       ours ms torch ms  ours MB torch MB   link   most")
            for hook in o.only:
                folder = pathlib.Path(name) / hook
                folder.mkdir()
                row = compare(o, hook, hosts, mbit, ranks_per_host, folder)
                row |= {"dstrain": version, "command": command, "arguments": arguments}
                same = ("hook", "mbit", "ranks_per_host")
                rows = [r for r in rows if any(r[k] != row[k] for k in same)] + [row]
                print(text_of(row), flush=True)
                record = {"processor": processor(), "results": rows}
                path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
