// StandardStream: which of a process's two output streams a text belongs to.
#pragma once

#include <cstdint>

namespace dstrain {

enum class StandardStream : uint8_t { output, error };  // standard output, standard error

}  // namespace dstrain
