#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// Returns the section tensor_parallel with these members, on two ranks for each layer.
std::string divided(const std::string& members) {
  return "\"tensor_parallel\": {\"autotp_size\": 2, " + members + "}";
}

std::string key(const std::string& name) {
  return "tensor_parallel." + name;
}

}  // namespace

TEST_CASE("tensor parallel: the number of ranks") {
  check_all({
      {R"("tensor_parallel": {"autotp_size": 0})", key("autotp_size"), "no_effect: off"},
      {R"("tensor_parallel": {"autotp_size": 1})", key("autotp_size"), "no_effect: off"},
      {R"("tensor_parallel": {"autotp_size": "4"})", key("autotp_size"), "honoured"},
      {R"("tensor_parallel": {"autotp_size": -1})", key("autotp_size"),
       "error: expected an integer from 0 to 4096, found -1"},
  });
}

TEST_CASE("tensor parallel: tp_size must not contradict autotp_size, and does nothing alone") {
  const std::string redundant = "no_effect: tensor_parallel.autotp_size is the number of ranks";
  check_all({
      {divided(R"("tp": {"tp_size": 1})"), key("tp.tp_size"), redundant},
      {divided(R"("tp": {"tp_size": 2})"), key("tp.tp_size"), redundant},
      {divided(R"("tp": {"tp_size": 4})"), key("tp.tp_size"),
       "error: 4 does not match tensor_parallel.autotp_size 2: use 2, or 1"},
      {R"("tensor_parallel": {"autotp_size": 1, "tp": {"tp_size": 2}})", key("tp.tp_size"),
       "error: 2 does not match tensor_parallel.autotp_size 1: use 1"},
      {R"("tensor_parallel": {"tp": {"tp_size": 2}})", key("tp.tp_size"),
       "no_effect: tensor parallelism is off, as in DeepSpeed: tensor_parallel.autotp_size 2 turns "
       "it on"},
      {R"("tensor_parallel": {"autotp_size": -1, "tp": {"tp_size": 2}})", key("tp.tp_size"),
       "error: see tensor_parallel.autotp_size"},
  });
  const LoadedConfig alone =
      ask(trains_with(R"("tensor_parallel": {"tp": {"tp_size": 2}})"), {}, 2).load();
  CHECK(alone.job.tensor_ranks == 1);
  REQUIRE(alone.warnings.size() == 1);
  CHECK_THAT(alone.warnings[0], Catch::Contains("autotp_size 2 turns it on"));
}

TEST_CASE("tensor parallel: keys that the division of layers leaves without an effect") {
  check_all({
      {divided(R"("vocab_parallel_lm_head": true)"), key("vocab_parallel_lm_head"), "honoured"},
      {divided(R"("vocab_parallel_lm_head": null)"), key("vocab_parallel_lm_head"),
       "no_effect: unset"},
      {divided(R"("vocab_parallel_lm_head": false)"), key("vocab_parallel_lm_head"),
       "no_effect: heads are always divided by vocabulary: the numbers are the same"},
      {divided(R"("vocab_parallel_ce_backend": "torch")"), key("vocab_parallel_ce_backend"),
       "honoured"},
      {divided(R"("vocab_parallel_ce_backend": "liger")"), key("vocab_parallel_ce_backend"),
       "no_effect: it names the kernels of a loss whose numbers are the same"},
      {divided(R"("preset_model": "llama")"), key("preset_model"),
       "no_effect: how layers are divided follows from the model"},
      {divided(R"("injection_policy_tuple": ["o_proj"])"), key("injection_policy_tuple"),
       "no_effect: how layers are divided follows from the model"},
      {divided(R"("dtype": "torch.bfloat16")"), key("dtype"),
       "no_effect: the run's type is that of bf16 and fp16"},
      {divided(R"("kernel_inject": true)"), key("kernel_inject"),
       "no_effect: it replaces modules of PyTorch, of which there are none"},
      {divided(R"("keep_module_on_host": true)"), key("keep_module_on_host"),
       "no_effect: it says where PyTorch's modules are while they are divided, and there are none"},
      {divided(R"("tp": {"tp_grain_size": 64})"), key("tp.tp_grain_size"),
       "no_effect: parts need no granularity: the last ones are filled up (DeepSpeed's training "
       "does not read it either)"},
      {R"("tensor_parallel": {"preset_model": "llama"})", key("preset_model"),
       "no_effect: tensor parallelism is off"},
  });
}

