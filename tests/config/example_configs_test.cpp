#include <catch2/catch.hpp>
#include <filesystem>

#include "models/registry.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
ConfigRequest example(const std::string& name, int64_t ranks) {
  ConfigRequest request;
  request.models = &model_registry();
  request.path = std::string(DSTRAIN_SOURCE_DIR) + "/configs/" + name;
  request.ranks = ranks;
  request.need_data = true;
  return request;
}
}  // namespace

TEST_CASE("examples: every configuration that comes with dstrain trains without a warning") {
  int found = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(DSTRAIN_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".json") continue;
    ++found;
    INFO(entry.path());
    const LoadedConfig loaded = load_config(example(entry.path().filename().string(), 2));
    CHECK(loaded.warnings.empty());
    for (const Verdict& v : loaded.verdicts) CHECK(v.state == State::honoured);
  }
  CHECK(found >= 5);
}

TEST_CASE("examples: the original job accumulates 32 micro-batches on 8 ranks") {
  const Job job = load_config(example("ds_config.json", 8)).job;
  CHECK(job.batch == BatchConfig{256, 1, 32});
  CHECK(job.model.integer("block_size") == 2048);
  CHECK(job.model.integer("n_layer") == 12);
  CHECK(job.model.integer("n_embd") == 768);
  CHECK(job.schedule.kind == ScheduleKind::warmup);
  CHECK(job.gradient_clipping == 1.0);
  CHECK(job.output == "runs/ds_config");
}
