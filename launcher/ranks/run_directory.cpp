#include "launcher/ranks/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>
#include <system_error>

#include "launcher/placement/machine.h"
#include "launcher/process/process_state.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

namespace fs = std::filesystem;

std::string new_run_name() {
  std::random_device source;
  const uint64_t number = uint64_t{source()} << 32 | source();
  std::error_code none;
  fs::path base = fs::temp_directory_path(none);
  if (none) base = "/tmp";
  if (first_invalid_utf8(base.string()) != std::string::npos)
    fail_user("TMPDIR: expected UTF-8, because every host is told the path, got '{}'",
              printable(base.string()));
  return (base / fmt::format("{}{:0{}x}", kRunPrefix, number, kRunDigits)).string();
}

std::string mpi_directory(const std::string& run) {
  return run + ".mpi";
}

fs::path run_directory(const std::string& run) {
  return fmt::format("{}-{}", run, host_name());
}

fs::path addresses_file(const std::string& run) {
  return run_directory(run) / "addresses";
}

RunDirectory::RunDirectory(const std::string& run) : run_(run) {
  const fs::path path = run_directory(run);
  if (::mkdir(path.c_str(), 0700) != 0)
    fail_run("cannot make the directory {}: {} (TMPDIR names another place)", path.string(),
             system_reason(errno));
}

RunDirectory::~RunDirectory() {
  remove_run_files(run_);
}

void remove_run_files(const std::string& run) {
  std::error_code none;  // a file that cannot be removed is left to the system's own cleaning
  fs::remove_all(run_directory(run), none);
  fs::remove_all(mpi_directory(run), none);
}

void RunDirectory::publish(const std::string& board, const std::string& output) const {
  const fs::path path = addresses_file(run_);
  errno = 0;
  std::ofstream file(path);
  // clear_dead_runs() finds out from these processes whether the run is alive.
  const pid_t guard = ::getppid();
  file << board << '\n'
       << output << '\n'
       << ::getpid() << ' ' << guard << ' ' << process_state(guard).parent << '\n';
  if (!file.flush())
    fail_run("cannot write {}: {} (TMPDIR names another place)", path.string(),
             system_reason(errno));
}

RunAddresses read_addresses(const std::string& run) {
  const fs::path path = addresses_file(run);
  std::ifstream file(path);
  RunAddresses addresses;
  if (!std::getline(file, addresses.board) || !std::getline(file, addresses.output))
    fail_run("cannot read {}: no agent of the launching process watches this host", path.string());
  return addresses;
}

}  // namespace dstrain
