#include "runtime/core/files/lfs_pointer.h"

#include "runtime/core/error.h"

namespace dstrain {

void refuse_lfs_pointer(std::string_view beginning, const std::string& path) {
  if (!beginning.starts_with("version https://git-lfs.github.com/spec/")) return;
  fail_user(
      "{} is a pointer of Git LFS, not the file that it stands for: `git lfs pull` in its folder "
      "fetches that",
      path);
}

}  // namespace dstrain
