#include "launcher/output/rank_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/storage/output_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "DSTRAIN_RANK_LOG";

}  // namespace

std::string rank_log_prefix(const std::string& directory) {
  std::error_code problem;
  const fs::path path = fs::absolute(directory, problem);
  if (!problem) fs::create_directories(path, problem);
  if (problem || !fs::is_directory(path))
    fail_user("--enable_each_rank_log: {} is not a directory and cannot be made one: {}", directory,
              problem ? problem.message() : "a file is there");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d%H%M%S", &local);
  return (path / text.data()).string();
}

Environment rank_log_environment(const std::string& prefix) {
  return {{kPrefix, prefix}};
}

RankLog::RankLog(const std::string& prefix, int rank) {
  const std::string path = fmt::format("{}_rank{}.log", prefix, rank);
  std::error_code none;  // opening the file reports the error
  fs::create_directories(fs::path(path).parent_path(), none);
  const OutputFile opened = open_output_file(path, O_WRONLY | O_APPEND);
  const Descriptor file(opened.descriptor);
  if (file.get() < 0) fail_run("cannot write the log {}: {}", path, opened.problem);
  std::fflush(nullptr);
  output_ = Descriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  error_ = Descriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  if (::dup2(file.get(), STDOUT_FILENO) < 0 || ::dup2(file.get(), STDERR_FILENO) < 0)
    fail_run("cannot write the log {}: {}", path, system_reason(errno));
}

RankLog::~RankLog() {
  std::fflush(nullptr);
  if (output_.get() >= 0) ::dup2(output_.get(), STDOUT_FILENO);
  if (error_.get() >= 0) ::dup2(error_.get(), STDERR_FILENO);
}

std::unique_ptr<RankLog> RankLog::from_environment(int rank) {
  const char* prefix = std::getenv(kPrefix);
  return prefix == nullptr ? nullptr : std::make_unique<RankLog>(prefix, rank);
}

}  // namespace dstrain
