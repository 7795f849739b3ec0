// Scratch memory of one kernel that a sanitizer watches. In a plan, what lies beside a kernel's scratch memory belongs to
// others, so a kernel that leaves it would go unnoticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace dstrain {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

struct DeleteAligned {
  void operator()(std::byte* memory) const {
    ::operator delete[](memory, std::align_val_t{kWorkspaceAlignment});
  }
  static constexpr size_t kWorkspaceAlignment = 64;
};
using GuardedWorkspace = std::unique_ptr<std::byte, DeleteAligned>;

// Returns `bytes` of memory by themselves.
inline GuardedWorkspace guarded_workspace(int64_t bytes) {
  return GuardedWorkspace(static_cast<std::byte*>(::operator new[](
      static_cast<size_t>(bytes), std::align_val_t{DeleteAligned::kWorkspaceAlignment})));
}

}  // namespace dstrain
