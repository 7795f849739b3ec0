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
  positions,  // the same: of each token, its place in its document
  mask,       // where samples may have padding: 1 for each token, 0 for padding
  array,      // of a data file: the array that has the input's name
  reference,  // of each row of a sample: the log-probability that the initial weights give to its targets together
  desirable,  // of each sample: 1 where people want such an answer, else 0
  // A token has its label and the tokens that a teacher finds likeliest to follow it. All are below 0 where the label is.
  teacher_ids,
  teacher_log_probs,  // the log-probabilities that the teacher gives to these tokens
};

inline std::string_view name_of(InputRole role) {  // "token ids"
  constexpr std::string_view names[] = {"token ids",
                                        "features",
                                        "labels",
                                        "documents",
                                        "positions",
                                        "masks",
                                        "arrays",
                                        "references",
                                        "desirable answers",
                                        "a teacher's tokens",
                                        "a teacher's log-probabilities"};
  return names[static_cast<int>(role)];
}

// Returns whether a model may have several inputs of a role.
constexpr bool may_repeat(InputRole role) {
  return role == InputRole::array;
}

// Returns whether an objective adds inputs of a role to those of the model.
constexpr bool is_of_objective(InputRole role) {
  return role == InputRole::reference || role == InputRole::desirable ||
         role == InputRole::teacher_ids || role == InputRole::teacher_log_probs;
}

// Returns whether inputs of a role have an element for each token.
constexpr bool is_of_tokens(InputRole role) {
  return role != InputRole::features && role != InputRole::array && !is_of_objective(role);
}

// Returns whether inputs of a role may have a dtype.
constexpr bool has_dtype(InputRole role, DType dtype) {
  if (role == InputRole::array) return dtype == DType::f32 || dtype == DType::i32;
  const bool floats =
      role == InputRole::features || (is_of_objective(role) && role != InputRole::teacher_ids);
  return dtype == (floats ? DType::f32 : DType::i32);
}

// Returns the dtypes that inputs of a role may have, for messages: "i32".
constexpr std::string_view dtypes_of(InputRole role) {
  if (role == InputRole::array) return "f32 or i32";
  return has_dtype(role, DType::f32) ? "f32" : "i32";
}

}  // namespace dstrain
