#!/usr/bin/env bash
# What a user may type or write into a file, each with its result: starts the program as a user does, with the smallest
# model, and compares what it prints and writes. Prints a line for each check that fails; the exit status is 1 if one did.
#   from_outside.sh DSTRAIN
# Other tests have what takes longer to set up: streams_test.cpp terminals that change their size, install_test.py the
# first commands of the README after an installation, tests/plan the proofs of messages that do not match,
# benchmarks/step/busy_cores.py the time of a step beside other processes.
set -uo pipefail
program=$(realpath "$1")
for name in $(compgen -e | grep -E '^(OMP_|GOMP_|DSTRAIN_|DS_ENV_FILE$|SLURM_)'); do unset "$name"; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TERM=dumb

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"  # other users run the program there, too
cd "$folder" || exit 1
export HOME=$folder

dstrain() { timeout 60 "$program" "$@"; }
limited() { (ulimit "$1" "$2" && dstrain "${@:3}"); }

checks=0 failures=0 command='' said=''
failed() { # expected came
  local came=${2//$'\n'/ | }
  failures=$((failures + 1))
  printf 'FAILED: %s: expected %s; came: %s\n' "$command" "$1" "${came:0:1000}"
}
check() { # expected came command...: the command must succeed
  checks=$((checks + 1))
  "${@:3}" || failed "$1" "$2"
}
# run STATUS COMMAND...: the command, which must end with the status. What it prints is `said`.
run() {
  local status=0
  command=${*:2}
  said=$("${@:2}" 2>&1) || status=$?
  check "status $1" "status $status, $said" test "$status" = "$1"
}
says() { # text...: the last command printed each
  local text
  for text in "$@"; do check "'$text'" "$said" test -z "${said##*"$text"*}" -a -n "$said"; done
}
says_not() { check "nothing of '$1'" "$said" test -n "${said##*"$1"*}"; }
last_line_is() { check "the last line '$1'" "$said" test "${said##*$'\n'}" = "$1"; }
lines_are() { check "$1 line(s)" "$said" test "$(wc -l <<<"$said")" = "$1"; }
same() { check "the same bytes in $1 and $2" 'other bytes, or a file that is missing' cmp -s "$1" "$2"; }
holds() { check "$1 to be there" 'it is not there' test -e "$1"; }
holds_no() { check "no $1" 'it is there' test ! -e "$1"; }

for ((i = 0; i < 60; ++i)); do echo 'the quick brown fox jumps over the lazy dog'; done >in.txt
sed 's/quick //' in.txt >less.txt
sed 's/lazy/Lazy/' in.txt >more.txt
readonly own='"dstrain":{"model":{"type":"gptlite","n_layer":2,"n_embd":32,"n_head":2,"block_size":16,"dropout":0,
  "activation":"gelu"},"data":{"path":"in.txt"},"steps":4}'
config() { printf '{"train_batch_size":8,%s%s}' "${2:+$2,}" "$own" >"$1"; } # file [keys]
config base.json '"optimizer":{"type":"AdamW","params":{"lr":1e-3}}'
readonly base='--config base.json'
mkfifo pipe
mkdir empty

# ---- memory and bits
cat >muon.json <<'JSON'
{"train_batch_size": 10, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
 "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}},
 "dstrain": {"model": {"type": "benchmark", "in_size": 64, "hidden_size": 64, "out_size": 64, "n_layer": 6}, "steps": 1}}
JSON
for ranks in 2 5; do
  run 0 dstrain --config muon.json --num_gpus $ranks --output disk$ranks
  says "of $ranks ranks in nvme on "
  run 0 dstrain --config muon.json --num_gpus $ranks --output memory$ranks --ignore zero_optimization.offload_optimizer
  same disk$ranks/model.safetensors memory$ranks/model.safetensors
done

run 0 dstrain $base --output one
[[ $said =~ rank\ of\ [0-9]+ ]]
readonly threads=${BASH_REMATCH[0]:-rank of some number of}
if [[ $said =~ 'cpu with '(amx|avx512) ]]; then
  config isa.json '"fp16":{"enabled":true,"loss_scale":1024},"pipeline":{"stages":2,"schedule":"zb-v","partition":"time"}'
  isa='--config isa.json --set dstrain.model.n_embd=16 --set dstrain.model.n_head=1 --set dstrain.model.block_size=257'
  for launcher in local openmpi; do
    DSTRAIN_MAX_ISA=avx2 OMP_NUM_THREADS=1 run 0 dstrain $isa --num_gpus 2 --launcher $launcher --output $launcher
    says 'cpu with avx2'
  done
  same local/model.safetensors openmpi/model.safetensors
