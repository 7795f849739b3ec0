#include "launcher/hosts/open_mpi.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/process/child.h"
#include "launcher/process/program_path.h"
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

std::string open_mpi_version(const std::string& said) {
  constexpr std::string_view kBegin = "mpirun (Open MPI) ";
  if (!said.starts_with(kBegin)) return "";
  return said.substr(kBegin.size(), said.find_first_of(" \r\n", kBegin.size()) - kBegin.size());
}

OpenMpi find_open_mpi() {
  constexpr int64_t kTimeout = 10'000'000'000;
  constexpr int kTickMs = 20;
  OpenMpi found;
  found.orted = !find_on_path("orted").empty();
  const std::string mpirun = find_on_path("mpirun");
  found.mpirun = !mpirun.empty();
  if (!found.mpirun) return found;
  Child child({mpirun, "--version"},
              {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  std::string said;
  const int64_t end = monotonic_ns() + kTimeout;
  for (bool ended = false; !ended && monotonic_ns() < end; ::poll(nullptr, 0, kTickMs)) {
    ended =
        child.ended().has_value();  // checked first, so that the loop still reads its last output
    std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = ::read(child.output(), buffer.data(), buffer.size())) > 0;)
      said.append(buffer.data(), static_cast<size_t>(n));
  }
  found.version = open_mpi_version(said);
  if (found.version.empty()) found.other = said.substr(0, said.find('\n'));
  return found;
}

}  // namespace dstrain
