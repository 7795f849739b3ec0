#!/usr/bin/env python3
"""Generates the golden results of this folder: DPO, SimPO, ORPO, KTO and rewards of transformers' models in fp64, by the
definitions of TRL's DPOTrainer, CPOTrainer, ORPOTrainer, KTOTrainer and RewardTrainer.

    python3 tests/golden/preferences/make_preferences.py     # needs torch, transformers, safetensors, tokenizers

Starts from the weights of ../families. Writes, beside this file: pairs.jsonl and validation.jsonl, those of rated answers,
tokenizer.json and tokenizer_config.json, config.json (what dstrain runs), and cases.json: of each case the model's config.json,
the section dstrain.objective, what its configuration has besides, the loss, the gradient's norm and the metrics of each step,
and the loss of the validation at the end. score.safetensors is the head of rewards, and reward_index.json the index of the
model's weights with it.

ORPO's likelihood is that of the answers, each with its own mean, as the paper has it; TRL's trainer adds the prompts' tokens to
it and takes the mean over the tokens of a micro-batch.

KTO's divergence is the mean over a micro-batch of MICRO answers, each behind the prompt of the line after it, the second line's
behind that of the first. TRL takes the last answer of a batch for the first prompt.
"""
import copy
import json
import math
import pathlib
import platform
import random

import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
FAMILIES = HERE.parent / "families"
STEPS, BATCH, MICRO, LENGTH, IDS = 6, 4, 2, 12, 61
PAIRS, HELD_OUT = 10, 4
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}
CLIP = 1.5
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,?!"
END = "<end>"

OBJECTIVES = {
    "dpo": {"type": "dpo", "beta": 0.3},
    "dpo_smoothed": {"type": "dpo", "beta": 0.7, "label_smoothing": 0.1},
    "dpo_hinge": {"type": "dpo", "loss_type": "hinge", "beta": 0.1},
    "dpo_ipo": {"type": "dpo", "loss_type": "ipo", "beta": 0.2},
    "simpo": {"type": "simpo", "beta": 2.0, "simpo_gamma": 1.0},
    "orpo": {"type": "orpo", "beta": 0.25},
    "reward": {"type": "reward", "center_rewards_coefficient": 0.05},
    "kto": {"type": "kto", "beta": 0.3, "desirable_weight": 1.2, "undesirable_weight": 0.8},
    "apo": {"type": "kto", "loss_type": "apo_zero_unpaired", "beta": 0.3, "undesirable_weight": 0.8},
}


# ---------------------------------------------------------------- data
def make_tokenizer():
    """One token for each letter, and one that ends texts."""
    space = "\u0120"  # how byte-level tokenizers write a space
    vocabulary = {(space if c == " " else c): i for i, c in enumerate(LETTERS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(HERE / "tokenizer.json"))
    (HERE / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}) + "\n")
    return tokenizer


def make_pairs(count, rng):
    """Prompts and answers of different lengths, of which some are longer than a sample with their prompt."""
    text = lambda least, most: "".join(rng.choice(LETTERS) for _ in range(rng.randint(least, most)))
    pairs = []
    while len(pairs) < count:
        pair = {"prompt": text(2, 6), "chosen": text(1, 7), "rejected": text(1, 9)}
        if pair["chosen"] != pair["rejected"]:
            pairs.append(pair)
    return pairs


def make_rated(count, rng):
    text = lambda least, most: "".join(rng.choice(LETTERS) for _ in range(rng.randint(least, most)))
    return [{"prompt": text(2, 6), "completion": text(1, 8), "label": i % 5 not in (1, 4)} for i in range(count)]


