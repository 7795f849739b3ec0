// Keys of people's files that DeepSpeed ignores, has ignored or never had, and that ask for nothing which a run here could
// do. They are known, so that such a file trains as it is.
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kIgnored{[](const Facts&, const KeySpec& spec, const Node&) -> Judgement {
                          return {State::no_effect, std::string(spec.note), false, true};
                        },
                        "no_effect, with a warning"};

KeySpec ignored(std::string_view key, std::string_view note) {
  return {.key = key, .type = Type::any, .note = note, .rule = &kIgnored};
}

}  // namespace

std::vector<KeySpec> ignored() {
  constexpr std::string_view monitors =
      "DeepSpeed ignores it: tensorboard and csv_monitor are sections of the top level";
  constexpr std::string_view ranks =
      "DeepSpeed ignores it: --num_gpus, or --hostfile, says which ranks there are";
  return {
      ignored("memory_efficient_linear", "DeepSpeed ignores it outside zero_optimization"),
      ignored("monitor_config", monitors),
      ignored("comms_config", "DeepSpeed ignores it: its section is comms_logger"),
      ignored("autotuning_config", "DeepSpeed ignores it: its section is autotuning"),
      ignored("cpu_affinity", "DeepSpeed ignores it: ranks are bound to cores by themselves"),
      ignored("distributed", ranks),
      ignored("data_parallel", ranks),
      ignored("cuda_visible_devices", ranks),
      ignored("pipeline.enabled", "DeepSpeed ignores it: pipeline.stages says how many there are"),
      ignored("launcher", "DeepSpeed ignores it: --launcher says it"),
      ignored("no_ssh_check", "DeepSpeed ignores it: the option --no_ssh_check says it"),
      ignored("zero3_init_flag",
              "Accelerate's, which DeepSpeed ignores: a rank makes its own slice"),
      ignored("zero3_save_16bit_model",
              "Accelerate's, which DeepSpeed ignores: model.safetensors always holds all weights"),
      ignored("zero_optimization.find_unused_parameters",
              "DeepSpeed refuses it now: every parameter has a gradient here"),
      ignored("zero_optimization.grad_hooks",
              "DeepSpeed refuses it now: gradients are reduced as the plan says"),
      ignored("zero_optimization.verbose", "DeepSpeed refuses it now: there is nothing to print"),
      ignored("zero_optimization.zero_allow_untested_optimizer",
              "DeepSpeed refuses it there: every optimizer works at every stage"),
      ignored("zero_optimization.offload_optimizer.buffer_size",
              "DeepSpeed refuses it there: the plan has the buffers that copies need"),
      ignored("zero_optimization.offload_optimizer.max_in_cpu",
              "DeepSpeed refuses it there: it is a key of offload_param"),
  };
}

}  // namespace dstrain::keys
