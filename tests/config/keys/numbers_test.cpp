#include "runtime/config/keys/table/numbers.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("numbers: what a run learns does not depend on how it is divided, printed and saved") {
  for (const char* key :
       {"steps_per_print", "tensorboard.output_path", "checkpoint.tag_validation",
        "activation_checkpointing.number_checkpoints", "zero_optimization.stage",
        "zero_optimization.offload_optimizer", "zero_optimization.offload_optimizer.device",
        "pipeline.stages", "aio.block_size", "nebula"}) {
    INFO(key);
    CHECK(changes_no_number(key));
  }
}

TEST_CASE("numbers: what is not known to change none does") {
  for (const char* key : {"optimizer",
                          "optimizer.type",
                          "optimizer.params",
                          "optimizer.params.lr",
                          "scheduler",
                          "scheduler.params.warmup_num_steps",
                          "fp16",
                          "fp16.loss_scale",
                          "bf16.enabled",
                          "amp",
                          "gradient_clipping",
                          "train_batch_size",
                          "train_micro_batch_size_per_gpu",
                          "gradient_accumulation_steps",
                          "communication_data_type",
                          "data_types.grad_accum_dtype",
                          "zero_optimization",
                          "zero_optimization.zero_quantized_weights",
                          "zero_optimization.zenflow.topk_ratio",
                          "zero_optimization.zeropp_loco_param.err_beta",
                          "sparse_attention",
                          "curriculum_learning.enabled",
                          "elasticity.enabled",
                          "compression_training",
                          "dstrain.steps",
                          "dstrain.seed",
                          "dstrain.lora.r",
                          "dstrain.model.n_layer",
                          "no_such_key",
                          ""}) {
    INFO(key);
    CHECK_FALSE(changes_no_number(key));
  }
}
