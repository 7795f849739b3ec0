// Options of other programs, and what the command line says in their place.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/launcher/cli/parsed_line.h"

namespace dstrain {
namespace {

using test::error_of;
using test::parse;

TEST_CASE("options of Hugging Face's programs lead to those of this one") {
  const auto [option, advice] = GENERATE(table<std::string, std::string>({
      {"--num_train_epochs 3", "did you mean --epochs?"},
      {"--max_steps 3", "did you mean --steps?"},
      {"--output_dir out", "did you mean --output?"},
      {"--overwrite_output_dir", "did you mean --overwrite?"},
      {"--resume_from_checkpoint out", "did you mean --resume?"},
      {"--model_name_or_path m", "did you mean --model?"},
      {"--train_file t.txt", "did you mean --data?"},
      {"--save_steps 10", "did you mean --save_interval?"},
      {"--data_seed 10", "did you mean --seed?"},
      {"--gradient_checkpointing", "did you mean --activation_checkpoint_interval 1?"},
      {"--nproc_per_node 2", "did you mean --num_gpus?"},
      {"--deepspeed d.json", "did you mean --config d.json?"},
      {"--per_device_train_batch_size 4", "say it with --set train_micro_batch_size_per_gpu=4"},
      {"--gradient_accumulation_steps 4", "say it with --set gradient_accumulation_steps=4"},
      {"--learning_rate 1e-4", "say it with --set optimizer.params.lr=1e-4"},
      {"--weight_decay 0.1", "say it with --set optimizer.params.weight_decay=0.1"},
      {"--adam_beta1 0.9", "say both with optimizer.params.betas"},
      {"--max_grad_norm 1", "say it with --set gradient_clipping=1"},
      {"--warmup_steps 9", "say it with --set scheduler.params.warmup_num_steps=9"},
      {"--warmup_ratio 0.1", "say it in steps, with scheduler.params.warmup_num_steps"},
      {"--chat_template chatml", "say it with --set dstrain.data.chat_template=chatml"},
      {"--max_seq_length 512", "say it with --set dstrain.data.seq_len=512"},
      {"--logging_steps 9", "say it with --set steps_per_print=9"},
      {"--eval_steps 9", "say it with --set dstrain.eval_interval=9"},
      {"--save_total_limit 2", "say it with --set dstrain.keep_last=2"},
      {"--bf16", "say it with --set bf16.enabled=true"},
      {"--bf16 True", "say it with --set bf16.enabled=true"},
      {"--fp16=false", "say it with --set fp16.enabled=false"},
      {"--torch_dtype bfloat16", "say it with --set bf16.enabled=true"},
      {"--lora_r 8", "say it with --set dstrain.lora.r=8"},
      {"--lora_alpha 16", "say it with --set dstrain.lora.alpha=16"},
      {"--lora_target_modules q_proj v_proj", "say it with --set dstrain.lora.targets=VALUE"},
      {"--load_in_4bit", "say it with dstrain.lora.base: \"nf4\""},
      {"--optim adamw_torch", "say it with optimizer.type"},
      {"--do_train", "leave it out, nothing here depends on it"},
  }));
  const std::string name = option.substr(0, option.find(' '));
  CHECK(error_of("--config c " + option) == fmt::format("unknown option '{}': {}", name, advice));
}

TEST_CASE("one --ignore takes several keys, and the command line is kept as it was given") {
  const auto a = std::get<CheckArguments>(parse("check --config c --ignore a.b,c --ignore d"));
  CHECK(a.request.ignored == std::vector<std::string>{"a.b", "c", "d"});
  CHECK(a.request.command == "dstrain check --config c --ignore a.b,c --ignore d");
  CHECK(std::get<TrainArguments>(parse("--config c")).request.command == "dstrain --config c");
  CHECK(error_of("--config c --ignore a,") == "--ignore: expected path.to.key, got nothing");
}

}  // namespace
}  // namespace dstrain
