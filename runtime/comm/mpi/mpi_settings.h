// Settings of Open MPI that dstrain makes by environment variables before MPI starts. A setting of the
// user, in the environment or in Open MPI's own files, stays.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dstrain {

// Returns the network interfaces among `names` that belong to containers and virtual machines. Other hosts
// have interfaces of the same name and address, and a connection over one of them hangs.
std::vector<std::string> inner_interfaces(std::span<const std::string> names);

// Makes the settings. The caller must not have initialized MPI yet.
void prepare_mpi_settings();

}  // namespace dstrain
