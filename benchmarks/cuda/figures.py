"""The arithmetic of measure.py: models, FLOPs, fractions, ratios. Needs neither a GPU nor PyTorch."""
import collections
import statistics

SEQ = 1024
VOCABULARY = 50257  # dstrain pads its products inside; PyTorch gets a vocabulary of padded() tokens
Model = collections.namedtuple("Model", "layers channels heads seq vocabulary", defaults=(SEQ, VOCABULARY))
MODELS = {
    "GPT-2 124M": Model(12, 768, 12),
    "GPT-2 350M": Model(24, 1024, 16),
    "GPT-2 774M": Model(36, 1280, 20),
    "GPT-2 1.5B": Model(48, 1600, 25),
}
TINY = {"tiny": Model(1, 32, 2, 32, 257)}  # for the emulated device, to test measure.py
LARGEST_MICRO_BATCH = 64  # a larger one gives no more tokens per second
SHARE_OF_MEMORY = 0.6  # share of the GPU's memory that our plan may use: PyTorch needs more at the same batch

# Dense bf16 FLOPs per second by data sheet; the key is the beginning of the GPU's name.
PEAKS = {
    "NVIDIA H200": 989.4e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100": 989.4e12,
    "NVIDIA A100": 312e12,
}


def peak_of(gpu):
    """Returns the data sheet's FLOPs per second, or None for a GPU that is not in the table."""
    names = [name for name in PEAKS if gpu.startswith(name)]
    return PEAKS[max(names, key=len)] if names else None


def padded(vocabulary):
    """Returns what users of PyTorch make of a vocabulary, so that its products are fast."""
    return (vocabulary + 127) // 128 * 128


def model_named(name):
    return (MODELS | TINY)[name]


def parameters_of(model):
    """Returns the number of parameters of a GPT-2 with a tied head."""
    m = model_named(model)
    c = m.channels
    return m.vocabulary * c + m.seq * c + m.layers * (12 * c * c + 13 * c) + 2 * c


def settings_of(model, micro_batch):
    """Returns the settings that replace those of configs/gpt2_124m.json: the model's size, one micro-batch per
    step, no validation and no checkpoints."""
    m = model_named(model)
    return {
        "dstrain.model.n_layer": m.layers,
        "dstrain.model.n_embd": m.channels,
        "dstrain.model.n_head": m.heads,
        "dstrain.model.block_size": m.seq,
        "dstrain.model.vocab_size": m.vocabulary,
        "train_batch_size": micro_batch,
        "train_micro_batch_size_per_gpu": micro_batch,
        "dstrain.eval_interval": 0,
        "dstrain.save_interval": 0,
    }


def step_flops(plan):
    """Returns the FLOPs of a step by `dstrain plan --json`: products and the causal half of attention. These
    plans recompute nothing, so no FLOP counts twice."""
    return sum(instruction["flops"] for instruction in plan["instructions"])


def fitting_micro_batch(bytes_needed, gpu_bytes):
    """Returns the largest power of two up to LARGEST_MICRO_BATCH for which bytes_needed(micro_batch) is within
    the share of `gpu_bytes`, or None if one sample is too large."""
    micro_batch = LARGEST_MICRO_BATCH
    while micro_batch >= 1:
        if bytes_needed(micro_batch) <= SHARE_OF_MEMORY * gpu_bytes:
            return micro_batch
        micro_batch //= 2
    return None


def step_figure(micro_batch, step_ms, flops, gemm_tflops, gpu, seq=SEQ):
    """Returns the speed of a step from the times of several, in milliseconds. `gemm_tflops` may be None."""
    seconds = statistics.median(step_ms) * 1e-3
    peak = peak_of(gpu)
    return {
        "micro_batch": micro_batch,
        "steps": len(step_ms),
        "step_ms": seconds * 1e3,
        "lowest_ms": min(step_ms),
        "highest_ms": max(step_ms),
        "tokens_per_second": micro_batch * seq / seconds,
        "tflops": flops / seconds * 1e-12,
        "of_gemm_probe": flops / seconds * 1e-12 / gemm_tflops if gemm_tflops else None,
        "mfu": flops / seconds / peak if peak else None,
    }


# Comparisons of kernels: name -> our cases, whose times are added up, and PyTorch's cases (torch_kernels.py), of
# which the fastest counts.
def peers():
    table = {}
    for c, d in ((768, 64), (1600, 64), (768, 128), (1536, 128)):
        for dropout in ("", " dropout 0.1"):
            at = f" C={c} D={d}{dropout}"
            for what, ours in (("forward", ["attention"]), ("forward+backward", ["attention", "attention_grad"])):
                theirs = [f"sdpa {backend} {what}{at}" for backend in ("flash", "cudnn")]
                table[f"attention {what}{at}"] = ([case + at for case in ours], theirs)
    for c in (768, 1600):
        ours = ["layer_norm", "layer_norm_grad"]
        theirs = [f"layer_norm {how} forward+backward C={c}" for how in ("eager", "compiled")]
        table[f"layer_norm forward+backward C={c}"] = ([f"{case} C={c}" for case in ours], theirs)
    for v in (50257, 50304):
        theirs = [f"cross_entropy {how} forward+backward V={v}" for how in ("eager", "compiled")]
        table[f"cross_entropy forward+backward V={v}"] = ([f"cross_entropy V={v}"], theirs)
    table["AdamW"] = (["adam f32"], ["adamw fused"])
    for k, n in ((768, 2304), (768, 3072), (3072, 768), (768, 50257), (768, 50304), (1600, 6400)):
        table[f"linear K={k} N={n}"] = ([f"linear K={k} N={n}"], [f"linear K={k} N={n}"])
    return table


def ratio_figure(name, rounds):
    """Returns how many times as fast as PyTorch's our kernels are. A round has our times in microseconds and a
    dict of PyTorch's; the variant of PyTorch with the lowest median counts."""
    ways = {way: statistics.median(theirs[way] for _, theirs in rounds) for way in rounds[0][1]}
    best = min(ways, key=ways.get)
    ratios = [theirs[best] / sum(ours) for ours, theirs in rounds]
    return {
        "name": name,
        "us": statistics.median(sum(ours) for ours, _ in rounds),
        "torch_us": ways[best],
        "torch_way": best,
        "torch_ways": ways,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }
