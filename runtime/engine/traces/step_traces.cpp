#include "runtime/engine/traces/step_traces.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Says where a trace is, and where the time of its steps went.
void report_trace(const std::string& file, std::span<const StepTrace> steps) {
  if (steps.empty()) return;
  StepSplit sum;
  for (const StepTrace& step : steps) {
    const StepSplit split = split_of(step);
    sum.compute += split.compute;
    sum.exposed_comm += split.exposed_comm;
    sum.other += split.other;
  }
  const double percent = 100 / (sum.compute + sum.exposed_comm + sum.other);
  log::info("trace of {} in {}: compute {:.1f} %, exposed communication {:.1f} %, other {:.1f} %",
            counted(static_cast<int64_t>(steps.size()), "step"), file, percent * sum.compute,
            percent * sum.exposed_comm, percent * sum.other);
}

}  // namespace

std::string new_trace_file(const std::string& directory, int64_t step) {
  std::string path = fmt::format("{}/trace_step_{}.json", directory, step);
  std::error_code none;
  for (int number = 2; fs::exists(fs::symlink_status(path, none)); ++number)
    path = fmt::format("{}/trace_step_{}_{}.json", directory, step, number);
  return path;
}

void StepTraces::accept_request(bool root) {
  if (requests_ != nullptr) {
    requests_->accept_trace();  // before the count is read, so that none comes in between
    accepted_ = requests_->trace_requests();
  }
  if (!is_taking()) {
    left_ = kSteps;
    has_noted_ = false;
    if (root) log::info("SIGUSR2: a trace of the next {} is taken", counted(kSteps, "step"));
  } else if (root && !std::exchange(has_noted_, true)) {
    log::info("SIGUSR2: a trace is being taken already, and nothing changes until it is written");
  }
}

StepTrace* StepTraces::begin(int64_t step, const Plan& plan, bool measured) {
  StepTrace* trace = nullptr;
  if (!job_.trace.empty() && first_.size() < kSteps) {
    trace = &first_.emplace_back();
  } else if (left_ > 0) {
    trace = &requested_.emplace_back();
    --left_;
  } else if (measured) {
    trace = &other_;
  }
  newest_ = trace;
  if (trace == nullptr) return nullptr;
  trace->step = step;
  trace->prepare(plan);
  return trace;
}

void StepTraces::end_step(Communicator& comm, bool asked) {
  if (left_ == 0 && !requested_.empty()) write_requested(comm);
  if (!asked) return;
  const double mine = is_requested() ? 1 : 0;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  if (std::ranges::find(all, 1.0) != all.end()) accept_request(comm.rank() == 0);
}

void StepTraces::write_requested(Communicator& comm) {
  const std::string text = trace_text(requested_, comm);
  if (comm.rank() == 0) {
    const std::string file = new_trace_file(job_.output, requested_.front().step);
    try {
      write_file(file, text);
      report_trace(file, requested_);
    } catch (const RunError& e) {
      log::warn("the trace that SIGUSR2 asked for is left out: {}", e.what());
    }
  }
  left_ = 0;
  other_ = std::move(requested_.back());  // the newest step's
  newest_ = &other_;
  requested_.clear();
}

void StepTraces::finish(Communicator& comm) {
  if (!job_.trace.empty()) {
    write_trace(job_.trace, first_, comm);
    // The first step also warms up.
    if (comm.rank() == 0 && first_.size() > 1)
      report_trace(job_.trace, std::span(first_).subspan(1));
  }
  if (!requested_.empty())
    write_requested(comm);
  else if (comm.rank() == 0 && (left_ > 0 || is_requested()))
    log::info("SIGUSR2: the run had no step left to trace");
}

}  // namespace dstrain