def write_lines(name, lines):
    (HERE / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows_of(pair, tokenizer):
    """The ids of the chosen and the rejected answer behind the prompt, and which of them count."""
    return [row_of(pair["prompt"], answer, tokenizer) for answer in (pair["chosen"], pair["rejected"])]


def row_of(prompt, answer, tokenizer):
    ids = (tokenizer.encode(prompt + answer + END).ids)[:LENGTH]
    return torch.tensor(ids), torch.arange(len(ids)) >= len(tokenizer.encode(prompt).ids)


def rated_rows(lines, tokenizer):
    """Of each line the ids of the answer and of another line's answer, which of them count, and the label."""
    other = [lines[i - 1 if i > 0 else 1]["completion"] for i in range(len(lines))]
    return [(row_of(line["prompt"], line["completion"], tokenizer), row_of(line["prompt"], answer, tokenizer), line["label"])
            for line, answer in zip(lines, other, strict=True)]


# ---------------------------------------------------------------- losses
def log_prob(model, ids, counts):
    """The log-probability of the tokens that count, and their number."""
    logits = model(input_ids=ids[None]).logits[0, :-1].double()
    each = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
    return (each * counts[1:]).sum(), int(counts[1:].sum())


def log1mexp(x):
    return torch.log1p(-torch.exp(x))


def pair_loss(objective, model, reference, rows):
    (chosen, n_chosen), (rejected, n_rejected) = (log_prob(model, *row) for row in rows)
    beta, kind = objective["beta"], objective["type"]
    smoothing = objective.get("label_smoothing", 0.0)
    metrics = {}
    if kind == "dpo":
        with torch.no_grad():
            (before, _), (rejected_before, _) = (log_prob(reference, *row) for row in rows)
        metrics = {"logps/chosen": chosen, "logps/rejected": rejected}
        chosen_score, rejected_score = chosen - before, rejected - rejected_before
        margin = chosen_score - rejected_score
        loss_type = objective.get("loss_type", "sigmoid")
        if loss_type == "sigmoid":
            loss = -F.logsigmoid(beta * margin) * (1 - smoothing) - F.logsigmoid(-beta * margin) * smoothing
        elif loss_type == "hinge":
            loss = torch.relu(1 - beta * margin)
        else:
            loss = (chosen_score / n_chosen - rejected_score / n_rejected - 1 / (2 * beta)) ** 2
        rewards = beta * chosen_score, beta * rejected_score
    else:
        chosen, rejected = chosen / n_chosen, rejected / n_rejected
        metrics = {"logps/chosen": chosen, "logps/rejected": rejected}
        rewards = beta * chosen, beta * rejected
        if kind == "simpo":
            loss = -F.logsigmoid(beta * (chosen - rejected - objective["simpo_gamma"] / beta))
        else:
            odds = (chosen - rejected) - (log1mexp(chosen) - log1mexp(rejected))
            loss = -chosen - beta * F.logsigmoid(odds)
            metrics |= {"nll_loss": -chosen, "log_odds_ratio": F.logsigmoid(odds), "log_odds_chosen": odds}
    metrics |= {"rewards/chosen": rewards[0], "rewards/rejected": rewards[1], "rewards/margins": rewards[0] - rewards[1],
                "rewards/accuracies": (rewards[0] > rewards[1]).double()}
    return loss, metrics


def mean_over(objective, model, reference, pairs):
    results = [pair_loss(objective, model, reference, rows) for rows in pairs]
    loss = sum(loss for loss, _ in results) / len(results)
    return loss, {name: float(sum(metrics[name].detach() for _, metrics in results)) / len(results) for name in results[0][1]}


def kto_loss(objective, model, reference, samples):
    """The sum of the losses of samples, their rewards and log-probabilities by label, and the sum of their divergence."""
    beta, losses, metrics = objective["beta"], [], {"kl": 0.0}
    diverges = objective.get("loss_type") != "apo_zero_unpaired"
    for first in range(0, len(samples), MICRO):
        micro = samples[first : first + MICRO]
        with torch.no_grad():
            kl = sum(log_prob(model, *other)[0] - log_prob(reference, *other)[0] for _, other, _ in micro) / len(micro)
            kl = max(float(kl), 0.0) if diverges else 0.0
        metrics["kl"] += kl * len(micro)
        for own, _, wanted in micro:
            answer = log_prob(model, *own)[0]
            with torch.no_grad():
                before = log_prob(reference, *own)[0]
            score = answer - before
            weight = objective.get("desirable_weight" if wanted else "undesirable_weight", 1.0)
            losses.append(weight * (1 - torch.sigmoid(beta * (score - kl if wanted else kl - score))))
            kind = "chosen" if wanted else "rejected"
            metrics.setdefault("rewards/" + kind, []).append(beta * score.item())
            metrics.setdefault("logps/" + kind, []).append(answer.item())
    means = {name: sum(values) / len(values) for name, values in metrics.items() if name != "kl"}
    if "rewards/chosen" in means and "rewards/rejected" in means:
        means["rewards/margins"] = means["rewards/chosen"] - means["rewards/rejected"]
    return sum(losses) / len(losses), means | ({"kl": metrics["kl"] / len(samples)} if diverges else {})


class Scorer(torch.nn.Module):
    """A decoder whose last token has a score."""

    def __init__(self, decoder, score):
        super().__init__()
        self.decoder = decoder
        self.score = torch.nn.Parameter(score)

    def forward(self, ids):
        return (self.decoder(input_ids=ids[None]).last_hidden_state[0, -1] * self.score[0]).sum()


def reward_loss(objective, model, reference, pairs):
    results = []
    for rows in pairs:
        chosen, rejected = (model(ids) for ids, _ in rows)
        loss = -F.logsigmoid(chosen - rejected) + objective["center_rewards_coefficient"] * (chosen + rejected) ** 2
        results.append((loss, {"mean_reward": (chosen + rejected) / 2, "accuracy": (chosen > rejected).double(),
                               "margin": chosen - rejected}))
    metrics = {name: sum(m[name].item() for _, m in results) / len(results) for name in results[0][1]}
    return sum(loss for loss, _ in results) / len(results), metrics


def train(model, objective, pairs, held_out):
    reference = copy.deepcopy(model).double().eval()
    model = copy.deepcopy(model).double().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"])
    steps = []
    mean = {"kto": kto_loss, "reward": reward_loss}.get(objective["type"], mean_over)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, metrics = mean(objective, model, reference, [pairs[(step * BATCH + i) % len(pairs)] for i in range(BATCH)])
        loss.backward()
        norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in model.parameters()))
        for p in model.parameters():
            p.grad *= min(1.0, CLIP / (norm + 1e-6))
        optimizer.step()
        steps.append({"loss": loss.item(), "grad_norm": norm, "metrics": metrics})
    with torch.no_grad():
        return steps, mean(objective, model, reference, held_out)[0].item()


