#include "launcher/doctor/disk.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/hosts/checks/output_probe.h"
#include "runtime/core/error.h"
#include "runtime/core/memory.h"
#include "runtime/storage/disk/disk_store.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/disk/mount.h"

namespace dstrain {
namespace {

constexpr int64_t kProbeBytes = int64_t{1} << 20;
constexpr int64_t kLittleSpace = 1'000'000'000;
constexpr std::chrono::seconds kDrivePatience{5};

// Removes a directory at its end that was not there at its beginning and has nothing in it.
class MissingDirectory {
 public:
  explicit MissingDirectory(std::string path)
      : path_(std::move(path)), was_there_(std::filesystem::exists(path_, none_)) {}
  MissingDirectory(const MissingDirectory&) = delete;
  MissingDirectory& operator=(const MissingDirectory&) = delete;
  ~MissingDirectory() {
    if (!was_there_) std::filesystem::remove(path_, none_);
  }

 private:
  std::error_code none_;
  std::string path_;
  bool was_there_;
};

// Writes a tensor through a disk store and reads it back. Throws RunError if that fails.
void move_tensor(const SwapFiles& files, const std::vector<DiskExtent>& extents,
                 const AioConfig& config) {
  const Memory written = Memory::anonymous(kProbeBytes, "the probe of a drive");
  const Memory read = Memory::anonymous(kProbeBytes, "the probe of a drive");
  for (int64_t i = 0; i < kProbeBytes; ++i) written.data()[i] = static_cast<std::byte>(i * 7 + 1);
  DiskStore store(files, extents, config, kDrivePatience);
  store.write(0, 0, written.data(), kProbeBytes).wait();
  store.read(0, 0, read.data(), kProbeBytes).wait();
  if (std::memcmp(written.data(), read.data(), static_cast<size_t>(kProbeBytes)) != 0)
    fail_run("other bytes are read than were written: look at the drive (dmesg)");
}

MachineLine space_line(const std::string& subject, const DiskFacts& facts) {
  const bool in_memory = facts.file_system == "tmpfs" || facts.file_system == "ramfs";
  MachineLine line{.subject = subject,
                   .values = {{"directory", facts.directory},
                              {"file_system", facts.file_system},
                              {"drive", facts.drive},
                              {"free", nullptr},
                              {"writable", facts.write_problem.empty()}}};
  if (facts.free) line.values["free"] = *facts.free;
  if (!facts.write_problem.empty()) {
    line.health = Health::problem;
    line.text = facts.write_problem;
    return line;
  }
  line.text = fmt::format("{} is writable{}{}{}", facts.directory,
                          facts.file_system.empty() ? "" : ", " + facts.file_system,
                          facts.drive.empty() ? "" : " on " + facts.drive,
                          facts.free ? fmt::format(", {} free", size_text(*facts.free)) : "");
  if (in_memory) {
    line.health = Health::note;
    line.remedy = "it is in memory: files take what a run needs, and are gone with the machine";
  } else if (facts.free.value_or(kLittleSpace) < kLittleSpace) {
    line.health = Health::note;
    line.remedy =
        "a checkpoint has 12 bytes and more for each parameter: free space there, or name another "
        "directory";
  }
  return line;
}

MachineLine direct_line(const std::string& subject, const DiskFacts& facts) {
  const bool is_used = subject == "nvme";
  MachineLine line{.subject = subject,
                   .text =
                       "offload to nvme works there: asynchronous (libaio), past the page cache "
                       "(O_DIRECT)",
                   .values = {{"directory", facts.directory},
                              {"direct", facts.direct},
                              {"asynchronous", facts.offload_problem.empty()}}};
  if (!facts.offload_problem.empty()) {
    line.health = is_used ? Health::problem : Health::note;
    line.text = fmt::format("offload to nvme does not work there: {}", facts.offload_problem);
    if (!is_used) line.remedy = "runs that offload nothing to nvme do not need it";
  } else if (!facts.direct) {
    line.health = Health::note;
    line.text =
        "offload to nvme works there through the page cache alone, which takes memory and is "
        "slower: the file system has no direct I/O (O_DIRECT)";
    line.remedy = "name a directory on a local drive in nvme_path; 'dstrain bench-io' measures it";
  }
  return line;
}

}  // namespace

DiskFacts probe_directory(const std::string& directory, const AioConfig& config) {
  DiskFacts facts{.directory = directory};
  if (const std::optional<Mount> mount = mount_of(directory)) facts.file_system = mount->type;
  facts.drive = drive_of(directory);
  facts.free = free_bytes(directory);
  const std::vector<DiskExtent> extents{{"the probe", kProbeBytes}};
  const int64_t bytes = DiskStore::bytes_of_each_file(extents, 1, config);
  if (const std::string lack = lack_of_space("a probe", bytes, facts.free, directory);
      !lack.empty()) {
    facts.write_problem = lack + ": free space there, or name another directory";
    return facts;
  }
  const MissingDirectory made(directory);
  IoCalls calls;
  std::optional<SwapFiles> files;
  try {
    files.emplace(std::vector{directory}, bytes, calls);
  } catch (const std::runtime_error& e) {
    facts.write_problem = e.what();
    return facts;
  }
  facts.direct = files->direct();
  try {
    move_tensor(*files, extents, config);
  } catch (const RunError& e) {
    facts.offload_problem = e.what();
  }
  return facts;
}

DiskFacts probe_output(const std::string& directory, const AioConfig& config,
                       const std::string& run) {
  try {
    const OutputProbe probe(directory, run);
    return probe_directory(directory, config);
  } catch (const UserError& e) {
    DiskFacts facts{.directory = directory};
    facts.write_problem = e.what();
    return facts;
  }
}

MachineLines disk_lines(const std::string& subject, const DiskFacts& facts) {
  MachineLines lines{space_line(subject, facts)};
  if (facts.write_problem.empty()) lines.push_back(direct_line(subject, facts));
  return lines;
}

}  // namespace dstrain
