#include "runtime/config/judge.h"

#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("verdicts: the stages, and their other names") {
  check_all({
      {zero(R"("stage": 0)"), "zero_optimization.stage", "honoured"},
      {zero(R"("stage": "2")"), "zero_optimization.stage", "honoured"},
      {zero(R"("stage": 3.0)"), "zero_optimization.stage", "honoured"},
      {zero(R"("stage": 4)"), "zero_optimization.stage",
       "error: expected an integer from 0 to 3, found 4"},
      {zero(R"("stage": [0, 1])"), "zero_optimization.stage",
       "error: expected an integer from 0 to 3, found [0, 1]"},
      {zero(R"("stage": 2)"), "zero_optimization", "honoured"},
      {R"("zero_optimization": true)", "zero_optimization",
       "honoured: an old form of \"stage\": 1"},
      {R"("zero_optimization": false)", "zero_optimization",
       "honoured: an old form of \"stage\": 0"},
      {R"("dstrain": {"sharding": "FULL_SHARD"})", "dstrain.sharding", "honoured: ZeRO stage 3"},
      {R"("dstrain": {"sharding": "SHARD_GRAD_OP"}, "zero_optimization": {"stage": 1})",
       "dstrain.sharding", "error: is stage 2, zero_optimization.stage says 1: keep one"},
      {R"("dstrain": {"sharding": "HYBRID_SHARD"})", "dstrain.sharding",
       "honoured: ZeRO stage 3 within each host"},
      {R"("dstrain": {"sharding": "HYBRID_SHARD"}, "zero_optimization": {"mics_shard_size": 4})",
       "dstrain.sharding", "honoured: ZeRO stage 3 within groups of ranks"},
      {R"("dstrain": {"sharding": "_HYBRID_SHARD_ZERO2"})", "dstrain.sharding",
       "honoured: ZeRO stage 2"},
      {R"("dstrain": {"sharding": "HYBRID_SHARD"}, "zero_optimization": {"stage": 2})",
       "dstrain.sharding", "error: is stage 3, zero_optimization.stage says 2: keep one"},
      {R"("zero_optimization": 1)", "zero_optimization", "error: expected a section { }, found 1"},
      {R"("zero_optimization": null)", "zero_optimization",
       "error: expected a section { }, found null: remove the key for the default"},
  });
}

