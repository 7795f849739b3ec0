// What dstrain asks of Open MPI before it starts, by environment variables; what the user has set, there
// or in Open MPI's own files, stays.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dstrain {

// Of the machine's network interfaces, those of containers and virtual machines: they lead to other
// hosts' interfaces of the same name and address by mistake, and a connection over one hangs.
std::vector<std::string> inner_interfaces(std::span<const std::string> names);

// Call before MPI is initialised.
void prepare_mpi_settings();

}  // namespace dstrain
