#include "launcher/input/run_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/implementations.h"
#include "launcher/input/defaults.h"
#include "launcher/input/output_folder.h"
#include "launcher/process/failure.h"
#include "models/registry.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"
#include "runtime/plan/report/print.h"
#include "runtime/plan/settings/fit.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of_rank(const Job& job) {
  const PlanInputs inputs = plan_inputs(job);
  const HostMemoryNeed need =
      memory_need(job, planned_memory(job, inputs), inputs, 1, RankProcesses::programs);
  return need.planned + need.process;
}

TEST_CASE("a batch that the file leaves open is halved until it fits") {
  std::string folder = (fs::temp_directory_path() / "dstrain_batch_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/c.json") << R"({"gradient_accumulation_steps": 2, "dstrain": {"model":
      {"n_layer": 2, "n_embd": 64, "n_head": 2, "block_size": 256, "vocab_size": 11}}})";
  ConfigRequest request;
  request.models = &model_registry();
  request.path = folder + "/c.json";
  request.ranks = 2;
  const auto settled = [&](std::optional<int64_t> each) {
    request.sets.clear();
    LoadedConfig loaded = load_config(request);
    loaded.job.device = DeviceChoice::cpu;
    settle_batch(
        request, loaded,
        each ? std::optional(RankMemory{*each * 2, 2, RankProcesses::programs}) : std::nullopt);
    return loaded;
  };
  const LoadedConfig whole = settled(std::nullopt);
  CHECK(whole.job.batch == BatchConfig{32, 8, 2});
  CHECK(request.sets.empty());
  CHECK(batch_line("c.json", whole) ==
        "c.json names no batch size: micro-batch 8 (Hugging Face's default), accumulation 2");

  const int64_t enough = bytes_of_rank(whole.job);
  CHECK(settled(enough).job.batch == whole.job.batch);
  const LoadedConfig half = settled(enough - 1);
  CHECK(half.job.batch == BatchConfig{16, 4, 2});
  CHECK(request.sets == std::vector<std::string>{"train_micro_batch_size_per_gpu=4"});
  CHECK(
      batch_line("c.json", half) ==
      "c.json names no batch size: micro-batch 4 (Hugging Face's default 8, halved until the plan "
      "fits), accumulation 2");
  CHECK(job_from_resolved(resolved_config_json(half), model_registry()).batch == half.job.batch);
  Job smallest = whole.job;
  smallest.batch = {4, 1, 2};
  const int64_t least = bytes_of_rank(smallest);
  CHECK(settled(least).job.batch.micro_batch == 1);
  CHECK(settled(least - 1).job.batch.micro_batch == 8);  // no micro-batch would fit
  CHECK(settled(0).job.batch.micro_batch == 8);

  // A run that is resumed keeps the batch that it had.
  fs::create_directories(folder + "/run/checkpoints/step_4");
  std::ofstream(folder + "/run/resolved_config.json") << resolved_config_json(half);
  for (const char* resumed : {"/run", "/run/checkpoints/step_4"}) {
    request.resume = folder + resumed;
    CHECK(settled(enough).job.batch == half.job.batch);
  }
  request.resume.reset();
  request.sets = {"train_batch_size=8"};
  LoadedConfig named = load_config(request);
  settle_batch(request, named, RankMemory{});
  CHECK(named.job.batch == BatchConfig{8, 2, 2});
  CHECK(batch_line("c.json", named).empty());
  fs::remove_all(folder);
}