TEST_CASE("verdicts: keys of a stage have no effect below it") {
  check_all({
      {zero(R"("stage3_max_live_parameters": 1e9)"), "zero_optimization.stage3_max_live_parameters",
       "no_effect: matters at stage 3; the stage is 0"},
      {zero(R"("stage": 3, "stage3_max_live_parameters": 1e9)"),
       "zero_optimization.stage3_max_live_parameters", "honoured"},
      {zero(R"("stage": 2, "sub_group_size": 1e12)"), "zero_optimization.sub_group_size",
       "no_effect: the optimizer works in place, layer by layer"},
      {zero(R"("overlap_comm": true)"), "zero_optimization.overlap_comm", "honoured"},
      {zero(R"("overlap_comm": "auto")"), "zero_optimization.overlap_comm",
       "honoured: true (auto: every stage)"},
      {zero(R"("allgather_bucket_size": 5e8)"), "zero_optimization.allgather_bucket_size",
       "no_effect: parameters are gathered in place, layer by layer: there is no bucket"},
      {zero(R"("stage": 2, "allgather_bucket_size": 7)"), "zero_optimization.allgather_bucket_size",
       "error: stages 1 and 2 need an even number: use 8"},
      {zero(R"("contiguous_gradients": false)"), "zero_optimization.contiguous_gradients",
       "no_effect: the plan places gradients contiguously"},
      {zero(R"("stage": 2, "reduce_bucket_size": 5e8)"), "zero_optimization.reduce_bucket_size",
       "honoured"},
      {zero(R"("reduce_bucket_size": 5e8)"), "zero_optimization.reduce_bucket_size",
       "no_effect: gradients are fp32 and travel as fp32, once a step: they are added in place, "
       "and "
       "there is no bucket"},
      {zero(R"("legacy_stage1": true)"), "zero_optimization.legacy_stage1",
       "refused: DeepSpeed refuses it too: use false"},
      {zero(R"("zero_quantized_weights": false)"), "zero_optimization.zero_quantized_weights",
       "no_effect: off"},
      {zero(R"("zero_quantized_weights": true)"), "zero_optimization.zero_quantized_weights",
       "no_effect: matters at stage 3; the stage is 0"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})",
       "zero_optimization.zero_quantized_weights",
       "honoured: parameters are gathered as int8 in blocks of 256: 0.51 of the bytes of 16 bits"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_gradients": true})",
       "zero_optimization.zero_quantized_gradients",
       "honoured: gradients travel as int4 in blocks of 128, within hosts and then among them: "
       "0.27 "
       "of the bytes of 16 bits a hop"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_gradients": true},
          "communication_data_type": "fp16")",
       "communication_data_type", "no_effect: zero_quantized_gradients: gradients travel as int4"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_gradients": true, "reduce_bucket_size": 5e8},
          "dstrain": {"reduce": "boundary"})",
       "zero_optimization.reduce_bucket_size",
       "no_effect: packed gradients travel once a step, two layers at a time"},
      {zero(R"("zero_quantized_nontrainable_weights": true)"),
       "zero_optimization.zero_quantized_nontrainable_weights",
       "no_effect: weights that are not trained are packed by dstrain.lora.base"},
      {zero(R"("zero_hpz_partition_size": 8)"), "zero_optimization.zero_hpz_partition_size",
       "no_effect: matters at stage 3; the stage is 0"},
      {zero(R"("zero_hpz_partition_size": 1)"), "zero_optimization.zero_hpz_partition_size",
       "no_effect: off"},
      {R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8})",
       "zero_optimization.zero_hpz_partition_size",
       "honoured: parameters are divided among 8 ranks in a row"},
      {R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8},
           "dstrain": {"sharding": "FULL_SHARD"})",
       "zero_optimization.zero_hpz_partition_size",
       "no_effect: dstrain.sharding is FULL_SHARD: all ranks"},
      {R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "mics_shard_size": 4})",
       "zero_optimization.zero_hpz_partition_size",
       "error: 8, and mics_shard_size is 4: both say among how many ranks parameters are divided, "
       "keep one"},
      {zero(R"("mics_shard_size": -1)"), "zero_optimization.mics_shard_size", "no_effect: off"},
      {zero(R"("mics_shard_size": 4)"), "zero_optimization.mics_shard_size",
       "no_effect: matters at stage 3; the stage is 0"},
      {R"("zero_optimization": {"stage": 3, "mics_shard_size": 1})",
       "zero_optimization.mics_shard_size", "honoured: every rank has all parameters"},
      {zero(R"("mics_hierarchical_params_gather": true)"),
       "zero_optimization.mics_hierarchical_params_gather",
       "no_effect: removed from DeepSpeed (0.19.8); a gather over several hosts brings each byte "
       "to each host once, with or without it"},
      {zero(R"("zenflow": {"topk_ratio": 0.1})"), "zero_optimization.zenflow",
       "refused: ZenFlow updates most weights late, by sums of several steps' gradients, which "
       "changes what is learned: remove the section; offload_optimizer updates every weight in "
       "every step, with copies beside the update"},
      {zero(R"("zenflow": {"topk_ratio": 0.1})"), "zero_optimization.zenflow.topk_ratio",
       "refused: ZenFlow is not part of dstrain"},
      {zero(R"("zenflow": null)"), "zero_optimization.zenflow", "no_effect: unset"},
      {zero(R"("leaf_module": {"classes": ["A"]})"), "zero_optimization.leaf_module.classes",
       "no_effect: the layers are the units"},
  });
}