# ---------------------------------------------------------------- cases
def main():
    torch.set_num_threads(2)
    rng = random.Random(5)
    tokenizer = make_tokenizer()
    pairs, held_out = make_pairs(PAIRS, rng), make_pairs(HELD_OUT, rng)
    write_lines("pairs.jsonl", pairs)
    write_lines("validation.jsonl", held_out)
    rated, rated_out = make_rated(PAIRS, rng), make_rated(HELD_OUT, rng)
    write_lines("rated.jsonl", rated)
    write_lines("rated_validation.jsonl", rated_out)
    configs = {case["name"]: case["config"] for case in json.loads((FAMILIES / "cases.json").read_text())["cases"]}
    cases = []
    for name, objective in OBJECTIVES.items():
        weights = "gpt2" if name in ("dpo_ipo", "orpo") else "llama"
        config = transformers.AutoConfig.for_model(**configs[weights])
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.load_state_dict(load_file(FAMILIES / weights / "model.safetensors"))
        if objective["type"] == "kto":
            data = [rated_rows(some, tokenizer) for some in (rated, rated_out)]
        else:
            data = [[rows_of(p, tokenizer) for p in some] for some in (pairs, held_out)]
        if name == "reward":
            generator = torch.Generator().manual_seed(7)
            score = torch.randn(1, config.hidden_size, generator=generator) * 0.3
            save_file({"score.weight": score}, HERE / "score.safetensors")
            names = {key: "base.safetensors" for key in load_file(FAMILIES / weights / "model.safetensors")}
            index = {"metadata": {}, "weight_map": names | {"score.weight": "score.safetensors"}}
            (HERE / "reward_index.json").write_text(json.dumps(index) + "\n")
            model = Scorer(model.model, score)
        steps, validation = train(model, objective, *data)
        cases.append({"name": name, "weights": weights, "config": configs[weights], "objective": objective,
                      "micro_batch": MICRO if objective["type"] == "kto" else 1, "steps": steps, "validation": validation})
    own = {"data": {"order": "sequential", "seq_len": LENGTH}, "steps": STEPS, "save_last": False}
    config = {"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": CLIP,
              "optimizer": {"type": "AdamW", "params": ADAMW}, "dstrain": own}
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version()}
    (HERE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (HERE / "cases.json").write_text(json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
