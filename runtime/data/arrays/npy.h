// The .npy format of NumPy: a mark, a version, the header's length, a dictionary in Python's syntax, the elements. Files may
// be hostile: what the header states is checked against the file's size before anything is read. Errors are UserErrors that
// name the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/arrays/element_type.h"

namespace dstrain {

// What a .npy file says of its array.
struct NpyHeader {
  std::string descr;                // NumPy's name of the type: "<f4"
  std::optional<ElementType> type;  // nothing: one that models do not read
  bool fortran_order = false;       // of more than one dimension: the first one lies together
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of the elements, in bytes from the start
};

// Returns whether a file begins as a .npy file does.
bool is_npy(std::string_view bytes);

// Returns the header of the file with these bytes. Throws UserError unless the elements, where their type is known, take
// exactly the bytes behind it. `name` is the file in messages.
NpyHeader parse_npy(std::string_view bytes, const std::string& name);

// Returns what to do with an array of a type that models do not read: "it is big-endian: ...".
std::string descr_advice(std::string_view descr);

}  // namespace dstrain