TEST_CASE("verdicts: old and bare names stand for today's") {
  check_all({
      {zero(R"("param_persistence_threshold": 1e5)"),
       "zero_optimization.param_persistence_threshold",
       "no_effect: another name of zero_optimization.stage3_param_persistence_threshold; matters "
       "at stage 3; the stage is 0"},
      {zero(R"("max_live_parameters": 1, "stage3_max_live_parameters": 1)"),
       "zero_optimization.max_live_parameters",
       "error: is given together with zero_optimization.stage3_max_live_parameters, its other "
       "name: keep "
       "one"},
      {zero(R"("max_live_parameters": -1)"), "zero_optimization.max_live_parameters",
       "error: expected an integer of at least 0, found -1"},
      {zero(R"("cpu_offload": false)"), "zero_optimization.cpu_offload",
       "no_effect: another name of zero_optimization.offload_optimizer; offload is off"},
      {zero(R"("cpu_offload": true)"), "zero_optimization.cpu_offload",
       "honoured: another name of zero_optimization.offload_optimizer"},
      {zero(R"("cpu_offload_param": true)"), "zero_optimization.cpu_offload_param",
       "honoured: another name of zero_optimization.offload_param"},
      {zero(R"("cpu_offload": true, "offload_optimizer": {})"), "zero_optimization.cpu_offload",
       "error: is given together with zero_optimization.offload_optimizer, its other name: keep "
       "one"},
      {R"("bfloat16": {"enabled": true})", "bfloat16.enabled",
       "honoured: another name of bf16.enabled"},
      {R"("bfloat16": {"enabled": true})", "bfloat16", "honoured: another name of bf16"},
      {R"("bfloat16": {"enabled": true}, "bf16": {})", "bfloat16",
       "error: is given together with bf16: keep one"},
  });
  CHECK(ask(trains_with(R"("bfloat16": {"enabled": true})")).job().dtype == DType::bf16);
}

