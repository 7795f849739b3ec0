#include "runtime/engine/profile/report_profile.h"

#include <fmt/core.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"
#include "runtime/engine/profile/profile_text.h"
#include "runtime/engine/profile/step_profile.h"

namespace dstrain {

bool is_profiled(const Job& job, int64_t step) {
  return job.flops_profiler.enabled && step == job.flops_profiler.profile_step + 1;
}

std::optional<std::string> no_profile_text(const Job& job, int64_t steps_before) {
  const int64_t step = job.flops_profiler.profile_step + 1;
  const bool wanted = job.flops_profiler.enabled && step > 0 && steps_before < job.steps;
  if (!wanted || (steps_before < step && step <= job.steps)) return std::nullopt;
  return fmt::format(
      "flops_profiler.profile_step {}: there is no report, as step {} is not among the steps {} to "
      "{} of this run: use {} to {}",
      step - 1, step, steps_before + 1, job.steps, steps_before, job.steps - 1);
}

void make_profile_directory(const FlopsProfilerConfig& options) {
  const std::filesystem::path directory = std::filesystem::path(options.output_file).parent_path();
  if (!options.enabled || directory.empty()) return;
  try {
    make_directory(directory.string());
  } catch (const RunError& e) {
    fail_run("flops_profiler.output_file: {}", e.what());
  }
}

void report_profile(const Job& job, const StepTrace& trace, const StepPhases& phases,
                    Communicator& comm) {
  StepProfile profile = profile_of(job, trace, phases);
  // The ranks that have parts of the same samples share the forward pass of a micro-batch.
  const double mine = trace.plan->place.rank_in(kSampleAxes) == 0 ? profile.model.flops : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  if (comm.rank() != 0) return;
  profile.model_flops = std::accumulate(all.begin(), all.end(), 0.0);
  const std::string text = profile_text(profile, job.flops_profiler);
  const std::string& file = job.flops_profiler.output_file;
  if (file.empty()) {
    log::info("{}", text.substr(0, text.size() - 1));  // the log ends the line
    return;
  }
  try {
    write_file(file_to_replace(file), text);
    log::info("the profile of step {} is in {}", trace.step, file);
  } catch (const RunError& e) {
    log::warn("flops_profiler.output_file: {}", e.what());
  }
}

}  // namespace dstrain
