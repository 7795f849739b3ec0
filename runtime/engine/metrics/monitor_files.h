// Files of monitors. Errors name the monitor, by its section of the configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dstrain {

// Makes the directory and those above it. Throws RunError.
void make_monitor_directory(std::string_view monitor, const std::string& directory);

// Opens a file with open()'s flags, without O_CREAT. Returns the descriptor, which the caller must close. Throws
// RunError.
int open_monitor_file(std::string_view monitor, const std::string& path, int flags);

// Appends all of the text to a file of `size` bytes. Returns false, with errno, if that fails; the file is then as
// before.
bool append_whole(int file, std::string_view text, int64_t size);

}  // namespace dstrain