TEST_CASE("verdicts: sections that have a switch") {
  check_all({
      {R"("tensorboard": {"enabled": false, "job_name": "x"})", "tensorboard.job_name",
       "no_effect: tensorboard is off"},
      {R"("tensorboard": {"enabled": true, "job_name": "x"})", "tensorboard.enabled", "honoured"},
      {R"("csv_monitor": {"enabled": true, "output_path": "x"})", "csv_monitor.output_path",
       "honoured"},
      {R"("comms_logger": {"enabled": "true"})", "comms_logger.enabled", "honoured"},
      {R"("comms_logger": {"verbose": true})", "comms_logger.verbose",
       "no_effect: comms_logger is off"},
      {R"("wandb": {"enabled": "true"})", "wandb.enabled",
       "no_effect: wandb is not available: the run goes on without it (turn on tensorboard, and "
       "`wandb sync OUTPUT_PATH/JOB_NAME` imports its files)"},
      {R"("flops_profiler": {"output_file": null})", "flops_profiler.output_file",
       "no_effect: unset"},
      {R"("autotuning": {"enabled": true})", "autotuning.enabled",
       "no_effect: autotuning is not part of dstrain: the run trains with the values of the file; "
       "dstrain plan shows the memory of any setting"},
      {R"("autotuning": {"enabled": true, "tuner_num_trials": 9})", "autotuning.tuner_num_trials",
       "no_effect: autotuning is not part of dstrain: the run trains with the values of the file; "
       "dstrain plan shows the memory of any setting"},
      {R"("autotuning": {"fast": false})", "autotuning.fast", "no_effect: autotuning is off"},
      {R"("hybrid_engine": {"enabled": true})", "hybrid_engine.enabled",
       "no_effect: hybrid_engine generates text between steps, which a run here does not: dstrain "
       "generate does it from the run's weights"},
      {R"("checkpoint": {"use_node_local_storage": true})", "checkpoint.use_node_local_storage",
       "no_effect: checkpoints go to --output, which all hosts must share"},
      {R"("checkpoint": {"use_node_local_storage": false})", "checkpoint.use_node_local_storage",
       "no_effect: off"},
      {R"("amp": {"enabled": true})", "amp.enabled",
       "refused: amp (NVIDIA apex) was removed from DeepSpeed (0.19.8); here use bf16 or fp16"},
      {R"("amp": {"enabled": false})", "amp.enabled", "no_effect: amp is off"},
      {R"("data_efficiency": {"enabled": true})", "data_efficiency.enabled",
       "no_effect: data_efficiency is off"},
      {R"("data_efficiency": {"enabled": true, "data_routing": {"enabled": true}})",
       "data_efficiency.enabled",
       "not_yet: data_efficiency is not available yet: set enabled to false"},
      {R"("wall_clock_breakdown": true)", "wall_clock_breakdown", "honoured"},
      {R"("memory_breakdown": false)", "memory_breakdown", "honoured"},
      {R"("memory_breakdown": true)", "memory_breakdown", "honoured"},
      {R"("flops_profiler": {"enabled": true, "profile_step": 0})", "flops_profiler.profile_step",
       "honoured"},
      {R"("flops_profiler": {"enabled": true, "module_depth": -2})", "flops_profiler.module_depth",
       "error: expected an integer of at least -1, found -2"},
      {R"("flops_profiler": {"profile_step": 3})", "flops_profiler.profile_step",
       "no_effect: flops_profiler is off"},
      {R"("comet": {"enabled": true})", "comet.enabled",
       "no_effect: comet is not available: the run goes on without it (turn on tensorboard, and "
       "`cometx "
       "log WORKSPACE/PROJECT/EXPERIMENT OUTPUT_PATH/JOB_NAME --type=tensorflow-file` imports its "
       "files)"},
      {R"("compression_training": {"layer_reduction": {}})", "compression_training",
       "refused: removed from DeepSpeed (0.19.8), and compression is not part of dstrain: remove "
       "the "
       "section"},
      {R"("activation_checkpointing": {"profile": false})", "activation_checkpointing.profile",
       "no_effect: off"},
      {R"("activation_checkpointing": {"profile": null})", "activation_checkpointing.profile",
       "no_effect: unset"},
      {R"("activation_checkpointing": {"profile": true})", "activation_checkpointing.profile",
       "no_effect: not available yet: the run goes on without it (metrics.jsonl has step_ms)"},
      {R"("activation_checkpointing": {"number_checkpoints": null})",
       "activation_checkpointing.number_checkpoints", "no_effect: unset"},
      {R"("activation_checkpointing": {"number_checkpoints": 2})",
       "activation_checkpointing.number_checkpoints",
       "no_effect: it sizes a buffer of DeepSpeed's; pipeline.activation_checkpoint_interval says "
       "what is kept"},
      {R"("activation_checkpointing": {"cpu_checkpointing": true})",
       "activation_checkpointing.cpu_checkpointing",
       "no_effect: nothing is recomputed: pipeline.activation_checkpoint_interval or "
       "dstrain.recompute turns it on"},
      {R"("activation_checkpointing": {"cpu_checkpointing": true}, "dstrain": {"recompute": 1})",
       "activation_checkpointing.cpu_checkpointing",
       "honoured: what is kept for recompute is in the host's memory meanwhile"},
      {R"("activation_checkpointing": {"partition_activations": true})",
       "activation_checkpointing.partition_activations",
       "no_effect: ranks that share layers keep parts of the activations anyway; "
       "pipeline.activation_checkpoint_interval turns recompute on"},
      {R"("pipeline": {"activation_checkpoint_interval": 0})",
       "pipeline.activation_checkpoint_interval", "no_effect: off"},
      {R"("pipeline": {"activation_checkpoint_interval": 1})",
       "pipeline.activation_checkpoint_interval",
       "honoured: of 1 layer the input is kept; the backward pass computes the rest again"},
      {R"("pipeline": {"activation_checkpoint_interval": 2})",
       "pipeline.activation_checkpoint_interval",
       "honoured: of 2 layers in a row the input is kept; the backward pass computes the rest "
       "again"},
      {R"("dstrain": {"recompute": "Selective"})", "dstrain.recompute",
       "honoured: the backward pass computes norms and activation functions again"},
      {R"("dstrain": {"recompute": "none"})", "dstrain.recompute", "no_effect: off"},
      {R"("dstrain": {"loss_chunks": 1})", "dstrain.loss_chunks", "no_effect: off"},
      {R"("dstrain": {"loss_chunks": 8})", "dstrain.loss_chunks",
       "honoured: logits are computed in pieces of rows"},
      {R"("dstrain": {"loss_chunks": 8, "model": {"type": "benchmark"}})", "dstrain.loss_chunks",
       "no_effect: the benchmark model has no vocabulary"},
      {R"("dstrain": {"mlp_chunks": 1})", "dstrain.mlp_chunks", "no_effect: off"},
      {R"("dstrain": {"mlp_chunks": 4})", "dstrain.mlp_chunks",
       "honoured: MLPs are computed in pieces of rows, and again in backward passes"},
      {R"("dstrain": {"mlp_chunks": 0})", "dstrain.mlp_chunks",
       "error: expected an integer of at least 1, found 0"},
      {R"("pipeline": {"stages": "auto", "partition": "best"})", "pipeline.partition",
       "no_effect: the pipeline has one stage"},
      {R"("pipeline": {"stages": 1, "schedule": "1F1B"})", "pipeline.stages",
       "no_effect: the pipeline has one stage"},
      {R"("pipeline": {"stages": 2, "partition": "best"})", "pipeline.stages", "honoured"},
      {R"("pipeline": {"stages": 2, "partition": "best"})", "pipeline.partition", "honoured"},
      {R"("pipeline": {"stages": 2, "schedule": "2F2B"})", "pipeline.schedule",
       "error: expected one of \"gpipe\", \"1f1b\", \"interleaved\", \"zb-h1\", \"zb-v\", "
       "\"loopedbfs\", \"interleaved1f1b\", \"interleavedzerobubble\", \"zbvzerobubble\", found "
       "\"2F2B\" (did you mean \"1f1b\"?)"},
      {R"("checkpoint": {"tag_validation": "IGNORE"})", "checkpoint.tag_validation",
       "no_effect: tags are step numbers, the same on every rank"},
  });
}

