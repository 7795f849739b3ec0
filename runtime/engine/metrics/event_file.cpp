#include "runtime/engine/metrics/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/log.h"
#include "runtime/engine/metrics/event_record.h"
#include "runtime/engine/metrics/monitor_files.h"

namespace dstrain {
namespace {

constexpr std::string_view kEventsPrefix = "events.out.tfevents.";
constexpr int64_t kSecondsEnd = 10'000'000'000;  // names have ten digits

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the seconds in the name of an event file; 0 if it is none.
int64_t seconds_of(std::string_view name) {
  if (!name.starts_with(kEventsPrefix)) return 0;
  name.remove_prefix(kEventsPrefix.size());
  int64_t seconds = 0;
  std::from_chars(name.data(), name.data() + name.size(), seconds);
  return seconds < kSecondsEnd ? seconds : 0;
}

// Returns a name after those of all event files of the directory, as readers take the files in the order of their
// names.
std::string new_event_file(const std::string& directory) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '-';
  auto seconds = static_cast<int64_t>(seconds_since_1970());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    seconds = std::max(seconds, seconds_of(entry.path().filename().string()) + 1);
  return fmt::format("{}/{}{:010}.{}.{}.0", directory, kEventsPrefix, seconds, host.data(),
                     ::getpid());
}

}  // namespace

EventFile::EventFile(const std::string& directory, const MonitorOptions& options)
    : Monitor(options) {
  make_monitor_directory("tensorboard", directory);
  path_ = new_event_file(directory);
  file_ = open_monitor_file("tensorboard", path_, O_WRONLY | O_APPEND | O_EXCL);
  const double time = seconds_since_1970();
  std::string first = version_record(time);
  if (options.resumed_samples > 0) first += restart_record(time, options.resumed_samples + 1);
  if (!append(first)) {
    const int reason = errno;
    ::close(file_);
    fail_run("tensorboard: cannot write {}: {}", path_, system_reason(reason));
  }
}

EventFile::~EventFile() {
  if (file_ >= 0) ::close(file_);
}

void EventFile::write(int64_t samples, const std::vector<TaggedValue>& values) {
  if (failed_ || append(values_record(seconds_since_1970(), samples, values))) return;
  failed_ = true;
  log::warn("tensorboard: cannot write {}: {}; values from {} samples on are left out", path_,
            system_reason(errno), samples);
}

bool EventFile::append(const std::string& record) {
  if (!append_whole(file_, record, bytes_)) return false;
  bytes_ += static_cast<int64_t>(record.size());
  return true;
}

}  // namespace dstrain
