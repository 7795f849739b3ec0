#include "runtime/engine/metrics/csv_monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/log.h"
#include "runtime/engine/metrics/monitor_files.h"

namespace dstrain {
namespace {

constexpr const char* kMonitor = "csv_monitor";

// Returns whether a line is one of a csv file and of a later number of samples.
bool is_later(std::string_view line, int64_t samples) {
  int64_t at = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), at);
  return error == std::errc() && end != line.data() + line.size() && *end == ',' && at > samples;
}

// Returns how many bytes of a file stay: without an incomplete last line, and without the later lines at its end.
size_t bytes_through(std::string_view text, int64_t samples) {
  size_t bytes = text.rfind('\n') + 1;  // 0 if there is none
  while (bytes > 1) {
    const size_t begin = text.rfind('\n', bytes - 2) + 1;
    if (!is_later(text.substr(begin, bytes - 1 - begin), samples)) break;
    bytes = begin;
  }
  return bytes;
}

void cut_lines(const std::string& path, int64_t samples) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t bytes = bytes_through(text, samples);
  if (bytes < text.size() && ::truncate(path.c_str(), static_cast<off_t>(bytes)) != 0)
    fail_run("{}: cannot write {}: {}", kMonitor, path, system_reason(errno));
}

// Returns the shortest text that reads back as the value, as a float where it is one: a rate of 1e-4 is "0.0001".
std::string shortest(double value) {
  const auto narrow = static_cast<float>(value);
  return narrow == value ? fmt::format("{}", narrow) : fmt::format("{}", value);
}

bool is_ours(const std::string& name) {
  return name.ends_with(".csv") &&
         (name.starts_with("Train_Samples_") || name.starts_with("dstrain_"));
}

}  // namespace

CsvMonitor::CsvMonitor(std::string directory, const MonitorOptions& options)
    : Monitor(options), directory_(std::move(directory)) {
  make_monitor_directory(kMonitor, directory_);
  if (options.resumed_samples == 0) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error))
    if (is_ours(entry.path().filename().string()) && !entry.is_symlink(error) &&
        entry.is_regular_file(error))
      cut_lines(entry.path().string(), options.resumed_samples);
}

CsvMonitor::~CsvMonitor() {
  for (const auto& [tag, file] : files_)
    if (file.descriptor >= 0) ::close(file.descriptor);
}

std::string CsvMonitor::path_of(const std::string& tag) const {
  std::string name = tag;
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, ' ', '_');
  return fmt::format("{}/{}.csv", directory_, name);
}

CsvMonitor::File& CsvMonitor::file_of(const std::string& tag) {
  const auto [place, added] = files_.try_emplace(tag);
  File& file = place->second;
  if (!added) return file;
  try {
    file.descriptor = open_monitor_file(kMonitor, path_of(tag), O_WRONLY | O_APPEND);
  } catch (const RunError& e) {
    log::warn("{}; its values are left out", e.what());
    return file;
  }
  struct stat status {};
  if (::fstat(file.descriptor, &status) == 0) file.bytes = status.st_size;
  if (file.bytes == 0) append(file, tag, fmt::format("step,{}\n", tag.substr(tag.rfind('/') + 1)));
  return file;
}

void CsvMonitor::append(File& file, const std::string& tag, const std::string& line) {
  if (file.descriptor < 0) return;
  if (append_whole(file.descriptor, line, file.bytes)) {
    file.bytes += static_cast<int64_t>(line.size());
    return;
  }
  log::warn("{}: cannot write {}: {}; its values are left out from here on", kMonitor, path_of(tag),
            system_reason(errno));
  ::close(std::exchange(file.descriptor, -1));
}

void CsvMonitor::write(int64_t samples, const std::vector<TaggedValue>& values) {
  for (const TaggedValue& v : values)
    append(file_of(v.tag), v.tag, fmt::format("{},{}\n", samples, shortest(v.value)));
}

}  // namespace dstrain
