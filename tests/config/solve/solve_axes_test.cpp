#include "runtime/config/solve/solve_axes.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string with_axes(int64_t sequence, int64_t tensor, const std::string& more = "") {
  return trains_with(
      fmt::format(R"("sequence_parallel_size": {}, "tensor_parallel": {{"autotp_size": {}}}{}{})",
                  sequence, tensor, more.empty() ? "" : ", ", more));
}

std::string error_of(int64_t sequence, int64_t tensor, const std::string& more, int64_t ranks = 0) {
  return ask(with_axes(sequence, tensor, more), {}, ranks).error();
}

}  // namespace

TEST_CASE("axes: the batch is divided among the ranks with samples of their own") {
  const std::string text = R"({"train_batch_size": 48, "gradient_accumulation_steps": 4,
      "pipeline": {"stages": 2}, "sequence_parallel_size": 2, "tensor_parallel": {"autotp_size": 3},
      "data_parallel_size": 2})";
  const LoadedConfig loaded = ask(text, {}, 24).load();
  const Job& job = loaded.job;
  CHECK(job.pipeline.stages == 2);
  CHECK(job.sequence_ranks == 2);
  CHECK(job.tensor_ranks == 3);
  CHECK(job.data_ranks() == 2);
  CHECK(job.state_ranks() == 4);
  CHECK(job.batch == BatchConfig{48, 6, 4});
  CHECK(setting(loaded, "sequence_parallel_size").value == "2");
  CHECK(setting(loaded, "tensor_parallel.autotp_size").value == "3");
}

TEST_CASE("axes: sizes of 0 and 1 are a run without them") {
  for (const int64_t tensor : {0, 1}) {
    const Job job = ask(with_axes(1, tensor), {}, 4).job();
    CHECK(job.tensor_ranks == 1);
    CHECK(job.sequence_ranks == 1);
    CHECK(job.data_ranks() == 4);
  }
}

TEST_CASE("axes: the command line says the sizes, and overrules the file") {
  Ask a = ask(with_axes(4, 4), {}, 12);
  a.request.tensor_parallel = 2;
  a.request.sequence_parallel = 2;
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.tensor_ranks == 2);
  CHECK(loaded.job.sequence_ranks == 2);
  CHECK(loaded.job.data_ranks() == 3);
  CHECK(setting(loaded, "sequence_parallel_size").origin == "--sequence_parallel_size");
  CHECK(setting(loaded, "tensor_parallel.autotp_size").origin == "--tensor_parallel_size");
}

TEST_CASE("axes: ranks must be a multiple of the product of the axes") {
  const std::string model = R"("dstrain": {"model": {"block_size": 12}})";
  CHECK(error_of(2, 3, model + R"(, "pipeline": {"stages": 2})", 8) ==
        "c.json:1:125: pipeline.stages: 2 stages x 2 sequence ranks x 3 tensor ranks = 12 do not "
        "divide 8 ranks (--num_gpus) evenly: expected a multiple of 12 ranks, or a product of 1, "
        "2, 4 or 8");
  CHECK(error_of(1, 4, "", 6) ==
        "c.json:1:51: tensor_parallel.autotp_size: 4 tensor ranks do not divide 6 ranks "
        "(--num_gpus) evenly: expected a multiple of 4 ranks, or 1, 2, 3 or 6");
  CHECK(error_of(2, 1, "", 1) ==
        "c.json:1:2: sequence_parallel_size: 2 sequence ranks do not divide 1 rank (--num_gpus) "
        "evenly: expected a multiple of 2 ranks, or 1");
  // Without a number of ranks the rest is judged all the same.
  CHECK_FALSE(has_errors(ask(with_axes(2, 3, model)).check().verdicts));
  CHECK_THAT(error_of(4096, 4096, R"("pipeline": {"stages": 4096})"),
             Catch::Contains("do not divide among 4096 ranks"));
}

TEST_CASE("axes: the batch error names where the data-parallel ranks come from") {
  CHECK_THAT(ask(R"({"train_batch_size": 5, "train_micro_batch_size_per_gpu": 1,
                 "gradient_accumulation_steps": 1, "tensor_parallel": {"autotp_size": 2},
                 "sequence_parallel_size": 2})",
                 {}, 8)
                 .error(),
             Catch::Contains("2 ranks (--num_gpus / 2 sequence ranks / 2 tensor ranks)"));
  CHECK_THAT(error_of(2, 2, R"("data_parallel_size": 4)", 8),
             Catch::Contains("data_parallel_size: 4 is not the number of data-parallel ranks, 2"));
}