else
  echo 'skipped: a limited instruction set: this processor has no more than AVX2'
fi

qwz='--set bf16.enabled=true --set zero_optimization.stage=3 --set zero_optimization.zero_quantized_weights=true'
run 0 dstrain check $base $qwz --set zero_optimization.mics_shard_size=1
says 'mics_shard_size: honoured: every rank has all parameters, which travel as int8 once a step'
run 0 dstrain plan $base $qwz --set zero_optimization.mics_shard_size=1 --num_gpus 2
says 'parameters travel as int8 in blocks of 256 once a step' 'sends 41.1 kB a step, 55.2 kB without'
run 0 dstrain plan $base $qwz
says 'no effect of zero_quantized_weights: one rank sends neither parameters nor gradients to others'

# ---- input files
run 1 dstrain $base --num_gpus 2 --init_weights empty
says '--init_weights empty: the directory holds no model.safetensors'
run 1 dstrain $base --num_gpus 2 --init_weights /dev/null
says 'the weights file /dev/null is a device, expected a regular file'
for option in '--config' "$base --hostfile" "$base --init_weights"; do
  run 1 dstrain $option pipe
  says ' pipe is a pipe, expected a regular file'
  lines_are 1
done
run 0 dstrain $base --num_gpus 2 --init_weights one --steps 0 --output two
same one/model.safetensors two/model.safetensors

DS_ENV_FILE=nowhere run 1 dstrain $base
says 'that DS_ENV_FILE names, nowhere: No such file or directory'
DS_ENV_FILE=$folder/empty run 1 dstrain $base
says 'empty is a directory, expected a file'
printf '\xef\xbb\xbfOMP_NUM_THREADS=3\n' >.deepspeed_env
run 0 dstrain $base --steps 0 --output variables
says '1 rank of 3 threads'
rm .deepspeed_env

hosts() { printf '%s\n' "$1" >hosts && run "$2" dstrain hosts -H hosts; } # line status
hosts '[fe80::1] slots=8' 1
says "hosts:1: the host name '[fe80::1]' holds ':': give an IPv6 address a name"
hosts 'n1 slots=1e3' 1
says "hosts:1: 'slots=1e3' is not a whole number in digits" 'write slots=1000'
hosts 'n1 max_slots=4 slots=3' 0
says "warning: hosts:1: 'max_slots=4' before slots=3 is ignored" 'n1    0-2    0-2'

nvme='--config muon.json --output nvme_run --set zero_optimization.offload_optimizer.nvme_path'
run 1 dstrain $nvme=no/where
says 'nvme_path no/where: neither this directory nor ' 'mount the drive, make the directory (mkdir -p)'
holds_no no
run 0 dstrain $nvme=drive
says 'of 1 rank in drive on ' ', mounted at /'

run 1 dstrain $base --data less.txt --resume one --steps 5 --output longer
says 'dstrain.model.vocab_size was 28 and is 24' '--vocab one reads the text with the vocabulary of the run'
run 0 dstrain $base --data less.txt --resume one --vocab one --steps 5 --output longer
same one/vocab.json longer/vocab.json
run 1 dstrain $base --data more.txt --vocab one --output longer
says 'not in the vocabulary of --vocab (28 characters): "L" (U+004C) 60 times'

# ---- numbers of schedules and optimizers
cycle='"scheduler":{"type":"OneCycle","params":{"cycle_min_lr":1e-4,"cycle_max_lr":1e-3,"cycle_first_step_size":2,
  "decay_step_size":1,"decay_mom_rate":0.05}}'
config cycle.json "$cycle"
run 1 dstrain --config cycle.json --steps 98
says 'scheduler.params.decay_mom_rate: by DeepSpeed' 'beta1 grows and is 1 at step '
run 0 dstrain --config cycle.json --steps 4 --output cycle

config auto.json '"optimizer":{"type":"AdamW","params":{"lr":"auto","betas":"auto","eps":"auto","weight_decay":"auto"}},
  "scheduler":{"type":"WarmupDecayLR","params":{"warmup_min_lr":"auto","warmup_max_lr":"auto","warmup_num_steps":"auto",
  "total_num_steps":"auto"}}'
run 0 dstrain --config auto.json --steps 6 --output auto
says '"auto" became optimizer.params.lr 5e-05' 'betas [0.9, 0.999]' 'eps 1e-08' 'weight_decay 0,' 'warmup_num_steps 1' \
  'warmup_min_lr 0' 'warmup_max_lr 5e-05' 'total_num_steps 6'
