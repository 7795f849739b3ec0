#include "launcher/verify/verified_runs.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "launcher/verify/gathered_ranks.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/engine/verify/verified_rank.h"

namespace dstrain {
namespace {

constexpr int64_t kObservedSteps = 8;  // whose instructions are recorded

// A new folder, which is removed with all that is in it.
class Scratch {
 public:
  // In `base` if files can be made there, else where temporary files go.
  explicit Scratch(const std::string& base) {
    const char* const named = std::getenv("TMPDIR");
    const std::string usual = named != nullptr && *named != '\0' ? named : "/tmp";
    const bool usable = !base.empty() && ::access(base.c_str(), W_OK | X_OK) == 0;
    path_ = (usable ? base : usual) + "/dstrain-verify-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr)
      fail_user("verify: cannot make the folder {}: {}", path_, system_reason(errno));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  // Returns the path of a new folder in it.
  std::string folder(const std::string& name) const {
    const std::string path = path_ + "/" + name;
    std::filesystem::create_directories(path);
    return path;
  }

 private:
  std::string path_;
};

std::vector<RankRecord> run_ranks(const Job& job, const Dataset& data,
                                  const VerifiedSteps& request) {
  const std::vector<std::string> found = gather_from_ranks(job, [&](RunContext& context) {
    return run_verified_steps(job, data, context, request).to_bytes();
  });
  std::vector<RankRecord> records;
  for (const std::string& bytes : found) records.push_back(RankRecord::from_bytes(bytes));
  return records;
}

// Runs the configured job. With `deep` it ends in the middle, and other processes go on.
std::vector<RankRecord> run_configured(const Job& job, const Dataset& data,
                                       const VerifyOptions& options, const Scratch& scratch) {
  VerifiedSteps request{.steps = options.steps,
                        .observed = std::min(options.steps, kObservedSteps),
                        .fault = options.fault};
  if (!options.deep) return run_ranks(job, data, request);
  Job first = job;
  first.output = scratch.folder("run");
  first.save_last = first.save_required = true;
  request.steps = options.steps / 2;
  request.observed = std::min(request.observed, request.steps - 1);
  std::vector<RankRecord> records = run_ranks(first, data, request);
  if (std::ranges::any_of(records, [](const RankRecord& r) { return !r.error.empty(); }))
    return records;
  Job second = job;
  second.resume = first.output;
  request.steps = options.steps;
  const std::vector<RankRecord> later = run_ranks(second, data, request);
  for (size_t r = 0; r < records.size(); ++r) records[r].append(later[r]);
  return records;
}

// Throws the failure of a reference, which is no result of the configuration.
void require_reference(const std::vector<RankRecord>& records, const char* which) {
  for (const RankRecord& record : records)
    if (!record.error.empty()) fail_run("verify: the {} run failed: {}", which, record.error);
}

}  // namespace

Comparison verify_small_job(const Job& small, const Dataset& data, const VerifyOptions& options) {
  if (options.fault) check_fault(*options.fault, small);
  const Scratch scratch(small.offload.nvme_paths.empty() ? "" : small.offload.nvme_paths.front());
  Job job = small;
  for (size_t i = 0; i < job.offload.nvme_paths.size(); ++i)
    job.offload.nvme_paths[i] = scratch.folder("drive" + std::to_string(i));
  const VerifiedSteps plainly{.steps = options.steps,
                              .observed = std::min(options.steps, kObservedSteps)};
  VerifiedRuns runs;
  VerifiedSteps naively = plainly;
  naively.terms = true;
  std::vector<RankRecord> naive = run_ranks(naive_job(job), data, naively);
  require_reference(naive, "naive");
  runs.naive = std::move(naive.front());
  runs.plain = run_ranks(plain_job(job), data, plainly);
  require_reference(runs.plain, "plain");
  runs.configured = run_configured(job, data, options, scratch);
  Comparison comparison = compare_runs(job, runs);
  if (options.fault && comparison.faults.empty())
    fail_user(
        "--seed_fault {}: the configuration has nothing that it could change: no instruction of "
        "rank {} does what the fault is about",
        name_of(*options.fault), job.ranks - 1);
  return comparison;
}

}  // namespace dstrain