TEST_CASE("axes: the model must divide among the ranks") {
  const auto model = [](const std::string& members) {
    return "\"dstrain\": {\"model\": {" + members + "}}";
  };
  const std::string llama =
      R"("type": "llama", "hidden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 2)";
  CHECK(error_of(1, 2, model(llama), 2) == "no error");
  CHECK(error_of(1, 4, model(llama), 4) == "no error");  // two ranks have each
  CHECK_THAT(error_of(1, 3, model(llama), 3),
             Catch::Contains("tensor_parallel.autotp_size: the 2 key/value heads of the model can "
                             "neither be divided among 3 ranks nor each be had by as many: use 1, "
                             "2 or 4"));
  CHECK_THAT(error_of(1, 5, model(R"("n_head": 12)"), 5),
             Catch::Contains("the 12 attention heads of the model do not divide among 5 ranks"));
  // Sequence ranks copy key/value heads.
  CHECK(error_of(4, 1, model(llama), 4) == "no error");
  CHECK_THAT(error_of(8, 1, model(llama), 8),
             Catch::Contains("sequence_parallel_size: 12 attention heads do not divide among 8"));
  CHECK_THAT(error_of(4, 1, model(R"("n_head": 4, "block_size": 1022)"), 4),
             Catch::Contains("sequence_parallel_size: the 1022 tokens of a sample do not divide "
                             "among 4 ranks: use 1 or 2, or another dstrain.data.seq_len"));
  CHECK_THAT(error_of(1, 4, model(R"("n_head": 4, "block_size": 5)"), 4),
             Catch::Contains("tensor_parallel.autotp_size: a micro-batch of 2 samples of 5 tokens "
                             "does not divide among 4 ranks: use 1 or 2"));
  CHECK_THAT(error_of(2, 1, model(R"("type": "benchmark")"), 2),
             Catch::Contains("sequence_parallel_size: the samples of the benchmark model have no "
                             "tokens to divide: use 1"));
}

TEST_CASE("axes: what does not run on them yet is refused by name") {
  struct Refused {
    std::string members, message;
    bool sequence;  // on sequence ranks too
  };
  const Refused cases[] = {
      {R"("optimizer": {"type": "OneBitAdam"})", "optimizer.type: 1-bit optimizers do not run",
       true},
      {R"("dstrain": {"comm_hook": {"type": "powerSGD"}})",
       "dstrain.comm_hook.type: powerSGD and post_localSGD do not run", true},
      {R"("dstrain": {"comm_hook": {"type": "batched_powerSGD"}})",
       "dstrain.comm_hook.type: powerSGD and post_localSGD do not run", true},
      {R"("dstrain": {"comm_hook": {"type": "post_localSGD"}})",
       "dstrain.comm_hook.type: powerSGD and post_localSGD do not run", true},
      {R"("dstrain": {"lora": {"r": 4, "base": "nf4"}})",
       "dstrain.lora.base: weights in packed blocks do not run", false},
      {R"("dstrain": {"lora": {"r": 4, "dropout": 0.1}})",
       "dstrain.lora.dropout: dropout of adapters does not run", false},
  };
  for (const Refused& c : cases) {
    INFO(c.members);
    CHECK_THAT(error_of(1, 2, c.members, 8),
               Catch::Contains(c.message + " with tensor_parallel.autotp_size above 1 yet: "));
    if (c.sequence)
      CHECK_THAT(error_of(2, 1, c.members, 8),
                 Catch::Contains(c.message + " with sequence_parallel_size above 1 yet: "));
    else
      CHECK(error_of(2, 1, c.members, 8) == "no error");
    CHECK(error_of(1, 1, c.members, 8) == "no error");
  }
  CHECK_THAT(error_of(2, 2, R"("optimizer": {"type": "OneBitAdam"})", 8),
             Catch::Contains("do not run with sequence_parallel_size and "
                             "tensor_parallel.autotp_size above 1 yet: use AdamW"));
  CHECK(error_of(2, 2, R"("dstrain": {"comm_hook": {"type": "fp16_compress"}})", 8) == "no error");
}

TEST_CASE("axes: optimizers, codecs, shards, a loss in pieces and adapters run on them") {
  for (const char* members :
       {R"("optimizer": {"type": "Muon"})", R"("optimizer": {"type": "Lamb"})",
        R"("zero_optimization": {"stage": 3, "mics_shard_size": 2})",
        R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2})",
        R"("dstrain": {"sharding": "HYBRID_SHARD"})",
        R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})",
        R"("zero_optimization": {"stage": 3, "zero_quantized_gradients": true})",
        R"("dstrain": {"loss_chunks": 2})", R"("dstrain": {"mlp_chunks": 2})",
        R"("dstrain": {"lora": {"r": 4}})"}) {
    INFO(members);
    CHECK(error_of(2, 1, members, 8) == "no error");
    CHECK(error_of(1, 2, members, 8) == "no error");
    CHECK(error_of(2, 2, members, 8) == "no error");
  }
  CHECK_THAT(error_of(2, 2, R"("zero_optimization": {"stage": 3, "mics_shard_size": 4})", 8),
             Catch::Contains("4 does not divide the 2 data-parallel ranks"));
}