TEST_CASE("verdicts: reduction and data types") {
  const std::string divided =
      "no_effect: the gradient is divided once, in the loss's backward, so nothing is left to "
      "scale";
  check_all({
      {R"("prescale_gradients": true)", "prescale_gradients", divided},
      {R"("gradient_predivide_factor": 8)", "gradient_predivide_factor", divided},
      {R"("gradient_allreduce_op": "mean")", "gradient_allreduce_op", divided},
      {R"("gradient_allreduce_op": "sum")", "gradient_allreduce_op",
       "refused: a sum would depend on the number of ranks: use \"mean\" and a larger learning "
       "rate"},
      {R"("data_types": {"grad_accum_dtype": "float32"})", "data_types.grad_accum_dtype",
       "honoured"},
      {R"("data_types": {"grad_accum_dtype": "bf16"})", "data_types.grad_accum_dtype",
       "refused: an fp32 run adds its gradients in fp32: use \"fp32\""},
      {R"("data_types": {"grad_accum_dtype": "BFloat16"}, "bf16": {"enabled": true})",
       "data_types.grad_accum_dtype", "honoured"},
      {R"("data_types": {"grad_accum_dtype": "fp32"}, "bf16": {"enabled": true})",
       "data_types.grad_accum_dtype", "honoured"},
      {R"("data_types": {"grad_accum_dtype": "half"}, "fp16": {"enabled": true})",
       "data_types.grad_accum_dtype", "honoured"},
      {R"("data_types": {"grad_accum_dtype": "half"}, "bf16": {"enabled": true})",
       "data_types.grad_accum_dtype", "refused: the run is bf16: use \"bf16\" or \"fp32\""},
      {R"("data_types": {"grad_accum_dtype": "bf16"}, "fp16": {"enabled": true})",
       "data_types.grad_accum_dtype", "refused: the run is fp16: use \"fp16\" or \"fp32\""},
      {R"("communication_data_type": "fp16")", "communication_data_type", "honoured"},
      {R"("communication_data_type": "int8")", "communication_data_type",
       "error: expected one of \"fp32\", \"float32\", \"float\", \"fp16\", \"float16\", \"half\", "
       "\"bf16\", "
       "\"bfloat16\", found \"int8\""},
      {R"("managed_gradient_accumulation": false)", "managed_gradient_accumulation",
       "refused: there is no caller to mark the boundary: remove the key"},
      {R"("sparse_gradients": true)", "sparse_gradients",
       "honoured: rows of tokens or the table, whichever is fewer bytes: dstrain plan says which, "
       "when the number of ranks and the vocabulary are known"},
      {R"("sparse_gradients": true, "zero_optimization": {"stage": 1})", "sparse_gradients",
       "refused: removed from DeepSpeed (0.19.8); here from stage 1 on each rank receives the sum "
       "of its own slice alone: use false, or stage 0"},
      {R"("sparse_gradients": false)", "sparse_gradients", "no_effect: off"},
      {R"("elasticity": {"enabled": true, "min_gpus": 2})", "elasticity.enabled",
       "refused: elasticity was removed from DeepSpeed (0.19.8); here the batch sizes are given, "
       "and "
       "--elastic goes on without lost hosts: remove it"},
      {R"("elasticity": {"enabled": false, "min_gpus": 2})", "elasticity.min_gpus",
       "no_effect: elasticity is off"},
      {zero(R"("compute_grad_norm": false)"), "zero_optimization.compute_grad_norm",
       "no_effect: the norm is always computed: clipping and metrics.jsonl take it"},
      {zero(R"("parameter_alignment": 128)"), "zero_optimization.parameter_alignment",
       "no_effect: the plan aligns every slice itself"},
      {R"("disable_python_gc": true)", "disable_python_gc", "no_effect: there is no Python"},
      {R"("bf16": {"enabled": true}, "data_types": {"keep_in_fp32_modules": ["norm"]})",
       "data_types.keep_in_fp32_modules",
       "no_effect: names buffers to keep in fp32, and registered buffers are fp32"},
      {R"("data_types": {"keep_in_fp32_modules": "auto"})", "data_types.keep_in_fp32_modules",
       "no_effect: names buffers to keep in fp32, and registered buffers are fp32"},
      {R"("graph_harvesting": true)", "graph_harvesting",
       "no_effect: removed from DeepSpeed (0.19.8); the whole step is planned before it runs"},
      {R"("nebula": {"enabled": true})", "nebula",
       "refused: Nebula was removed from DeepSpeed (0.19.8): remove the section and use "
       "--save_interval"},
      {R"("eigenvalue": {"enabled": true})", "eigenvalue.enabled",
       "no_effect: eigenvalue was removed from DeepSpeed (0.19.8) with quantize_training, which "
       "alone reads it: the run goes on without it"},
      {R"("tensor_parallel": {"vocab_parallel_ce_backend": "liger"})",
       "tensor_parallel.vocab_parallel_ce_backend", "no_effect: tensor parallelism is off"},
      {R"("tensor_parallel": {"vocab_parallel_lm_head": true})",
       "tensor_parallel.vocab_parallel_lm_head", "no_effect: tensor parallelism is off"},
      {R"("compile": {"autoep_non_moe": true})", "compile.autoep_non_moe",
       "no_effect: nothing is compiled while a run goes on"},
      {R"("hybrid_engine": {"enabled": false, "enable_cuda_graph": true})",
       "hybrid_engine.enable_cuda_graph", "no_effect: hybrid_engine is off"},
      {zero(R"("zenflow": {"steps_per_epoch": 3})"), "zero_optimization.zenflow.steps_per_epoch",
       "refused: ZenFlow is not part of dstrain"},
      {R"("compile": {"deepcompile": true, "double_buffer": false})", "compile.double_buffer",
       "no_effect: nothing is compiled while a run goes on"},
      {R"("checkpoint": {"writer": {"type": "fast"}})", "checkpoint.writer.type",
       "no_effect: each rank writes its slices itself"},
      {R"("tensor_parallel": {"autotp_size": 1, "kernel_inject": true})",
       "tensor_parallel.kernel_inject", "no_effect: tensor parallelism is off"},
  });
}

