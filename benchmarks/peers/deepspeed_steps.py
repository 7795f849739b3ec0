#!/usr/bin/env python3
"""Runs and times training steps in DeepSpeed on its CPU accelerator, as one rank of several, for
compare_stages.py. Requests and answers are those of torch_steps.py, and every rank is asked. Rank, size and
address come from the environment, as DeepSpeed's launcher would set them."""
import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch_steps import answer_requests, build, own_answers, parser, start_rank


def main():
    p = parser()
    p.add_argument("--zero", type=json.loads, required=True, help="the section zero_optimization, as JSON")
    p.add_argument("--tensor", type=int, default=1, help="ranks of a tensor group (AutoTP)")
    o = p.parse_args()
    answers = own_answers()
    start_rank(o)
    with contextlib.redirect_stdout(sys.stderr):
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
        model, x, y = build(o)
        config = {
            "train_micro_batch_size_per_gpu": o.batch,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 1.0,
            "steps_per_print": 10**9,
            "zero_optimization": o.zero,
            "bf16": {"enabled": o.dtype == "bf16"},
            "zero_allow_untested_optimizer": True,
        }
        if o.tensor > 1:
            config["tensor_parallel"] = {"autotp_size": o.tensor}
        if "offload_optimizer" in o.zero:
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            optimizer = DeepSpeedCPUAdam(model.parameters(), lr=1e-4, weight_decay=0.01)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if o.dtype == "bf16" and x.is_floating_point():
        x = x.bfloat16()

    def step():
        start = time.perf_counter()
        loss = F.cross_entropy(engine(x).float().flatten(0, -2), y)
        engine.backward(loss)
        engine.step()
        return (time.perf_counter() - start) * 1e3

    for _ in range(2):
        step()
    print(json.dumps({"ready": deepspeed.__version__}), file=answers, flush=True)
    answer_requests(step, answers)


if __name__ == "__main__":
    main()