TEST_CASE("tensor parallel: messages that travel beside computation") {
  const std::string on = R"("tp_overlap_comm": true)", off = R"("tp_overlap_comm": false)";
  check_all({
      {divided(on), key("tp_overlap_comm"), "honoured"},
      {divided(off), key("tp_overlap_comm"), "honoured"},
      {"\"tensor_parallel\": {" + on + "}", key("tp_overlap_comm"),
       "no_effect: tensor parallelism is off"},
  });
  const auto overlaps = [](const std::string& section) {
    return ask(trains_with(section), {}, 2).load().job.overlap_tensor;
  };
  CHECK(overlaps(divided(on)));
  CHECK_FALSE(overlaps(divided(off)));
  CHECK_FALSE(overlaps(divided(R"("tp": {"tp_size": 2})")));
  CHECK_FALSE(overlaps("\"tensor_parallel\": {" + on + "}"));
}

TEST_CASE("tensor parallel: what would divide layers otherwise is refused") {
  const std::string specs = R"("partition_config": {"layer_specs": [{"patterns": ["x"]}]})";
  check_all({
      {divided(specs), key("partition_config"),
       "refused: how layers are divided follows from the model: remove it, as patterns that say "
       "the same are not needed"},
      {divided(R"("partition_config": {})"), key("partition_config"), "no_effect: it is empty"},
      {divided(R"("partition_config": null)"), key("partition_config"), "no_effect: unset"},
      {"\"tensor_parallel\": {" + specs + "}", key("partition_config"),
       "no_effect: tensor parallelism is off"},
      {divided(R"("tp": {"mpu": {"a": 1}})"), key("tp.mpu"),
       "refused: an object of a Python program, which there is not: remove the key"},
      {divided(R"("tp": {"tp_group": null})"), key("tp.tp_group"), "no_effect: unset"},
  });
}

TEST_CASE("tensor parallel: rows are gathered again where layers are divided and kept") {
  const std::string again = R"("dstrain": {"gather_again": true})", key = "dstrain.gather_again";
  const std::string two = R"("tensor_parallel": {"autotp_size": 2}, )";
  check_all({
      {again, key, "no_effect: no layer is divided among ranks"},
      {two + again, key, "honoured"},
      {two + R"("dstrain": {"gather_again": "auto"})", key, "no_effect: unset"},
      {two + R"("dstrain": {"gather_again": true, "recompute": "selective"})", key, "honoured"},
      {two + R"("dstrain": {"gather_again": true, "recompute": 1})", key,
       "no_effect: recompute of layers gathers again in any case"},
      {two + R"("dstrain": {"gather_again": 3})", key, "error: expected true or false, found 3"},
  });
}

TEST_CASE("sequence parallel: the number of ranks, and the way of attention") {
  check_all({
      {R"("sequence_parallel_size": 1)", "sequence_parallel_size", "no_effect: off"},
      {R"("sequence_parallel_size": 2)", "sequence_parallel_size", "honoured"},
      {R"("sequence_parallel_size": 0)", "sequence_parallel_size",
       "error: expected an integer from 1 to 4096, found 0"},
      {R"("dstrain": {"sequence_parallel": "ring"})", "dstrain.sequence_parallel",
       "no_effect: sequence parallelism is off"},
      {R"("sequence_parallel_size": 2, "dstrain": {"sequence_parallel": "ring"})",
       "dstrain.sequence_parallel",
       "not_yet: ring attention is not available yet: use \"ulysses\""},
      {R"("sequence_parallel_size": 2, "dstrain": {"sequence_parallel": "Ulysses"})",
       "dstrain.sequence_parallel", "honoured"},
      {R"("sequence_parallel_size": 2, "seq_parallel_communication_data_type": "bf16")",
       "seq_parallel_communication_data_type",
       "no_effect: gradients of all ranks travel as communication_data_type says"},
  });
}
