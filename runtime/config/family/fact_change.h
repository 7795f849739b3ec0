// What becomes of a resumed run that has another value of a setting than its checkpoint.
#pragma once

#include <cstdint>

namespace dstrain {

enum class FactChange : uint8_t {
  impossible,  // the run has other tensors than the checkpoint
  forbidden,  // the stored numbers would mean something else; allowed by --resume_with_changes only
  allowed,    // a decision that a user may take between two runs; it is reported
  irrelevant,  // how the work is done; what the model learns does not change
};

}  // namespace dstrain
