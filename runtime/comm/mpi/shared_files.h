// The files through which Open MPI's ranks of one host share memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Returns the files of such memory under `directory` that a process has mapped. `maps`: the text of its /proc/PID/maps.
std::vector<std::string> shared_files(std::string_view maps, const std::string& directory);

// Takes the room for all of this process's shared files in the directory that Open MPI was told to make them in
// (OMPI_MCA_btl_vader_backing_directory, which dstrain sets for ranks that it starts); does nothing if it was told none. Open MPI makes them without it, so that a rank that touched
// memory for the first time after the drive was full would be killed by SIGBUS, perhaps while it saves. Throws RunError if
// there is no room.
void take_room_of_shared_files();

}  // namespace dstrain
