#!/usr/bin/env python3
"""Generates the golden results of this folder with DeepSpeed on the CPU, two ranks.

    python3 tests/golden/deepspeed/make_deepspeed.py     # needs deepspeed, torch, transformers, numpy

Trains a small GPT-2 at each stage of ZeRO for 8 steps, and saves a checkpoint after the third. Writes, beside this file: tokens.bin,
config.json (what dstrain runs), stageN/ (the checkpoint, with the model's config.json beside it), and losses.json: of each stage the
loss of each step. At stages 1 to 3 the optimizer has two groups, of which biases and norms are not decayed.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, IDS, BATCH, STEPS, SAVED = 12, 61, 4, 8, 3
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}
WARMUP = {"warmup_min_lr": 0, "warmup_max_lr": 3e-3, "warmup_num_steps": 6, "warmup_type": "linear"}
CONFIG = {"train_batch_size": BATCH, "gradient_clipping": 1.0, "scheduler": {"type": "WarmupLR", "params": WARMUP}}


def train(stage, folder):
    import deepspeed
    import numpy
    import torch
    import transformers
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=8, n_head=2, n_positions=LENGTH, vocab_size=IDS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=1, eos_token_id=1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.25 + (0.7 if p.dim() == 1 else 0.0))
    if rank == 0:
        model.config.save_pretrained(folder)
    tokens = torch.from_numpy(numpy.fromfile(HERE / "tokens.bin", dtype=numpy.uint16).astype(numpy.int64))
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named]}] if stage == 0 else [
        {"params": [p for _, p in named if p.dim() > 1]}, {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **{**ADAMW, "betas": tuple(ADAMW["betas"])})
    config = {**CONFIG, "train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 20}}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    losses = []
    for step in range(STEPS):
        if step == SAVED:
            engine.save_checkpoint(str(folder), tag="step3")
        total = 0.0
        for micro in range(BATCH // world):
            at = (step * BATCH + micro * world + rank) * LENGTH
            window = tokens[at:at + LENGTH + 1][None]
            logits = engine(input_ids=window[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, IDS), window[:, 1:].reshape(-1))
            engine.backward(loss)
            engine.step()
            total += loss.item()
        total = torch.tensor([total])
        torch.distributed.all_reduce(total)
        losses.append(total.item() / BATCH)
    if rank == 0:
        (folder / "losses.json").write_text(json.dumps(losses))


def main():
    import numpy
    numpy.random.default_rng(3).integers(0, IDS, STEPS * BATCH * LENGTH + 1).astype(numpy.uint16).tofile(HERE / "tokens.bin")
    losses = {}
    for stage in range(4):
        with tempfile.TemporaryDirectory() as scratch:
            environment = {**os.environ, "DS_ACCELERATOR": "cpu", "MASTER_PORT": str(29600 + stage), "MASTER_ADDR": "127.0.0.1"}
            ranks = [subprocess.Popen([sys.executable, __file__, str(stage), scratch],
                                      env={**environment, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "2"}) for r in range(2)]
            if any([rank.wait() for rank in ranks]):
                sys.exit(f"stage {stage} failed")
            to = HERE / f"stage{stage}"
            shutil.rmtree(to, ignore_errors=True)
            (to / "step3").mkdir(parents=True)
            for file in pathlib.Path(scratch, "step3").glob("*.pt"):
                shutil.copy(file, to / "step3" / file.name)
            for name in ("latest", "config.json"):
                shutil.copy(pathlib.Path(scratch, name), to / name)
            losses[f"stage{stage}"] = json.loads(pathlib.Path(scratch, "losses.json").read_text())
    own = {"data": {"format": "bin", "order": "sequential", "val_fraction": 0, "seq_len": LENGTH}, "steps": STEPS, "save_last": False}
    config = {**CONFIG, "optimizer": {"type": "AdamW", "params": ADAMW}, "dstrain": own}
    (HERE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        train(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
    else:
        main()
