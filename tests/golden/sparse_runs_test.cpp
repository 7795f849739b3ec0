// Whole runs in which the token embedding's gradient travels as rows: near the run with the table, resumed, the bytes
// of metrics.jsonl and what the log says.
#include <catch2/catch.hpp>

#include "tests/golden/run_program.h"

using namespace dstrain::golden;
using nlohmann::json;

namespace {

constexpr int kSparseSteps = 8, kSparseHalf = 4;

class SparseRuns {
 public:
  // `samples`: of a step; 4 are one micro-batch of each of two ranks, else there are two.
  Run run(bool sparse, int steps, std::vector<std::string> arguments = {}, int samples = 4) {
    json config = golden_.config;
    config["sparse_gradients"] = sparse;
    config["dstrain"]["steps"] = steps;
    config["train_batch_size"] = samples;
    config["gradient_accumulation_steps"] = samples == 4 ? 1 : 2;
    arguments.insert(arguments.end(), {"--num_gpus", "2"});
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  int runs_ = 0;
};

std::string log_of(const Run& run) {
  return read_bytes(run.output.parent_path() / "log.txt");
}

}  // namespace

TEST_CASE("sparse_gradients: losses and norms are those of the table, with fewer bytes") {
  SparseRuns runs;
  const Run table = runs.run(false, kSparseSteps), rows = runs.run(true, kSparseSteps);
  REQUIRE(rows.steps.size() == table.steps.size());
  for (size_t i = 0; i < rows.steps.size(); ++i) {
    CHECK(rows.column("loss")[i] == Approx(table.column("loss")[i]).epsilon(1e-6));
    CHECK(rows.column("grad_norm")[i] == Approx(table.column("grad_norm")[i]).epsilon(1e-5));
    // The rows of 26 tokens travel in place of 37 rows and their padding. Ids do not count: less than 1024 bytes.
    CHECK(table.column("comm_bytes")[i] - rows.column("comm_bytes")[i] ==
          (37 * 24 + 8) * 4 - 26 * 24 * 4);
  }
  CHECK(log_of(rows).find("gradient travels as rows of tokens") != std::string::npos);
  CHECK(log_of(table).find("sparse_gradients:") == std::string::npos);
}

TEST_CASE("sparse_gradients: a run that was stopped goes on bit for bit, and without the key too") {
  SparseRuns runs;
  const Run expected = runs.run(true, kSparseSteps);
  const Run first = runs.run(true, kSparseHalf, {"--save_interval", std::to_string(kSparseHalf)});
  const Run second = runs.run(true, kSparseSteps, {"--resume", first.output.string()});
  CHECK(read_bytes(second.output / "model.safetensors") ==
        read_bytes(expected.output / "model.safetensors"));
  const Run dense = runs.run(false, kSparseSteps, {"--resume", first.output.string()});
  CHECK(dense.steps.back()["loss"].get<double>() ==
        Approx(expected.steps.back()["loss"].get<double>()).epsilon(1e-6));
}

TEST_CASE(
    "sparse_gradients: a small table travels whole, with the same bits, and the log says why") {
  SparseRuns runs;
  const Run with = runs.run(true, kSparseHalf, {}, 12),
            without = runs.run(false, kSparseHalf, {}, 12);
  CHECK(with.column("loss") == without.column("loss"));
  CHECK(with.column("comm_bytes") == without.column("comm_bytes"));
  CHECK(
      log_of(with).find("gradient travels as the whole table: rows take 7.80 kB a step, the table "
                        "3.55 kB") != std::string::npos);
}
