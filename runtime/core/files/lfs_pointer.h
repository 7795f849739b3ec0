// Pointers of Git LFS, which stand for files that have not been fetched.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Throws UserError if a file that begins with `beginning` is a pointer of Git LFS. `path` names it.
void refuse_lfs_pointer(std::string_view beginning, const std::string& path);

}  // namespace dstrain
