# The table of steps of scripts/gpu_check.sh, which reads this file. Each row: part, what it needs, the most seconds, name,
# command (a function of scripts/gpu_check_runs.sh).
#
# What says the most comes first: whoever loses a machine after a minute has 15 steps of GPT-2 124M. Adam divides a gradient
# by its own size, so one that is zero up to rounding moves a weight by the whole learning rate, either way: runs in fp32
# are compared for ten steps.
table() {
  row checks any 30 'starts without asking for a GPU' "$build/bin/dstrain" --version
  row checks any 90 '15 steps of GPT-2 124M, and the memory after step 1' gpt2_steps
  row checks any 60 'trace of GPT-2 124M' gpt2_trace
  at_once=$jobs
  row checks any 120 'parity of products' suite products
  row checks any 200 'parity of kernels' suite kernels
  row checks any 200 'parity of attention' suite attention
  row checks any 90 'graph on and off' graphs 1
  row checks any 60 'loss curve, fp32' as_on_cpu fp32 "$(sized 10 4)" --within 1e-4
  row checks any 60 'loss curve, bf16' as_on_cpu bf16 "$(sized 50 6)" --within 2e-2 --first 5 1e-3 -- bf16.enabled=true
  row checks any 60 'loss curve, fp16 with loss scaling' scaled_losses
  row checks any 120 '20 losses of GPT-2 124M against PyTorch' torch_losses
  row checks gpu 120 'memcheck, kernels' sanitized memcheck kernels
  row checks gpu 120 'memcheck, products' sanitized memcheck products
  row checks gpu 120 'memcheck, attention' sanitized memcheck attention
  row checks gpu 120 'memcheck, training' sanitized_training memcheck
  row checks any 120 'two ranks on one GPU, through the host' stages
  row checks any 60 'pipeline of two ranks' pipeline 2
  row checks any 60 'out of memory is found by the plan' out_of_memory
  row checks any 60 'optimizer in the host memory' offload cpu
  row checks any 60 'optimizer on disk' offload nvme
  row checks any 60 'codec: ZeRO++' codec zeropp zero_optimization.stage=3 zero_optimization.zero_quantized_weights=true \
    zero_optimization.zero_quantized_gradients=true
  row checks any 60 'codec: PowerSGD' codec powersgd dstrain.comm_hook.type=powerSGD dstrain.comm_hook.start_powerSGD_iter=2
  row checks any 60 'codec: OneBitAdam' codec onebit optimizer.type=OneBitAdam optimizer.params.freeze_step=2
  row checks any 60 'optimizer: Muon' as_on_cpu muon "$(sized 10 4)" --within 1e-3 -- optimizer.type=Muon
  row checks any 60 'families: Llama, Qwen3, GPT-2' families
  row checks any 90 'adapters beside weights in bf16, int8 and nf4' adapters
  row checks any 60 'phases and profile of steps' breakdown
  row checks any 60 'a trace on request' requested_trace
  row checks any 60 'the live line of GPT-2' live_line
  row checks any 60 'optimizer: Lamb' as_on_cpu lamb "$(sized 10 4)" --within 1e-3 -- optimizer.type=Lamb
  row checks any 60 'save and resume' resume
  row checks any 60 'generate' generate
  row checks any 60 'one rank through NCCL' one_rank_nccl
  row checks any 60 'machine code of the kernels' machine_code
  row checks gpu 150 'racecheck, kernels' sanitized racecheck kernels
  row checks gpu 150 'racecheck, products' sanitized racecheck products
  row checks gpu 150 'racecheck, attention' sanitized racecheck attention
  row checks gpu 150 'synccheck, kernels' sanitized synccheck kernels
  row checks gpu 150 'synccheck, products' sanitized synccheck products
  row checks gpu 150 'synccheck, attention' sanitized synccheck attention
  settle_until_fewer_than 1
  at_once=1

  row figures any 150 'kernels: attention, linear, cross-entropy, Adam' \
    kernel_figures 100 '^attention|^linear|^cross_entropy|^adam|^AdamW'
  row figures any 200 'steps of GPT-2 124M, beside compiled PyTorch' step_figures 180 '124M|tiny'
  row figures gpu 40 'ncu: forward_kernel' counters forward_kernel 'attention C=768 D=64'
  row figures gpu 40 'ncu: key_gradients_kernel' counters key_gradients_kernel 'attention_grad C=768 D=64'
  row figures gpu 40 'ncu: query_gradient_kernel' counters query_gradient_kernel 'attention_grad C=768 D=64'
  row figures gpu 300 'steps of GPT-2 350M to 1.5B' step_figures $(($(left) * 6 / 10)) '350M|774M|1.5B'
  row figures gpu 300 'the other kernels' kernel_figures $(($(left) * 7 / 10)) '^(?!attention|linear|cross_entropy|adam|AdamW)'

  local n=$ranks tensor=tensor_parallel.autotp_size=2 sequence=(--sequence_parallel_size 2) stages=(--pipeline_num_stages 2)
  row gpus 2 120 "ZeRO stages 0 to 3 have the same bits, $n ranks" all_stages "$n"
  row gpus 2 120 "a gradient that is not finite ends $n ranks" not_finite "$n"
  row gpus 2 120 "a rank that is killed ends $n ranks" killed_rank "$n"
  row gpus 2 120 "graph on and off, $n ranks" graphs "$n"
  row gpus 2 120 "tensor groups of 2 of $n ranks" layout "$n" tensor "$tensor"
  row gpus 2 120 "sequence groups of 2 of $n ranks" layout "$n" sequence "${sequence[@]}"
  row gpus 2 120 "1F1B over $n ranks" pipeline "$n"
  row gpus 4 120 "tensor groups in a pipeline, $n ranks" layout "$n" tensor_pipeline "$tensor" "${stages[@]}" \
    gradient_accumulation_steps=4
  row gpus 4 120 "sequence groups in a pipeline, $n ranks" layout "$n" sequence_pipeline "${sequence[@]}" "${stages[@]}" \
    gradient_accumulation_steps=4
  row gpus 4 120 "hpZ: parameters divided among $((n / 2)) of $n ranks" secondary_shards "$n" $((n / 2))
  row gpus 2 120 "qwZ: parameters travel in int8, $n ranks" quantized "$n" zero_quantized_weights
  row gpus 2 120 "qgZ: gradients travel in int4, $n ranks" quantized "$n" zero_quantized_gradients
  row gpus 2 120 "optimizer and parameters in the host memory, $n ranks" offload_on "$n"
  row gpus 2 120 "saved by $n ranks, resumed by $((n / 2))" resume_on_half "$n"
  row gpus 2 120 "validation, $n ranks" validation_on "$n"
  row gpus 2 120 "packed Llama, $n ranks" packed_llama "$n"
  row gpus 2 240 "speed of 1 and $n ranks, sums in rank order and by NCCL" scaling "$n"
}
