#include "launcher/fronts/start_deadline.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/process/failure.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr int64_t kSecondsToRemark = 60;
// How much longer the other ranks wait, so that rank 0 or 1 alone reports it.
constexpr int64_t kSecondsToReport = 5;
constexpr int kStatus = 2;

}  // namespace

StartDeadline::StartDeadline(int rank, int64_t seconds, std::string starter)
    : thread_(
          [this, rank, seconds, starter = std::move(starter)] { watch(rank, seconds, starter); }) {}

StartDeadline::~StartDeadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartDeadline::watch(int rank, int64_t seconds, const std::string& starter) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const auto met_after = [&](int64_t time) {
    return changed_.wait_until(lock, begin + std::chrono::seconds(time), [this] { return met_; });
  };
  const auto text = [&](int64_t waited) {
    return fmt::format(
        "rank {} has waited {} s for the other ranks of {}: one is stopped, has not begun, or "
        "cannot be reached",
        rank, waited, starter);
  };
  if (met_after(std::min(kSecondsToRemark, seconds))) return;
  if (rank <= 1 && kSecondsToRemark < seconds) log::warn("{}", text(kSecondsToRemark));
  if (met_after(seconds + (rank <= 1 ? rank : kSecondsToReport))) return;
  print_error(fmt::format("{} (dstrain.timeout_s)", text(seconds)));
  ::_exit(kStatus);  // MPI cannot be left: it waits
}

}  // namespace dstrain
