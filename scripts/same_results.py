#!/usr/bin/env python3
"""Runs small configurations with two builds of dstrain and compares what they write and print, byte by byte.

  scripts/same_results.py OLD NEW [--only PART_OF_A_NAME]

OLD and NEW are the programs. Weights, checkpoints, vocabularies, settings, the losses of every step and the output of
`plan`, `check`, `estimate` and `generate` must be the same; of a checkpoint's manifest all but the line of the run. A line
for each difference, and one in the end; the exit status is 1 if there is a difference. For changes that keep every bit.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

GPT = {"type": "gptlite", "n_layer": 2, "n_embd": 32, "n_head": 2, "block_size": 16, "dropout": 0.1}
GPT2 = {**GPT, "activation": "gelu", "qkv_bias": True, "tied_head": True}
DNN = {"type": "benchmark", "n_layer": 5, "in_size": 9, "hidden_size": 21, "out_size": 7}
LIMIT_S = 120
OWN_OF_A_RUN = ("line",)  # the member of a manifest that names the run itself
TIMED = ("step_ms", "samples_per_second")


def config(model, top=None, **own):
    return {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, **(top or {}),
            "dstrain": {"model": model, "data": {"path": "data.txt"}, "steps": 3, "eval_samples": 5, **own}}


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, **more}}


def optimizer(kind, **params):
    return {"optimizer": {"type": kind, "params": {"lr": 1e-2, **params}}}


BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}
NVME = {"device": "nvme", "nvme_path": "nvme"}
CPU = {"device": "cpu"}

# Name: the configuration, the number of ranks, further words of the command line.
RUNS = {
    "gpt": (config(GPT), 1, ""),
    "gpt_eval": (config(GPT, eval_interval=1, save_interval=1), 1, ""),
    "gpt2": (config(GPT2, seed=7), 1, "--steps 2"),
    "gpt_bf16_stage_0": (config(GPT, {**BF16, **zero(0)}), 2, ""),
    "gpt_bf16_stage_1": (config(GPT2, {**BF16, **zero(1)}), 2, ""),
    "gpt_fp16_stage_2": (config(GPT, {**FP16, **zero(2)}, recompute="selective"), 2, ""),
    "gpt_fp16_stage_3": (config(GPT2, {**FP16, **zero(3)}, recompute=1), 2, ""),
    "gpt_stage_3_auto": (config(GPT, zero(3, reduce_bucket_size="auto", stage3_prefetch_bucket_size="auto",
                                          stage3_param_persistence_threshold="auto")), 3, "--set train_batch_size=9"),
    "gpt_pipeline": (config(GPT2, {"train_micro_batch_size_per_gpu": 2, "pipeline": {"stages": 2}}), 2, ""),
    "gpt_pipeline_zb_v": (config({**GPT, "n_layer": 3}, {**BF16, "train_micro_batch_size_per_gpu": 1,
                                                        "pipeline": {"stages": 2, "schedule": "zb-v"}}), 2, ""),
    "gpt_offload_host": (config(GPT, {**BF16, **zero(3, offload_optimizer=CPU, offload_param=CPU)}), 2, ""),
    "gpt_offload_nvme": (config(GPT2, {**BF16, **zero(3, offload_optimizer=NVME, offload_param=NVME)}), 1, ""),
    "gpt_activations": (config(GPT, {**FP16, **zero(2)}, offload={"activations": "cpu"}, recompute=1), 1, ""),
    "gpt_muon": (config(GPT, {**BF16, **zero(1), **optimizer("Muon")}), 2, ""),
    "gpt_lamb": (config(GPT2, {**zero(2), **optimizer("Lamb")}), 2, ""),
    "gpt_one_bit": (config(GPT, {**BF16, **optimizer("OneBitAdam", freeze_step=1)}), 2, ""),
    "gpt_one_bit_lamb": (config(GPT, {**FP16, **zero(1), **optimizer("OneBitLamb", freeze_step=1)}), 2, ""),
    "gpt_zero_one": (config(GPT, {**zero(0), **optimizer("ZeroOneAdam", var_freeze_step=1, local_step_scaler=1)}), 2,
                     "--steps 4"),
    "gpt_quantized": (config({**GPT, "n_embd": 64}, {**BF16, **zero(3, zero_quantized_weights=True,
                                                                  zero_quantized_gradients=True)}), 2, ""),
    "gpt_sparse": (config({**GPT, "vocab_size": 5000}, {**zero(0), "sparse_gradients": True}), 2, ""),
    "gpt_power_sgd": (config(GPT, {**zero(1)}, comm_hook={"type": "powerSGD", "start_powerSGD_iter": 1}), 2, ""),
    "gpt_loss_chunks": (config({**GPT, "block_size": 300}, BF16, loss_chunks=4, data={"path": "data.txt", "format": "byte"}),
                        1, "--steps 1"),
    "gpt_mlp_chunks": (config({**GPT, "block_size": 300}, mlp_chunks=4, data={"path": "data.txt", "format": "byte"}),
                       1, "--steps 1"),
    "gpt_excluded": (config(GPT, optimizer("AdamW", weight_decay=0.1), weight_decay_exclude=["*.bias", "ln.*"]), 1, ""),
    "gpt_tokens": (config({**GPT, "vocab_size": 300}, data={"path": "data.bin", "order": "sequential"}), 1, ""),
    "dnn": (config(DNN), 1, ""),
    "dnn_one_layer": (config({**DNN, "n_layer": 1}), 1, ""),
    "dnn_bf16_stage_2": (config(DNN, {**BF16, **zero(2)}, eval_interval=2), 2, ""),
    "dnn_fp16_stage_3": (config(DNN, {**FP16, **zero(3)}, recompute=2), 2, ""),
    "dnn_pipeline": (config(DNN, {"train_micro_batch_size_per_gpu": 2, "pipeline": {"stages": 2}}), 2, ""),
    "dnn_offload_nvme": (config(DNN, {**BF16, **zero(2, offload_optimizer=NVME)}), 2, ""),
    "dnn_muon": (config(DNN, {**zero(1), **optimizer("Muon")}), 2, ""),
    "dnn_sgd": (config(DNN, optimizer("SGD", momentum=0.9)), 1, "--seed 5"),
}

BIG = {**GPT2, "n_layer": 12, "n_embd": 768, "n_head": 12, "block_size": 1024, "vocab_size": 50257}
WIDE = {**DNN, "n_layer": 40, "hidden_size": 1000}
# Name: the configuration, the command with {} for "--config FILE".
PRINTS = {
    "plan_big": (config(BIG, {**BF16, **zero(2)}), "plan {} --num_gpus 4 --rank 2 --json"),
    "plan_big_text": (config(BIG, {**BF16, **zero(1)}), "plan {} --num_gpus 8"),
    "plan_big_stage_3": (config(BIG, {**FP16, **zero(3)}), "plan {} --num_gpus 8 --rank 7 --json --device emulated"),
    "plan_big_pipeline": (config(BIG, {**BF16, "train_micro_batch_size_per_gpu": 1, "train_batch_size": 32,
                                       "pipeline": {"stages": 4, "partition": "memory"}}),
                          "plan {} --num_gpus 8 --rank 5 --json"),
    "plan_big_by_name": (config(BIG, {"pipeline": {"stages": 2, "partition": "type:blocks"}}),
                         "plan {} --num_gpus 2 --rank 1 --json"),
    "plan_big_offload": (config(BIG, {**BF16, **zero(3, offload_optimizer=CPU)}), "plan {} --num_gpus 2 --device emulated"),
    "plan_big_sparse": (config({**BIG, "tied_head": False}, {**zero(0), "sparse_gradients": True}), "plan {} --num_gpus 4"),
    "plan_big_largest": (config(BIG, {**BF16, **zero(2)}), "plan {} --num_gpus 2 --largest --device_memory 2GB "
                                                         "--host_memory 8GB --json"),
    "plan_largest_disk": (config({**BIG, "tied_head": False}, BF16), "plan {} --num_gpus 1 --largest --device_memory 1GB "
                                                                   "--host_memory 2GB --disk 20GB"),
    "plan_wide": (config(WIDE, {**BF16, **zero(3)}), "plan {} --num_gpus 4 --rank 3 --json"),
    "plan_wide_pipeline": (config(WIDE, {"train_micro_batch_size_per_gpu": 1, "pipeline": {"stages": 4}}),
                           "plan {} --num_gpus 4 --rank 1 --json"),
    "plan_assumed": (config(GPT, data={"path": "none.bin"}), "plan {} --num_gpus 2 --json"),
    "plan_defaults": ({"train_batch_size": 8}, "plan {} --num_gpus 1 --set dstrain.model.vocab_size=65"),
    "check": (config(GPT2, {**FP16, **zero(2)}), "check {} --num_gpus 4 --json"),
    "check_dnn": (config(DNN, {"sparse_gradients": True}, loss_chunks=2), "check {} --num_gpus 2 --json"),
    "check_wrong": (config({**GPT, "n_head": 5, "in_size": 3, "n_layers": 2}, hidden_size=3), "check {} --json"),
    "check_broken": ('{"train_batch_size": 8,\n "dstrain": ', "check {}"),
    "check_missing": (config({"type": "benchmark", "n_embd": 3}), "check {} --json"),
    "check_type": (config({"type": "gptheavy"}), "check {}"),
    "check_huge": (config({**GPT, "n_embd": 2147483646, "block_size": 2147483647, "vocab_size": 2147483647}), "check {}"),
    "check_stages": (config(GPT, {"pipeline": {"stages": 5}}), "check {} --num_gpus 5"),
    "plan_model": (config(GPT), "plan {} --model gptheavy"),
    "estimate": (config(BIG, zero(3)), "estimate {} --num_gpus 4"),
    "generate": (None, "generate --run results/gpt --prompt ov --tokens 40 --seed 3"),
    "generate_hot": (None, "generate --run results/gpt2 --prompt q --tokens 30 --temperature 1.5 --top_k 5"),
    "generate_checkpoint": (None, "generate --run results/gpt_eval/checkpoints/step_2 --prompt fox --tokens 9"),
    "generate_dnn": (None, "generate --run results/dnn --prompt a --tokens 3"),
}


def write_data(folder):
    lines = "".join(f"{n} quick brown foxes jump over {n * n % 97} lazy dogs\n" for n in range(160))
    (folder / "data.txt").write_text(lines)
    ids = [(n * n + 3 * n) % 300 for n in range(4000)]
    (folder / "data.bin").write_bytes(b"".join(i.to_bytes(2, "little") for i in ids))


def call(program, words, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run([program, *words.split()], cwd=folder, env=environment, timeout=LIMIT_S,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def without(record, names):
    return {key: value for key, value in record.items() if key not in names}


def result_of(path):
    """Returns what must be the same of a file that a run wrote: text."""
    data = path.read_bytes()
    if path.name == "manifest.json":
        return json.dumps(without(json.loads(data)["content"], OWN_OF_A_RUN))
    if path.name == "metrics.jsonl":
        return "\n".join(json.dumps(without(json.loads(line), TIMED)) for line in data.splitlines())
    return digest(data)


def same_files(old, new):
    """Returns the differences of the files that two runs wrote, a line each."""
    left_out = (".dstrain.lock", "lineage.json", "mpirun.log")
    names = [sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name not in left_out)
             for folder in (old, new)]
    if names[0] != names[1]:
        return [f"other files: {sorted(set(names[0]) ^ set(names[1]))}"]
    return [f"{name} differs" for name in names[0] if result_of(old / name) != result_of(new / name)]


def same_output(old, new):
    if old.returncode != new.returncode:
        return [f"exit status {old.returncode} and {new.returncode}: {new.stderr.decode()[-300:]}"]
    for stream in ("stdout", "stderr"):
        lines = [getattr(done, stream).decode().splitlines() for done in (old, new)]
        for before, after in zip(*lines):
            if before != after:
                return [f"{stream} was '{before[:300]}' and is '{after[:300]}'"]
        if len(lines[0]) != len(lines[1]):
            return [f"{stream} had {len(lines[0])} lines and has {len(lines[1])}"]
    return []


def run_case(name, programs, folders):
    settings, ranks, words = RUNS[name]
    done = []
    for program, folder in zip(programs, folders):
        (folder / f"{name}.json").write_text(json.dumps(settings, indent=1))
        done.append(call(program, f"train --config {name}.json --device cpu --num_gpus {ranks} --output results/{name} {words}",
                         folder))
    if done[0].returncode != 0:
        return [f"does not train with OLD: {done[0].stderr.decode()[-300:]}"]
    if done[1].returncode != 0:
        return [f"does not train with NEW: {done[1].stderr.decode()[-300:]}"]
    return same_files(*(folder / "results" / name for folder in folders))


def print_case(name, programs, folders):
    settings, command = PRINTS[name]
    for folder in folders:
        if settings:
            (folder / f"{name}.json").write_text(settings if isinstance(settings, str) else json.dumps(settings, indent=1))
    words = command.replace("{}", f"--config {name}.json")
    return same_output(*(call(program, words, folder) for program, folder in zip(programs, folders)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="", metavar="PART", help="the cases whose names have this part")
    args = parser.parse_args()
    programs = [os.path.abspath(args.old), os.path.abspath(args.new)]
    differences = cases = 0
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folders = [pathlib.Path(temporary, side) for side in ("old", "new")]
        for folder in folders:
            folder.mkdir()
            write_data(folder)
        for function, table in ((run_case, RUNS), (print_case, PRINTS)):
            # Texts are generated with the weights of runs of their own.
            names = [name for name in table if args.only in name]
            for name, found in zip(names, pool.map(lambda n, f=function: f(n, programs, folders), names)):
                cases += 1
                for difference in found:
                    differences += 1
                    print(f"{name}: {difference}", flush=True)
    print(f"{cases} cases, {differences} difference{'' if differences == 1 else 's'}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