rates=$(grep -o '"lr":[^,]*' auto/metrics.jsonl 2>/dev/null | tr '\n' ' ')
check 'a rate that has reached 5e-05 at step 3 and decays to its half' "$rates" \
  test "$rates" = '"lr":0 "lr":0 "lr":5e-05 "lr":5e-05 "lr":3.75e-05 "lr":2.5e-05 '

readonly cycle_rates='"cycle_min_lr":1e-4,"cycle_max_lr":1e-3'
for schedule in LRRangeTest WarmupLR 'OneCycle","params":{'"$cycle_rates"',"' 'WarmupDecayLR","params":{"total_num_steps":9,"' \
  'WarmupCosineLR","params":{"total_num_steps":9,"'; do
  [[ $schedule == *params* ]] || schedule+='","params":{"'
  config last.json '"scheduler":{"type":"'"$schedule"'last_batch_iteration":-1}}'
  run 0 dstrain check --config last.json --all
  says 'scheduler.params.last_batch_iteration: honoured'
done

config arguments.json '"optimizer":{"type":"AdamW","params":{"lr":1e-3,"fused":true,"foreach":true,"capturable":true,
  "set_grad_none":true,"maximize":true,"differentiable":true,"decoupled_weight_decay":false,"adamw_mode":false}}'
run 1 dstrain check --config arguments.json
says fused:\ no_effect foreach:\ no_effect capturable:\ no_effect set_grad_none:\ no_effect maximize:\ refused \
  differentiable:\ refused decoupled_weight_decay:\ refused adamw_mode:\ refused '4 no_effect, 4 refused.'
config adagrad.json '"optimizer":{"type":"Adagrad","params":{"lr":0.1,"lr_decay":0.1}}'
run 0 dstrain check --config adagrad.json
says 'honoured: ' ' optimizer.params.lr_decay, '
run 1 dstrain check --config adagrad.json --set optimizer.params.initial_accumulator_value=0.1
says 'optimizer.params.initial_accumulator_value: refused'

# ---- keys that DeepSpeed ignores, and names of other programs
config strange.json '"timeout":10,"gradient_checkpointing":true,"mixed_precision":"bf16","dtype":"bf16","flash_attention":true,
  "msamp":{"enabled":true},"min_lr":1,"logging":1,"max_grad_norm":1,"num_epochs":1,"fp8":{"enabled":true},
  "memory_optimization":{"a":1},"seed":1,"micro_batch_size":2,"learning_rate":1,"zero_stage":2,"save_steps":1,
  "log_interval":1,"pipeline":{"num_stages":2}'
for hint in 'timeout dstrain.timeout_s' 'gradient_checkpointing dstrain.recompute' 'mixed_precision bf16.enabled' \
  'dtype bf16.enabled' 'flash_attention attention' 'msamp bf16.enabled' min_lr logging 'max_grad_norm gradient_clipping' \
  'num_epochs --epochs' 'fp8 bf16.enabled' memory_optimization 'seed dstrain.seed' \
  'micro_batch_size train_micro_batch_size_per_gpu' 'learning_rate optimizer.params.lr' \
  'zero_stage zero_optimization.stage' 'save_steps dstrain.save_interval' 'log_interval steps_per_print' \
  'pipeline.num_stages pipeline.stages'; do
  read -r key meant <<<"$hint"
  run 1 dstrain --config strange.json
  said=$(grep " $key: " <<<"$said")
  says "$key: unknown key" "$meant"
  lines_are 1
done
run 1 dstrain --config strange.json
says 'keys mean nothing to DeepSpeed, and nothing here; without them: dstrain --config strange.json --ignore '
# The options of the last line train.
eval "run 0 dstrain --config strange.json $(sed -n 's/^  it trains with //p' <<<"$said") --output strange"
for hint in '--lr optimizer.params.lr=' '--batch_size train_batch_size=' '--zero_stage zero_optimization.stage=' \
  '--deepspeed --config' '--local_rank numbers'; do
  read -r option meant <<<"$hint"
  run 1 dstrain $base $option 1
  says "unknown option '$option': " "$meant"
done

