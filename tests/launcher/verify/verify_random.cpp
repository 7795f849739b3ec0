// Verifies random legal configurations: each is trained naively, as plain data parallelism and as it is, on ranks of
// this machine, and the three are compared. Of some, a fifth of the labels do not count.
//   verify_random [--cases N] [--seed N]
// In a sampled run (tests/support/sample.h) the seed is the number of the sample. A case that fails prints its own seed:
// --seed N --cases 1 repeats it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>

#include "launcher/verify/verified_runs.h"
#include "tests/engine/test_rank.h"
#include "tests/launcher/verify/random_jobs.h"

using namespace dstrain;

namespace {

constexpr int64_t kSteps = 4;

// Random samples, without a validation.
class Samples final : public RandomDataset {
 public:
  using RandomDataset::RandomDataset;
  int64_t samples(Split split) const override {
    return split == Split::train ? RandomDataset::samples(split) : 0;
  }
};

// Returns what is wrong, or "".
std::string try_case(uint64_t seed, bool print) {
  RandomJobs random(seed);
  const Job job = random.next();
  const Samples data(classes_of(job.model), random.ignored_labels());
  try {
    const Comparison c = verify_small_job(job, data, {.steps = kSteps});
    if (print || !c.equal) fmt::print("{}", comparison_text(c));
    return c.equal ? "" : "different";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("random configurations, verified");
  int64_t cases = 100;
  uint64_t seed = 1;
  if (const char* sample = std::getenv("DSTRAIN_SAMPLE")) seed = std::strtoull(sample, nullptr, 10);
  bool print = false;
  app.add_option("--cases", cases, "how many");
  app.add_option("--seed", seed, "of the first case; the next ones count up");
  app.add_flag("--print", print, "print every comparison");
  CLI11_PARSE(app, argc, argv);
  int failed = 0;
  for (int64_t i = 0; i < cases; ++i) {
    const std::string wrong = try_case(seed + static_cast<uint64_t>(i), print);
    if (wrong.empty()) continue;
    fmt::print(stderr, "seed {}: {}\n", seed + static_cast<uint64_t>(i), wrong);
    ++failed;
  }
  fmt::print("{} configurations, seeds {} to {}: {} failed\n", cases, seed,
             seed + static_cast<uint64_t>(cases) - 1, failed);
  return failed == 0 ? 0 : 1;
}
