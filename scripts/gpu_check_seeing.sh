# The steps of scripts/gpu_check.sh that look at what a run shows of itself, and at adapters; gpu_check_runs.sh reads this
# file.

# Adapters beside frozen weights in the run's dtype and in blocks, and parameter groups, have the CPU's losses.
adapters() {
  local base
  for base in bf16 int8 nf4; do
    as_on_cpu "lora_$base" "$(sized 20 4)" --within 2e-2 --first 3 2e-3 -- bf16.enabled=true dstrain.lora.r=4 \
      "dstrain.lora.base=$base" dstrain.lora.dropout=0.1
  done
}
# The phases of every step add up to it, and the profile has the times and the FLOPs of the model's modules.
breakdown() {
  train breakdown "$device" 8 --num_gpus 1 bf16.enabled=true wall_clock_breakdown=true flops_profiler.enabled=true \
    flops_profiler.profile_step=5 "flops_profiler.output_file=$work/profile.txt" >"$work/breakdown.log" 2>&1
  grep '^time (ms) | fwd:' "$work/breakdown.log"
  python3 - "$work" <<'PY'
import json, re, sys
folder = sys.argv[1]
steps = [s["step_ms"] for s in map(json.loads, open(f"{folder}/breakdown/metrics.jsonl")) if "loss" in s]
lines = [line for line in open(f"{folder}/breakdown.log") if line.startswith("time (ms) | fwd:")]
sums = [sum(float(re.search(rf" {name}: ([0-9.]+)", line)[1]) for name in ("fwd", "bwd", "step")) for line in lines]
print("parts of the steps' times that the phases have:", *(f"{a / b:.3f}" for a, b in zip(sums, steps)))
if len(lines) != len(steps) or any(not 0.5 < a / b < 1.05 for a, b in zip(sums, steps)):
    sys.exit("expected a line of phases for every step, that add up to it")
PY
  sed -n 1,40p "$work/profile.txt" | tee "$work/texts/profile"
  grep -q 'fwd FLOPS' "$work/profile.txt"
}
# SIGUSR2 asks a run, whose steps are graphs, for a trace of the next six.
requested_trace() {
  local run process status=0
  train requested "$device" 100000 --num_gpus 1 bf16.enabled=true >"$work/requested.log" 2>&1 &
  run=$!
  until grep -qs '"step":30,' "$work/requested/metrics.jsonl" || ! kill -0 $run 2>/dev/null; do sleep 0.1; done
  process=$(pgrep -o -f -- "--output $work/requested ")
  kill -USR2 "$process"
  for _ in {1..200}; do
    if compgen -G "$work/requested/trace_step_*.json" >/dev/null; then break; fi
    sleep 0.1
  done
  kill -TERM "$process"
  wait $run || status=$?
  grep -i trace "$work/requested.log"
  python3 - "$work"/requested/trace_step_*.json <<'PY'
import json, sys
trace = json.load(open(sys.argv[1]))
events = [e for e in (trace["traceEvents"] if isinstance(trace, dict) else trace) if e.get("ph") == "X"]
print(f"{len(events)} events, {sum(e['dur'] for e in events) / 1e3:.1f} ms")
if not events:
    sys.exit("the trace has no instruction")
PY
  [[ $status == 143 ]]
}
# What a terminal shows of GPT-2: the live line with the model FLOPs utilization.
live_line() {
  local command
  gpt2_command live "$(sized 60 4)" 1
  python3 - "$work/terminal" "${command[@]}" <<'PY'
import os, pty, re, sys
seen = bytearray()
def read(descriptor):
    seen.extend(data := os.read(descriptor, 65536))
    return data
status = pty.spawn(sys.argv[2:], read)
open(sys.argv[1], "wb").write(seen)
lines = re.findall(r"step \d+/\d+ \| loss [^\r\x1b]*", seen.decode(errors="replace"))
print("\n" + "\n".join(lines[-3:]))
if status or not any(re.search(r"MFU [0-9.]+%", line) for line in lines):
    sys.exit("expected a live line with MFU")
PY
}
