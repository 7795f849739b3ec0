#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/engine/metrics/csv_monitor.h"
#include "runtime/engine/metrics/event_record.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

StepMetrics step_at(int64_t samples, double loss) {
  return {.samples = samples, .loss = loss, .lr = 1e-4f, .loss_scale = 2};
}

TEST_CASE("crc32c has the check value of CRC-32C") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c("") == 0);
}

TEST_CASE("tags of a step are DeepSpeed's, with the loss scale where there is one") {
  const auto has_scale = [](const std::vector<TaggedValue>& values) {
    bool found = false;
    for (const TaggedValue& v : values)
      found |= v.tag == "Train/Samples/loss_scale" && v.value == 2;
    return found;
  };
  CHECK(has_scale(tagged_values(step_at(8, 1), true)));
  CHECK_FALSE(has_scale(tagged_values(step_at(8, 1), false)));
}

TEST_CASE("tags of a step have the times of its phases where they are measured") {
  StepMetrics metrics = step_at(8, 1);
  const auto times_of = [&] {
    std::vector<double> times;
    for (const TaggedValue& v : tagged_values(metrics, false))
      if (v.tag.starts_with("Train/Samples/elapsed_time_ms_")) times.push_back(v.value);
    return times;
  };
  CHECK(times_of().empty());
  metrics.phases = StepPhases{
      .micro_batches = {{.forward = 1, .backward_inner = 2},
                        {.forward = 3, .backward_inner = 4, .backward_allreduce = 5, .step = 6}}};
  CHECK(times_of() == std::vector<double>{4, 11, 6, 5, 6});
}

TEST_CASE(
    "csv monitor: a new run appends without a second header, a resumed one cuts later lines") {
  const TempDir scratch;
  const std::string directory = scratch.path() + "/csv";
  const std::string loss = directory + "/Train_Samples_train_loss.csv";
  for (int run = 0; run < 2; ++run) {
    CsvMonitor csv(directory, {});
    for (const int64_t samples : {8, 16, 24}) csv.step(step_at(samples, 0.5));
  }
  CHECK(bytes_of_file(loss) == "step,train_loss\n8,0.5\n16,0.5\n24,0.5\n8,0.5\n16,0.5\n24,0.5\n");
  std::ofstream(loss, std::ios::app) << "32,0.";  // a line that a crash has cut
  {
    CsvMonitor csv(directory, {.resumed_samples = 8, .resumed_validated = true});
    csv.validation({.samples = 8, .loss = 3});  // reported before
    csv.step(step_at(16, 0.25));
    csv.validation({.samples = 16, .loss = 2});
  }
  CHECK(bytes_of_file(loss) == "step,train_loss\n8,0.5\n16,0.5\n24,0.5\n8,0.5\n16,0.25\n");
  CHECK(bytes_of_file(directory + "/Train_Samples_eval_loss.csv") == "step,eval_loss\n16,2\n");
  CHECK(bytes_of_file(directory + "/Train_Samples_lr.csv").ends_with("\n16,0.0001\n"));
}

}  // namespace
}  // namespace dstrain
