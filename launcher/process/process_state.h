// The state of any process of this machine, as /proc shows it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace dstrain {

struct ProcessState {
  char state = 'X';  // as in /proc/PID/stat: 'Z' zombie, 'X' ended, 'T' stopped
  pid_t parent = 0;  // 0 if the parent is in another PID namespace, or there is no such process

  bool ended() const { return state == 'Z' || state == 'X'; }
};

// Returns the state of a process; one that does not exist has ended.
ProcessState process_state(pid_t process);

// Returns the contents of a file, or what can be read of it: a process may end while its file in /proc is read.
std::string readable_text(const std::filesystem::path& file);

}  // namespace dstrain
