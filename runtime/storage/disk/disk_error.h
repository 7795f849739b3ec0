// Messages about failures of files of a disk store.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns "cannot read 4096 bytes at offset 8192 of the swap file in /nvme: Input/output error; ..." with what to do about it.
// `what` completes "cannot". `error` is an errno.
std::string disk_error(std::string_view what, int error);

}  // namespace dstrain
