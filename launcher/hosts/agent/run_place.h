// RunPlace: a run's private directory on one host, where its ranks find the board and the output of the
// host's agent, and the processes of a run on this host. A run is known by a path that begins the names
// of its files on every host and that its processes carry in their environment or command line. Stands
// on /proc.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace dstrain {

// "/tmp/dstrain-<16 hex digits>", random; below TMPDIR where that is set.
std::string new_run_name();

// Where Open MPI keeps its files, on every host.
std::string mpi_directory(const std::string& run);

// Makes "<run>-<host name>" for this user alone, and removes it with the object, and what Open MPI has
// left. Throws RunError.
class RunPlace {
 public:
  explicit RunPlace(const std::string& run);
  RunPlace(const RunPlace&) = delete;
  RunPlace& operator=(const RunPlace&) = delete;
  ~RunPlace();

  // Tells the ranks of this host the addresses of their board and of their output.
  void publish(const std::string& board, const std::string& output) const;

 private:
  std::filesystem::path path_, mpi_;
};

// Removes what runs that ended badly have left beside `run` on this host: their private directories, and what
// Open MPI has left. A run lives as long as a process of it does, or its agent, which counts while what started it
// lives; one that is stopped, so that it could not end with its connection, is killed.
void clear_dead_runs(const std::string& run);

struct RunAddresses {
  std::string board, output;
};
// What the agent of this host has published. Throws RunError.
RunAddresses read_addresses(const std::string& run);

// Processes of this user, in this process's network namespace, that belong to the run; without this
// process itself.
std::vector<pid_t> processes_of_run(const std::string& run);

// Kills them (SIGKILL) until none is left, at most for a few seconds. Returns how many are left.
size_t kill_run(const std::string& run);

}  // namespace dstrain