TEST_CASE("rows of a tensor group are gathered again where the memory suffices only so") {
  std::string folder = (fs::temp_directory_path() / "dstrain_gathers_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/c.json")
      << R"({"tensor_parallel": {"autotp_size": 2}, "dstrain": {"model":
      {"n_layer": 4, "n_embd": 64, "n_head": 2, "block_size": 256, "vocab_size": 11}}})";
  ConfigRequest request;
  request.models = &model_registry();
  request.path = folder + "/c.json";
  request.ranks = 2;
  const auto settled = [&](int64_t each, std::vector<std::string> sets = {}) {
    request.sets = std::move(sets);
    LoadedConfig loaded = load_config(request);
    loaded.job.device = DeviceChoice::cpu;
    settle_to_fit(request, loaded, RankMemory{each * 2, 2, RankProcesses::programs});
    return loaded;
  };
  const std::string batch = "train_micro_batch_size_per_gpu=8", again = "dstrain.gather_again=true";
  const Job kept = settled(int64_t{1} << 40, {batch}).job;
  CHECK(kept.gather_again == GatherAgain::automatic);
  CHECK(request.sets == std::vector<std::string>{batch});
  Job gathering = kept;
  gathering.gather_again = GatherAgain::on;
  const int64_t most = bytes_of_rank(kept), least = bytes_of_rank(gathering);
  REQUIRE(least < most);
  CHECK(settled(most, {batch}).job.gather_again == GatherAgain::automatic);
  const LoadedConfig made_to_fit = settled(most - 1, {batch});
  CHECK(made_to_fit.job.gather_again == GatherAgain::on);
  CHECK(request.sets == std::vector<std::string>{batch, again});
  CHECK(
      settled_lines("c.json", made_to_fit) ==
      std::vector<std::string>{"c.json leaves dstrain.gather_again open: true, as the memory does "
                               "not suffice to keep what tensor ranks gather"});
  CHECK(settled_lines("c.json", settled(least, {batch, again})).empty());
  CHECK(job_from_resolved(resolved_config_json(made_to_fit), model_registry()).gather_again ==
        GatherAgain::on);
  CHECK(settled(least - 1, {batch}).job.gather_again ==
        GatherAgain::automatic);  // it would not help
  CHECK(settled(least, {batch, "dstrain.gather_again=false"}).job.gather_again == GatherAgain::off);
  // A default micro-batch is halved only where that does not suffice.
  CHECK(settled(least).job.batch.micro_batch == 8);
  CHECK(settled(least - 1).job.batch.micro_batch == 4);
  fs::remove_all(folder);
}

TEST_CASE("the loss and MLPs come in pieces where a batch that the file names fits only so") {
  std::string folder = (fs::temp_directory_path() / "dstrain_pieces_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/c.json") << R"({"dstrain": {"model": {"n_layer": 4, "n_embd": 64,
      "n_head": 2, "block_size": 2048, "activation": "gelu", "vocab_size": 11}}})";
  ConfigRequest request;
  request.models = &model_registry();
  request.path = folder + "/c.json";
  request.ranks = 1;
  const auto settled = [&](int64_t each, std::vector<std::string> sets) {
    request.sets = std::move(sets);
    LoadedConfig loaded = load_config(request);
    loaded.job.device = DeviceChoice::cpu;
    settle_to_fit(request, loaded, RankMemory{each, 1, RankProcesses::programs});
    return loaded;
  };
  const std::string batch = "train_micro_batch_size_per_gpu=1", four = "dstrain.mlp_chunks=4";
  const LoadedConfig whole = settled(int64_t{1} << 40, {batch});
  CHECK(whole.job.mlp_chunks == 0);
  CHECK(whole.job.loss_chunks == 0);
  CHECK(settled_lines("c.json", whole).empty());
  CHECK(job_from_resolved(resolved_config_json(whole), model_registry()).mlp_chunks == 0);
  Job fewer = whole.job;
  fewer.mlp_chunks = 2;
  const int64_t enough = bytes_of_rank(fewer);
  REQUIRE(enough < bytes_of_rank(whole.job));
  const LoadedConfig pieces = settled(enough, {batch});
  CHECK(pieces.job.mlp_chunks == 2);
  CHECK(request.sets.back() == "dstrain.mlp_chunks=2");
  const std::vector<std::string> lines = settled_lines("c.json", pieces);
  REQUIRE_FALSE(lines.empty());
  CHECK(lines.back() ==
        "c.json leaves dstrain.mlp_chunks open: 2, as the memory does not suffice for the hidden "
        "values of all rows");
  CHECK(job_from_resolved(resolved_config_json(pieces), model_registry()).mlp_chunks == 2);
  CHECK(settled(enough, {batch, four}).job.mlp_chunks == 4);
  CHECK(settled(enough, {batch, "dstrain.mlp_chunks=1"}).job.mlp_chunks == 1);
  // A micro-batch that the file leaves open is halved before.
  CHECK(settled(bytes_of_rank(whole.job), {}).job.mlp_chunks == 0);
  CHECK(settled(bytes_of_rank(whole.job), {}).job.batch.micro_batch == 1);
  fs::remove_all(folder);
}

