// How fibers report their stack switches to the sanitizers. The sanitizers' functions are weak, because they exist
// only in a program that is built with the sanitizer.
#pragma once

#include <cstddef>

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the sanitizers' names
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom,
                                                  size_t size);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom,
                                                   size_t* old_size);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* at, size_t size);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}

namespace dstrain::emulated {

inline bool under_tsan() {
  return __tsan_create_fiber != nullptr;
}

// Accesses before release(at) in one thread are ordered before those after acquire(at) in another.
inline void release(void* at) {
  if (__tsan_release) __tsan_release(at);
}
inline void acquire(void* at) {
  if (__tsan_acquire) __tsan_acquire(at);
}

// While it lives, ThreadSanitizer does not see what the calling thread reads and writes: for what a GPU does beside the
// threads of a block. The thread must not be suspended meanwhile.
class Unobserved {
 public:
  Unobserved() {
    if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    if (AnnotateIgnoreWritesBegin) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
  ~Unobserved() {
    if (AnnotateIgnoreWritesEnd) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    if (AnnotateIgnoreReadsEnd) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

// Tells the address sanitizer that a stack has no frames any more.
inline void forget_frames(const void* bottom, size_t size) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(bottom, size);
}

// A stack that is registered with the sanitizers.
struct SanitizedStack {
  void* thread = nullptr;        // ThreadSanitizer's
  const void* bottom = nullptr;  // AddressSanitizer's: the stack, and its fake frames while away
  size_t size = 0;
  void* fake_frames = nullptr;
};

// leave() must be called right before a switch between stacks, arrive() right after it on the stack `to`. A switch
// orders no memory accesses.
inline void leave(SanitizedStack& from, const SanitizedStack& to) {
  constexpr unsigned kNoSync = 1;
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to.thread, kNoSync);
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&from.fake_frames, to.bottom, to.size);
}
inline void arrive(SanitizedStack& to, SanitizedStack* from) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(to.fake_frames, &bottom, &size);
  if (from) from->bottom = bottom, from->size = size;
}

}  // namespace dstrain::emulated
