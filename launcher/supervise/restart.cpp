#include "launcher/supervise/restart.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "launcher/process/failure.h"
#include "launcher/process/stop_signals.h"
#include "launcher/process/stop_text.h"
#include "launcher/ranks/option_words.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/output_directory.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr double kFirstPause = 1, kLongestPause = 60;  // seconds

struct WrittenCheckpoint {
  std::string dir;
  fs::file_time_type time;  // of its last change, which identifies it
};

std::vector<WrittenCheckpoint> checkpoints_in(const std::string& output) {
  std::vector<WrittenCheckpoint> found;
  std::error_code none;
  for (fs::directory_iterator at(output + "/checkpoints", none), end; !none && at != end;
       at.increment(none)) {
    const auto time = fs::last_write_time(at->path(), none);
    if (!none && at->path().extension() != ".tmp") found.push_back({at->path().string(), time});
  }
  return found;
}

// Returns the checkpoint from which the run would resume, if it is not one of `before`; else one whose `dir` is empty.
CheckpointInfo newest_since(const std::vector<WrittenCheckpoint>& before,
                            const std::string& output) {
  try {
    CheckpointInfo newest = find_checkpoint(output);
    std::error_code none;
    const auto time = fs::last_write_time(newest.dir, none);
    if (!none && std::ranges::none_of(
                     before, [&](const WrittenCheckpoint& old) { return old.time == time; }))
      return newest;
  } catch (const UserError&) {  // there is no complete checkpoint
  }
  return {};
}

std::string origin_of(const CheckpointInfo& checkpoint) {
  return checkpoint.dir.empty()
             ? "from where it began, as there is no checkpoint of this run yet"
             : fmt::format("from its checkpoint of step {}", checkpoint.label.step);
}

}  // namespace

int pause_unless_stopped(double seconds) {
  const RankBoard board = RankBoard::create(1);  // receives the stop request
  {
    const StopSignals signals(board, StopSignals::Note::none, StopSignals::Second::is_remembered);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (board.stop_request() == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (board.trace_requests() > 0) take_trace_signal();  // for the ranks that start now
  return board.stop_request();
}

int run_with_restarts(const RestartOptions& options, const StartRanks& start, const Pause& pause) {
  const auto before = checkpoints_in(options.output);
  std::optional<OutputDirectory> output;
  if (std::error_code none; fs::is_directory(options.output, none)) output.emplace(options.output);
  CheckpointInfo checkpoint;
  double seconds = kFirstPause;
  for (int64_t restarts = 0;; ++restarts) {
    // A folder, and no checkpoint: where the newest one turns out to be damaged, the one before it is taken.
    const auto [report, stop_requested] = start(checkpoint.dir.empty() ? "" : options.output);
    const bool writable = !output || output->is_there();
    if (report.exit_status != 2 || stop_requested || restarts == options.most || !writable) {
      if (!report.error.empty()) print_error(report.error);
      if (!report.stop_line.empty()) write_stop_line(report.stop_line);
      return report.exit_status;
    }
    const CheckpointInfo next = newest_since(before, options.output);
    if (next.dir != checkpoint.dir) seconds = kFirstPause;
    checkpoint = next;
    log::warn("{}", report.error);
    log::warn("restart {} of {} in {:.0f} s, {}", restarts + 1, options.most, seconds,
              origin_of(checkpoint));
    if (const int signal = pause(seconds); signal != 0) {
      write_stop_line(stopped_before_steps(signal));
      return 128 + signal;
    }
    seconds = std::min(2 * seconds, kLongestPause);
  }
}

std::vector<std::string> words_resuming(const std::vector<std::string>& words,
                                        const std::string& resume) {
  if (resume.empty()) return words;
  std::vector<std::string> resuming = without_options(words, {"--resume", "--init_weights"});
  resuming.push_back("--resume=" + resume);
  return resuming;
}

}  // namespace dstrain
