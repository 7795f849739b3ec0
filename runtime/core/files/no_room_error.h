#pragma once

#include "runtime/core/error.h"

namespace dstrain {

// A disk, or a user's quota of it, has no room for what was to be written. Removing files there can help.
class NoRoomError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace dstrain
