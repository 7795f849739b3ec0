#include "launcher/process/process_state.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace dstrain {

std::string readable_text(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

ProcessState process_state(pid_t process) {
  // "PID (NAME) STATE PARENT ...": the name may contain anything, parentheses and blanks too.
  const std::string stat = readable_text(fmt::format("/proc/{}/stat", process));
  const size_t name_end = stat.rfind(')');
  ProcessState found;
  if (name_end == std::string::npos) return found;
  std::istringstream rest(stat.substr(name_end + 1));
  rest >> found.state >> found.parent;
  return found;
}

}  // namespace dstrain
