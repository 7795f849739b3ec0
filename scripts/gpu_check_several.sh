# The steps of scripts/gpu_check.sh that need several GPUs; gpu_check_runs.sh reads this file. The first argument of each is
# the number of ranks, each with a GPU of its own.

# A learning rate without bounds, in fp32, where no step is skipped: every rank must end, and say why, although its graphs
# hold the communicators.
not_finite() { # ranks
  local status=0
  train not_finite "$device" 200 --num_gpus "$1" "train_batch_size=$((8 * $1))" --ignore scheduler \
    optimizer.params.lr=1e30 >"$work/texts/not_finite" 2>&1 || status=$?
  cat "$work/texts/not_finite"
  [[ $status == 2 ]]
  grep -q 'non-finite' "$work/texts/not_finite"
}
killed_rank() { # ranks
  local status=0 run rank
  train killed "$device" 100000 --num_gpus "$1" "train_batch_size=$((8 * $1))" bf16.enabled=true \
    >"$work/texts/killed_rank" 2>&1 &
  run=$!
  until grep -qs '"step":3,' "$work/killed/metrics.jsonl" || ! kill -0 $run 2>/dev/null; do sleep 0.1; done
  rank=$(pgrep -n -f -- "--output $work/killed ") # the last process that was started
  kill -KILL "$rank"
  wait $run || status=$?
  cat "$work/texts/killed_rank"
  [[ $status == 2 ]]
  grep -qE "rank [0-9]+.*(signal 9|killed)" "$work/texts/killed_rank"
}
# Parameters that every group of ranks holds once more have the bits of those that are divided among all.
secondary_shards() { # ranks, ranks of a group
  local size
  for size in 1 "$2"; do
    train "shards_$size" "$device" "$(sized 20 3)" --num_gpus "$1" "train_batch_size=$((8 * $1))" bf16.enabled=true \
      zero_optimization.stage=3 "zero_optimization.zero_hpz_partition_size=$size" \
      zero_optimization.stage3_param_persistence_threshold=0 dstrain.deterministic_collectives=true
  done
  same_bits shards_1 "shards_$2"
}

