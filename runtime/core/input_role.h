// InputRole: what an input of a model holds, and so where its values come from.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/core/dtype.h"

namespace dstrain {

enum class InputRole : uint8_t {
  token_ids,  // of a data file
  features,   // made from the seed
  labels,  // of a data file the tokens that follow; else made from the features. Those below 0 do not count
  // Where a sample holds several documents: of each token, the place in the sample at which its document begins. Places
  // do not fall, and that of token t is at most t.
  documents,
};

inline std::string_view name_of(InputRole role) {  // "token ids"
  constexpr std::string_view names[] = {"token ids", "features", "labels", "documents"};
  return names[static_cast<int>(role)];
}

// Returns the only dtype that inputs of a role have.
constexpr DType dtype_of(InputRole role) {
  return role == InputRole::features ? DType::f32 : DType::i32;
}

}  // namespace dstrain