TEST_CASE("verdicts: unknown keys name the nearest one, and their inside follows") {
  check_all({
      {R"("data_loaders": {"enabled": true})", "data_loaders", "unknown: unknown key"},
      {R"("data_loaders": {"enabled": true})", "data_loaders.enabled",
       "unknown: inside data_loaders"},
      {R"("checkpoint": {"save_latest": true})", "checkpoint.save_latest",
       "no_effect: unknown key"},
      {R"("checkpoint": {"tag_validaton": "Warn"})", "checkpoint.tag_validaton",
       "unknown: unknown key (did you mean checkpoint.tag_validation?)"},
      {R"("monitor_config": {"csv_monitor": {"enabled": true}})", "monitor_config",
       "no_effect: DeepSpeed ignores it: tensorboard and csv_monitor are sections of the top "
       "level"},
      {R"("fp16": {"fp16": true})", "fp16", "honoured: see fp16.fp16"},
      {R"("aio": {"block": 1})", "aio.block", "unknown: unknown key"},
      {R"("activation_checkpointing": {"comment": "x"})", "activation_checkpointing.comment",
       "no_effect: a comment"},
      {R"("_why": {"stage": 9})", "_why.stage", "no_effect: inside _why"},
      {R"("flops_profiler": {"warm_up": 2})", "flops_profiler.warm_up", "no_effect: unknown key"},
      {R"("optimizer": {"type": "Adam", "params": {"momentum": 0.9}})", "optimizer.params.momentum",
       "error: belongs to sgd, muon, not to adam"},
      {R"("scheduler": {"params": {"warmup_max_lr": 0.9}})", "scheduler.params.warmup_max_lr",
       "error: belongs to WarmupLR, WarmupDecayLR, not to this section without a type"},
  });
}