TEST_CASE("axes: sparse gradients travel as tables") {
  const LoadedConfig loaded = ask(with_axes(1, 2, R"("sparse_gradients": true)"), {}, 4).load();
  CHECK_FALSE(loaded.job.sparse_gradients);
  CHECK(verdict(loaded, "sparse_gradients") ==
        "no_effect: with sequence or tensor parallelism the token embedding's gradient travels as "
        "a table");
}

TEST_CASE("axes: a file may leave open whether rows are gathered again") {
  const auto asked = [](const std::string& value) {
    const std::string members =
        value.empty() ? "" : R"("dstrain": {"gather_again": )" + value + "}";
    return ask(with_axes(1, 2, members), {}, 2).job().gather_again;
  };
  CHECK(asked("") == GatherAgain::automatic);
  CHECK(asked("\"auto\"") == GatherAgain::automatic);
  CHECK(asked("true") == GatherAgain::on);
  CHECK(asked("false") == GatherAgain::off);
}

TEST_CASE("axes: the ranks that add gradients are those of both axes of samples") {
  const auto sums = [](int64_t sequence, int64_t tensor, int64_t ranks) {
    return ask(with_axes(sequence, tensor), {}, ranks).job().rank_order_sums;
  };
  CHECK(sums(1, 2, 16));
  CHECK_FALSE(sums(2, 1, 16));
  CHECK(sums(2, 2, 16));
  const LoadedConfig lone =
      ask(with_axes(1, 2, R"("zero_optimization": {"stage": 3, "zero_quantized_weights": false},
                             "dstrain": {"comm_hook": {"type": "noop"}})"),
          {}, 2)
          .load();
  CHECK(lone.job.state_ranks() == 1);
}

TEST_CASE("axes: a job divides if its model and its micro-batch do") {
  Job job;
  job.model = ModelConfig(*model_registry().find("gptlite"));
  job.model.set("n_head", int64_t{4});
  job.model.set("block_size", int64_t{6});
  job.batch.micro_batch = 2;
  CHECK(divides_among_ranks(job));
  job.tensor_ranks = 4;
  CHECK(divides_among_ranks(job));
  job.batch.micro_batch = 1;
  CHECK_FALSE(divides_among_ranks(job));
  job.tensor_ranks = 2;
  CHECK(divides_among_ranks(job));
  job.sequence_ranks = 2;
  CHECK_FALSE(divides_among_ranks(job));
}

namespace {

// Returns a configuration of a model of 8 experts, which `ranks` of them divide.
std::string with_experts(int64_t ranks, const std::string& more = "",
                         const std::string& model = R"({"type": "mixtral"})") {
  return fmt::format(
      R"({{"train_micro_batch_size_per_gpu": 1, "expert_parallel": {{"enabled": true, "autoep_size": {}}}{}{},
          "dstrain": {{"model": {}, "data": {{"format": "bin", "path": "x.bin"}}}}}})",
      ranks, more.empty() ? "" : ", ", more, model);
}

}  // namespace

TEST_CASE("axes: ranks with samples of their own divide experts") {
  const Job job = ask(with_experts(4), {}, 8).job();
  CHECK(job.expert_ranks == 4);
  CHECK(job.data_ranks() == 8);
  CHECK(ask(with_experts(1), {}, 8).job().expert_ranks == 1);
  CHECK_THAT(ask(with_experts(3), {}, 6).error(),
             Catch::Contains("3 ranks do not divide the 8 experts of a layer evenly"));
  CHECK_THAT(ask(with_experts(4), {}, 6).error(),
             Catch::Contains("4 ranks do not divide the 6 data-parallel ranks evenly"));
  CHECK_THAT(ask(with_experts(2, R"("pipeline": {"stages": 2})"), {}, 6).error(),
             Catch::Contains("2 ranks do not divide the 3 data-parallel ranks evenly"));
  CHECK_THAT(ask(with_experts(2, "", R"({"type": "llama"})"), {}, 2).error(),
             Catch::Contains("no experts to divide"));
}

TEST_CASE("axes: what does not run with divided experts is refused by name") {
  const auto error = [](const std::string& more) {
    return ask(with_experts(2, more), {}, 4).error();
  };
  CHECK_THAT(error(R"("optimizer": {"type": "Lamb"})"),
             Catch::Contains("Lamb does not run with expert_parallel.autoep_size above 1 yet"));
  CHECK_THAT(error(R"("optimizer": {"type": "AdamW8bit"})"),
             Catch::Contains("does not run with expert_parallel.autoep_size above 1 yet"));
  CHECK_THAT(error(R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})"),
             Catch::Contains("parameters do not travel quantized"));
  CHECK_THAT(error(R"("zero_optimization": {"stage": 3, "mics_shard_size": 2})"),
             Catch::Contains("shards of some ranks do not run"));
  CHECK(error(R"("optimizer": {"type": "Muon"})") == "no error");
}
