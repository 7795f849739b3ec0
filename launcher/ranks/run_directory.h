// RunDirectory: the private directory of a run on one host, in which the ranks there find the board and the output
// pipes of the host's agent. A run's name is a path that begins the names of all its files on every host; its processes
// have it in their environment or command line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dstrain {

// The last part of a run's name: this prefix and 16 random hex digits.
inline constexpr std::string_view kRunPrefix = "dstrain-";
inline constexpr size_t kRunDigits = 16;

// Returns a new random name: "/tmp/dstrain-<16 hex digits>", or below TMPDIR if that is set. Throws
// UserError if TMPDIR is not UTF-8.
std::string new_run_name();

// Returns the directory of Open MPI's files, which has the same path on every host.
std::string mpi_directory(const std::string& run);

// Returns the private directory of the run on this host: "<run>-<host name>".
std::filesystem::path run_directory(const std::string& run);

// Returns the file in which the agent of this host publishes its addresses.
std::filesystem::path addresses_file(const std::string& run);

// Removes both directories of the run on this host, as far as they are there.
void remove_run_files(const std::string& run);

class RunDirectory {
 public:
  // Makes the directory, for this user only. Throws RunError.
  explicit RunDirectory(const std::string& run);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;
  // Removes the directory, and Open MPI's.
  ~RunDirectory();

  // Tells the ranks of this host the addresses of their board and of their output pipes. Throws RunError.
  void publish(const std::string& board, const std::string& output) const;

 private:
  std::string run_;
};

// The addresses at which the ranks of a host find their agent's rank board and their output pipes
// (RankBoard::address(), output_address()).
struct RunAddresses {
  std::string board, output;
};
// Returns what the agent of this host has published. Throws RunError.
RunAddresses read_addresses(const std::string& run);

}  // namespace dstrain
