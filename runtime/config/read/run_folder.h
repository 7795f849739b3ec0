// The output directory of a run, by what a user names of it.
#pragma once

#include <string>

namespace dstrain {

// Returns the output directory that --resume names: DIR for DIR, DIR/checkpoints, DIR/checkpoints/step_4 and links to them.
std::string run_folder_of(const std::string& resume);

}  // namespace dstrain