# ---- what check and plan say before a run
echo '{"train_batch_size": 8}' >bare.json
run 0 dstrain check --config bare.json
says 'This file trains once --data names a file.' 'names no sizes of a model: the default, a GPT-lite of 12 layers'
run 1 dstrain --config bare.json
says 'dstrain.data.path: missing'
echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}' >four.json
run 0 dstrain check --config four.json
says 'This file trains on 4 ranks once --data names a file.'
run 0 dstrain check --config four.json --data in.txt
says 'This file trains on 4 ranks.'
run 0 dstrain check --config four.json --num_gpus 4
says 'This file trains once --data names a file.'
run 0 dstrain check $base
last_line_is '17 verdicts: 17 honoured. This file trains.'
run 0 dstrain plan $base --data none.txt
says 'assumed: a vocabulary of 256, as none.txt is not there'
run 0 dstrain estimate $base --data none.txt
says 'assumed: a vocabulary of 256'
run 0 dstrain plan $base --data none.txt --largest --device_memory 1MB --host_memory 1MB
says 'assumed: a vocabulary of 256' 'the largest GPT'
run 0 dstrain plan $base --data none.bin --json
said=$(tr -d ' \n' <<<"$said")
says '"assumed":{"dstrain.model.vocab_size":50257'
run 1 dstrain $base --data none.txt
says 'cannot read the data file none.txt'
# A plan takes time in proportion to the layers. This one needs 2 s of a processor, whose limit ends a plan that needs
# time in proportion to their square.
run 0 limited -t 12 plan $base --set dstrain.model.n_layer=1024
says 'with other settings, cheapest in estimated time first'

# ---- the end of a run, and what it leaves
run 0 dstrain $base --steps 0 --output none
says 'step 0: validation loss 3.3' ', perplexity 27.'
holds none/model.safetensors
holds_no none/checkpoints
for time in first second; do
  run 0 dstrain $base --output ends --overwrite
  says 'step 4: validation loss 3.0' ', perplexity 2'
  check "\"end\": true in the manifest of step 4 ($time time)" 'a manifest without it, or none' \
    grep -Eqs '"end": ?true' ends/checkpoints/step_4/manifest.json
done
run 0 dstrain $base --resume ends --steps 6 --output ends
says 'resumes after step 4'
holds_no ends/checkpoints/step_4
holds ends/checkpoints/step_6
run 0 dstrain $base --steps 2 --save_interval 1 --output kept
run 1 dstrain $base --output kept
says 'holds the checkpoint of step 2 of another run' '--overwrite'
run 0 dstrain $base --set dstrain.save_last=false --set dstrain.data.val_fraction=0.001 --output unsaved
says ', none for validation, whose part has 2 characters and needs 17'
says_not 'validation loss'
holds_no unsaved/checkpoints

# ---- disks, descriptors and processes that do not suffice
full="$base --set dstrain.model.n_embd=96 --save_interval 2"
run 0 limited -f 1040 $full --output full
says 'warning: the checkpoint of step 2, of 2.79 MB, is left out: ' 'warning: the checkpoint of step 4' 'ulimit -f' \
  'done: step 4 of 4'
holds full/model.safetensors
holds_no full/checkpoints/step_2
run 2 limited -f 1040 $full --set dstrain.save_required=true --output required
says 'dstrain: error: cannot write ' 'ulimit -f'
run 2 limited -f 8 $base
says 'File too large (see `ulimit -f`)'
run 1 limited -n 20 $base --num_gpus 2
says 'a process may open 20 files here, and needs ' '(ulimit -n '
# The kernel does not hold root to the limit of processes.
user=()
((EUID != 0)) || user=(setpriv --reuid 54321 --clear-groups)
run 1 prlimit --nproc=4 "${user[@]}" "$program" $base --num_gpus 2
says 'processes and threads here, and ' 'ulimit -u is 4'

# ---- the command line
for option in --resume --output --config; do
  run 1 dstrain $option --steps 5
  says "$option: the value is missing, the option --steps follows"
done
run 0 dstrain help
says '--init_weights' 'dstrain plan'
OMP_PROC_BIND=true OMP_PLACES=cores GOMP_CPU_AFFINITY=0 run 0 dstrain $base --steps 0 --output bound
says 'OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY have no effect' "1 $threads thread"
run 0 script -qec "'$program' $base --steps 30 --output terminal" /dev/null
says 'step=30 '
says_not $'\e['
run 0 dstrain generate --run ends --prompt the --seed 5
continued=$said
run 0 dstrain generate --run ends --seed 5 <<<the
check 'the same text for a prompt from standard input' "$said" test "$said" = "$continued"
run 0 dstrain generate --run ends/checkpoints/step_6 --prompt the --seed 5
check 'the same text from the checkpoint' "$said" test "$said" = "$continued"
run 0 dstrain generate --run ends --prompt the --seed 5 --top_p 0.000001 --tokens 12
likeliest=${said##*$'\n'}
run 0 dstrain generate --run ends --prompt the --temperature 0 --tokens 12
check 'the likeliest tokens' "$said" test "${said##*$'\n'}" = "$likeliest"

echo "$checks checks, $failures failed"
((failures == 0))
