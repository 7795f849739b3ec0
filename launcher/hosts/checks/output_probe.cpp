#include "launcher/hosts/checks/output_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/core/error.h"
#include "runtime/storage/output_file.h"

namespace dstrain {

namespace fs = std::filesystem;

fs::path probe_file(const std::string& directory, const std::string& run) {
  return fs::path(directory) / fmt::format(".{}.probe", fs::path(run).filename().string());
}

OutputProbe::OutputProbe(const std::string& directory, const std::string& run)
    : file_(probe_file(directory, run)) {
  std::error_code none;
  for (fs::path missing = directory; !missing.empty() && !fs::exists(missing, none);
       missing = missing.parent_path())
    made_.push_back(missing);
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem)
    fail_user("cannot make the output directory {}: {} (--output names another one)", directory,
              problem.message());
  const OutputFile opened = open_output_file(file_.string(), O_WRONLY | O_EXCL);
  if (!opened.problem.empty())
    fail_user("cannot write in the output directory {}: {} (--output names another one)", directory,
              opened.problem);
  ::close(opened.descriptor);
}

OutputProbe::~OutputProbe() {
  std::error_code none;
  fs::remove(file_, none);
  for (const fs::path& directory : made_) fs::remove(directory, none);  // if it is empty
}

bool sees_probe(const std::string& directory, const std::string& run) {
  constexpr int kTries = 30;
  constexpr std::chrono::milliseconds kPause{100};
  const fs::path file = probe_file(directory, run);
  for (int i = 0; i < kTries; ++i) {
    std::error_code none;
    if (fs::exists(file, none)) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace dstrain