TEST_CASE("a bucket size without effect on the plan is not called honoured") {
  std::string folder = (fs::temp_directory_path() / "dstrain_bucket_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/c.json") << R"({"train_micro_batch_size_per_gpu": 1, "dstrain": {"model":
         {"n_layer": 3, "n_embd": 8, "n_head": 1, "block_size": 4, "vocab_size": 11}}})";
  const auto asked = [&](int stage, const std::string& reduce, bool bf16, const std::string& wire,
                         bool overlap, int64_t bucket) {
    ConfigRequest request;
    request.models = &model_registry();
    request.path = folder + "/c.json";
    request.ranks = 2;
    request.sets = {fmt::format("zero_optimization.stage={}", stage),
                    fmt::format("zero_optimization.overlap_comm={}", overlap),
                    fmt::format("zero_optimization.reduce_bucket_size={}", bucket),
                    "dstrain.reduce=" + reduce, fmt::format("bf16.enabled={}", bf16)};
    if (!wire.empty()) request.sets.push_back("communication_data_type=" + wire);
    LoadedConfig loaded = load_config(request);
    loaded.job.device = DeviceChoice::cpu;
    return loaded;
  };
  const auto plan_of = [](const Job& job) {
    return plan_to_json(make_rank_plan(job, place_of(job, 0), plan_inputs(job)));
  };
  int without = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const char* reduce : {"boundary", "micro_batch"})
      for (const bool bf16 : {false, true})
        for (const char* wire : {"", "fp32", "fp16"})
          for (const bool overlap : {false, true}) {
            const LoadedConfig small = asked(stage, reduce, bf16, wire, overlap, 0);
            const LoadedConfig large = asked(stage, reduce, bf16, wire, overlap, 500'000'000);
            const bool no_effect = plan_of(small.job) == plan_of(large.job);
            CAPTURE(stage, reduce, bf16, wire, overlap);
            const auto verdict = std::ranges::find(
                small.verdicts, "zero_optimization.reduce_bucket_size", &Verdict::key);
            CHECK((verdict->state == State::no_effect) == no_effect);
            if (overlap && no_effect) ++without;
          }
  CHECK(without > 0);
  fs::remove_all(folder);
}

TEST_CASE("the device is settled once") {
  Job job;
  job.device = DeviceChoice::automatic;
  settle_device(job);
  CHECK(job.device == (cuda_device_count() > 0 ? DeviceChoice::cuda : DeviceChoice::cpu));
  job.device = DeviceChoice::emulated;
  settle_device(job);
  CHECK(job.device == DeviceChoice::emulated);
  job.graph = GraphMode::on;
  CHECK_NOTHROW(settle_device(job));
  job.device = DeviceChoice::cpu;
  CHECK_THROWS_WITH(settle_device(job), Catch::Contains("the CPU has no graphs"));
  CHECK_NOTHROW(settle_device(job, RunsWhere::nowhere));
  job.graph = GraphMode::automatic;
  job.device = DeviceChoice::cuda;
  if (cuda_device_count() == 0)
    CHECK_THROWS_WITH(settle_device(job), Catch::Contains("--device cpu"));
  else
    settle_device(job);
  if (has_cuda_backend())  // other hosts may have GPUs
    CHECK_NOTHROW(settle_device(job, RunsWhere::elsewhere));
  else
    CHECK_THROWS_WITH(settle_device(job, RunsWhere::elsewhere), Catch::Contains("without CUDA"));
}

TEST_CASE("an output directory is made with its parents and left empty") {
  std::string name = (fs::temp_directory_path() / "dstrain_out_XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  check_output_directory(name + "/a/b");
  CHECK(fs::is_empty(name + "/a/b"));
  fs::remove_all(name);
  CHECK_THROWS_WITH(check_output_directory("/proc/nowhere"),
                    Catch::StartsWith("cannot make the output directory /proc/nowhere: "));
  CHECK_THROWS_WITH(check_output_directory("/proc"),
                    Catch::StartsWith("cannot write in the output directory /proc: "));
}

template <class Thrown>
Failure failure_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return current_failure();
  }
}

TEST_CASE("every exception has a kind, a text and an exit status") {
  CHECK(failure_of(UserError("u")).exit_status() == 1);
  CHECK(failure_of(RunError("r")).exit_status() == 2);
  CHECK(failure_of(RunError("r")).text == "r");
  CHECK(failure_of(InternalError("i")).kind == FailureKind::internal);
  CHECK(failure_of(InternalError("i")).text == "internal error, please report it: i");
  CHECK(failure_of(std::bad_alloc()).text == "the machine has no memory left");
  CHECK(failure_of(3).exit_status() == 2);
}

}  // namespace
}  // namespace dstrain