# train_on RANKS NAME WORDS...: trains on as many ranks of the device, each with 8 samples a step.
train_on() {
  local ranks=$1 name=$2
  shift 2
  train "$name" "$device" "$(sized 20 3)" --num_gpus "$ranks" "train_batch_size=$((8 * ranks))" dstrain.model.n_head=4 "$@"
}
# layout RANKS NAME WORDS...: a run whose ranks are divided by WORDS has the losses of the same ranks on the CPU, and the same
# bits with graphs and without.
layout() {
  local ranks=$1 name=$2 mode
  shift 2
  as_on_cpu "$name" "$(sized 20 3)" --within 2e-2 --first 3 2e-3 -- --num_gpus "$ranks" "train_batch_size=$((8 * ranks))" \
    dstrain.model.n_head=4 dstrain.model.n_layer=4 bf16.enabled=true "$@"
  for mode in "$(graphs_on "$ranks")" off; do
    train_on "$ranks" "${name}_graph_$mode" dstrain.model.n_layer=4 bf16.enabled=true "dstrain.cuda_graph=$mode" "$@"
  done
  same_bits "${name}_graph_$(graphs_on "$ranks")" "${name}_graph_off"
}
# All ZeRO stages have the same bits, where ranks add in rank order, with one micro-batch and with several.
all_stages() { # ranks
  local stage micros
  for micros in 1 2; do
    for stage in 0 1 2 3; do
      train_on "$1" "all_${micros}_$stage" "zero_optimization.stage=$stage" "gradient_accumulation_steps=$micros" \
        dstrain.reduce=micro_batch bf16.enabled=true dstrain.deterministic_collectives=true \
        zero_optimization.stage3_param_persistence_threshold=0 zero_optimization.stage3_max_reuse_distance=0
      same_bits "all_${micros}_0" "all_${micros}_$stage"
    done
  done
}
# What is packed is rounded, so a last bit may become a step of the codec.
quantized() { # ranks, key
  as_on_cpu "$2" "$(sized 10 3)" --within 2e-2 -- --num_gpus "$1" "train_batch_size=$((8 * $1))" bf16.enabled=true \
    zero_optimization.stage=3 zero_optimization.stage3_param_persistence_threshold=0 "zero_optimization.$2=true"
}
# The optimizer, and at stage 3 the parameters too, in the host's memory have the bits of those on the GPUs.
offload_on() { # ranks
  local words=(bf16.enabled=true zero_optimization.stage=3 zero_optimization.stage3_param_persistence_threshold=0)
  train_on "$1" resident_on "${words[@]}"
  train_on "$1" offload_on "${words[@]}" zero_optimization.offload_optimizer.device=cpu
  same_bits resident_on offload_on
  train_on "$1" offload_all_on "${words[@]}" zero_optimization.offload_optimizer.device=cpu \
    zero_optimization.offload_param.device=cpu
  same_bits resident_on offload_all_on
}
# What half of the ranks resume goes on like the run that saved: each micro-batch has other samples then, and the step the same.
resume_on_half() { # ranks
  local words=(zero_optimization.stage=2 "train_batch_size=$((8 * $1))")
  train saved_by_all "$device" 6 --num_gpus "$1" "${words[@]}" --save_interval 3
  train resumed_by_half "$device" 6 --num_gpus $(($1 / 2)) "${words[@]}" \
    --resume "$work/saved_by_all/checkpoints/step_3"
  python3 - "$work"/{saved_by_all,resumed_by_half}/metrics.jsonl <<'PY'
import json, sys
a, b = ({s["step"]: s["loss"] for s in map(json.loads, open(path)) if "loss" in s} for path in sys.argv[1:])
steps = sorted(step for step in a.keys() & b.keys() if step > 3)
worst = max((abs(a[step] - b[step]) for step in steps), default=None)
print(f"steps {steps} of both runs: largest difference of the loss {worst}, allowed 0.0001")
sys.exit(0 if steps and worst <= 1e-4 else 1)
PY
}
# The losses of validation are those of the CPU.
validation_on() { # ranks
  local on
  for on in cpu "$device"; do
    train "validated_$on" "$on" 4 --num_gpus "$1" "train_batch_size=$((8 * $1))" bf16.enabled=true dstrain.eval_interval=2 \
      "dstrain.eval_samples=$((8 * $1))"
  done
  python3 - "$work"/validated_{cpu,"$device"}/metrics.jsonl <<'PY'
import json, sys
a, b = ([s["val_loss"] for s in map(json.loads, open(path)) if "val_loss" in s] for path in sys.argv[1:])
print(f"losses of validation: {a} on the CPU, {b} on the device, allowed difference 0.02")
sys.exit(0 if a and len(a) == len(b) and all(abs(x - y) <= 0.02 for x, y in zip(a, b)) else 1)
PY
}
# A small Llama whose samples have several documents.
packed_llama() { # ranks
  local on width
  width=$(sized 64 32)
  printf '{"model_type": "llama", "vocab_size": 96, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": %d}\n' "$width" $((2 * width)) "$width" \
    >"$work/packed_llama.json"
  for on in cpu "$device"; do
    "$build/bin/dstrain" --config configs/finetune.json --model "$work/packed_llama.json" --data "$work/documents.bin" \
      --device "$on" --num_gpus "$1" --steps "$(sized 20 3)" --output "$work/packed_llama_$on" --overwrite \
      --set dstrain.data.packing=pack --set "train_batch_size=$((8 * $1))" --set train_micro_batch_size_per_gpu=4 \
      --set optimizer.params.lr=1e-3 --set dstrain.eval_interval=0 --set dstrain.save_last=false
  done
  python3 scripts/compare_losses.py "$work"/packed_llama_{cpu,"$device"}/metrics.jsonl --within 2e-2 --first 3 2e-3
}
