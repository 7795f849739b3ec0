#include "launcher/hosts/open_mpi.h"

#include <string_view>

#include "launcher/process/child.h"
#include "launcher/process/program_output.h"
#include "launcher/process/program_path.h"

namespace dstrain {

std::string open_mpi_version(const std::string& said) {
  constexpr std::string_view kBegin = "mpirun (Open MPI) ";
  if (!said.starts_with(kBegin)) return "";
  return said.substr(kBegin.size(), said.find_first_of(" \r\n", kBegin.size()) - kBegin.size());
}

OpenMpi find_open_mpi() {
  constexpr double kTimeout = 10;
  OpenMpi found;
  found.orted = !find_on_path("orted").empty();
  const std::string mpirun = find_on_path("mpirun");
  found.mpirun = !mpirun.empty();
  if (!found.mpirun) return found;
  Child child({mpirun, "--version"},
              {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  const std::string said = program_output(child, kTimeout);
  found.version = open_mpi_version(said);
  if (found.version.empty()) found.other = said.substr(0, said.find('\n'));
  return found;
}

}  // namespace dstrain
