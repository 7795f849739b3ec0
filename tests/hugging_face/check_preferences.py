#!/usr/bin/env python3
"""Compares DPO and IPO with TRL's own DPOTrainer, SimPO with its CPOTrainer, KTO with its KTOTrainer, and
rewards with its RewardTrainer; and opens a model with a score by transformers.

  check_preferences.py --program DSTRAIN --folder EMPTY_FOLDER

Trains the golden Llama (tests/golden/families) on the golden pairs (tests/golden/preferences) with TRL on the CPU in fp32 and with
dstrain, and compares losses and rewards of each step. A line for each comparison; the exit status is 1 if one fails. Needs
torch, transformers, trl, datasets and safetensors.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import torch
import transformers
from datasets import Dataset

from checks import failures, larger, report

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
STEPS, BATCH, LENGTH, LONGEST = 6, 4, 12, 16
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}
METRICS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
METRICS_OF_REWARD = ("mean_reward", "accuracy", "margin")
METRICS_OF_KTO = ("rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "kl")
CASES = {
    "dpo": ({"type": "dpo", "beta": 0.3}, {"beta": 0.3}),
    "hinge": ({"type": "dpo", "loss_type": "hinge", "beta": 0.1}, {"beta": 0.1, "loss_type": "hinge"}),
    "ipo": ({"type": "dpo", "loss_type": "ipo", "beta": 0.2}, {"beta": 0.2, "loss_type": "ipo"}),
    "simpo": ({"type": "simpo", "beta": 2.0, "simpo_gamma": 1.0},
              {"beta": 2.0, "simpo_gamma": 1.0, "loss_type": "simpo", "cpo_alpha": 0.0}),
    "reward": ({"type": "reward", "center_rewards_coefficient": 0.01}, {"center_rewards_coefficient": 0.01}),
    "kto": ({"type": "kto", "beta": 0.3, "desirable_weight": 1.2}, {"beta": 0.3, "desirable_weight": 1.2}),
    "apo": ({"type": "kto", "loss_type": "apo_zero_unpaired", "beta": 0.3, "undesirable_weight": 0.8},
            {"loss_type": "apo_zero_unpaired", "beta": 0.3, "undesirable_weight": 0.8}),
}


RATED = ("kto", "apo")


def data_of(name):
    return GOLDEN / "preferences" / ("rated.jsonl" if name in RATED else "pairs.jsonl")


def model_folder(folder):
    to = folder / "model"
    to.mkdir(parents=True, exist_ok=True)
    config = next(c["config"] for c in json.loads((GOLDEN / "families/cases.json").read_text())["cases"] if c["name"] == "llama")
    (to / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    shutil.copy(GOLDEN / "families/llama/model.safetensors", to)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "preferences" / name, to)
    return to


def scored_folder(model):
    """Returns the model with the head of the golden rewards."""
    to = model.parent / "scored"
    shutil.copytree(model, to, dirs_exist_ok=True)
    (to / "model.safetensors").rename(to / "base.safetensors")
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, "max_position_embeddings": LONGEST}))
    shutil.copy(GOLDEN / "preferences/score.safetensors", to)
    shutil.copy(GOLDEN / "preferences/reward_index.json", to / "model.safetensors.index.json")
    return to


def length_of(name):
    return LONGEST if name == "reward" else LENGTH  # TRL leaves longer answers out


def trl_steps(name, settings, model, folder):
    """Returns the logs of TRL's steps, on the pairs in their order."""
    if name == "simpo":
        from trl.experimental.cpo import CPOConfig as Config, CPOTrainer as Trainer
    elif name in RATED:
        from trl import KTOConfig as Config, KTOTrainer as Trainer
    elif name == "reward":
        from trl import RewardConfig as Config, RewardTrainer as Trainer
    else:
        from trl import DPOConfig as Config, DPOTrainer as Trainer

    class InOrder(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    pairs = [json.loads(line) for line in data_of(name).read_text().splitlines()]
    # Behind the last pair the order begins again, within a batch too.
    dataset = Dataset.from_list([pairs[i % len(pairs)] for i in range(STEPS * BATCH)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"), eos_token="<end>",
                                                     pad_token=padding(pairs))
    config = Config(output_dir=str(folder / f"trl-{name}"), per_device_train_batch_size=BATCH, max_steps=STEPS, logging_steps=1,
                    learning_rate=ADAMW["lr"], adam_beta1=ADAMW["betas"][0], adam_beta2=ADAMW["betas"][1], adam_epsilon=ADAMW["eps"],
                    weight_decay=ADAMW["weight_decay"], max_grad_norm=1.5, lr_scheduler_type="constant", max_length=length_of(name),
                    report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False, seed=1, **settings)
    if name == "reward":
        decoder = transformers.AutoModelForSequenceClassification.from_pretrained(
            model, num_labels=1, attn_implementation="eager", dtype=torch.float32, pad_token_id=tokenizer.pad_token_id)
    else:
        decoder = transformers.AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager", dtype=torch.float32)
    trainer = InOrder(model=decoder, args=config, train_dataset=dataset, processing_class=tokenizer)
    if name == "kto":
        # TRL rotates the answers of each batch, dstrain takes the answer of the line before.
        answers = trainer.train_dataset["completion_ids"]
        others = [answers[i % len(pairs) - 1] if i % len(pairs) else answers[1] for i in range(len(answers))]
        trainer.train_dataset = trainer.train_dataset.remove_columns("KL_completion_ids").add_column("KL_completion_ids", others)
    # Hugging Face's Trainer does not decay biases and norms; dstrain is told so by weight_decay_exclude.
    trainer.train()
    return [log for log in trainer.state.log_history if "loss" in log]


def padding(pairs):
    """Returns a letter that no text has: transformers read a score at the last token that is no padding."""
    text = "".join(str(value) for pair in pairs for value in pair.values())
    return next(letter for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,?!" if letter not in text)


def own_steps(program, name, objective, model, folder):
    config = {"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": 1.5,
              "optimizer": {"type": "AdamW", "params": ADAMW},
              "dstrain": {"data": {"path": str(data_of(name)), "order": "sequential", "seq_len": length_of(name),
                                   "val_fraction": 0},
                          "steps": STEPS, "save_last": False, "objective": objective,
                          "weight_decay_exclude": ["*.bias", "*norm*"]}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    output = folder / f"own-{name}"
    run = subprocess.run([program, "--config", path, "--model", model, "--output", output], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    return [line for line in map(json.loads, (output / "metrics.jsonl").read_text().splitlines()) if "loss" in line]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    model = model_folder(arguments.folder)
    scored = scored_folder(model)
    for name, (objective, settings) in CASES.items():
        model = scored if name == "reward" else arguments.folder / "model"
        theirs = trl_steps(name, settings, model, arguments.folder)
        ours = own_steps(arguments.program, name, objective, model, arguments.folder)
        for key in ("loss", *{"kto": METRICS_OF_KTO, "apo": METRICS_OF_KTO[:-1], "reward": METRICS_OF_REWARD}.get(name, METRICS)):
            worst = 0.0
            for a, b in zip(ours, theirs, strict=True):
                if key not in b and a[key] is None:  # no answer of this label is in the batch
                    continue
                worst = larger(worst, abs(a[key] - b[key]))
            report(f"{name}: {key} of {STEPS} steps, absolute", worst, 1e-4)
    output = arguments.folder / "own-reward"
    opened, info = transformers.AutoModelForSequenceClassification.from_pretrained(output, output_loading_info=True)
    report("reward: tensors that transformers miss or do not know", len(info["missing_keys"]) + len(info["unexpected_keys"]), 0)
    report("reward: labels beside one", abs(opened.config.num_labels - 1), 0)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
