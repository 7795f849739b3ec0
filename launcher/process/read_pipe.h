// Reading of pipes by a process that must not wait.
#pragma once

#include <unistd.h>

#include <array>
#include <string_view>

namespace dstrain {

// Passes what can be read from a non-blocking descriptor to `use`, in pieces: at least what a pipe holds, and at most twice
// as much, so that a writer who never pauses does not keep the caller from anything else.
template <class Use>
void read_available(int descriptor, Use use) {
  constexpr int kMostPieces = 16;
  std::array<char, 8192> buffer;
  for (int i = 0; i < kMostPieces; ++i) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n <= 0) return;
    use(std::string_view(buffer.data(), static_cast<size_t>(n)));
  }
}

}  // namespace dstrain
