// The safetensors format: eight bytes of header length, a JSON header, the bytes of the tensors. Files may be
// hostile: a stated length is checked against the file's size before anything is allocated, and in a header
// that parses, the tensors cover the whole file without holes and overlaps, each with the bytes that dtype
// and shape need. Errors are UserErrors that name the file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/files/input_file.h"

namespace dstrain {

// An element type of the safetensors format: its name and its size.
struct SafetensorsType {
  std::string_view name;  // "F32"
  int64_t bytes = 0;
};

// Returns the type of a name. Throws InternalError if there is none.
SafetensorsType safetensors_type(std::string_view name);

// A tensor in a safetensors file: its name, type, shape and the bytes that it takes.
struct SafetensorsTensor {
  std::string name;
  SafetensorsType type;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the file
};

// The header of a safetensors file, which lists the tensors.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  // Returns the tensor of that name, or null.
  const SafetensorsTensor* find(std::string_view name) const;
  // Prepares find(). The caller must call it after the last change of `tensors`.
  void index();

 private:
  std::vector<size_t> by_name_;
};

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// Returns the bytes of the JSON header. `head` is the first eight bytes of the file, or the whole file if it is
// shorter.
int64_t safetensors_header_bytes(std::string_view head, int64_t file_bytes,
                                 const std::string& path);

// Returns the header with the JSON text `json`, after all checks.
SafetensorsHeader parse_safetensors(std::string_view json, int64_t file_bytes,
                                    const std::string& path);

// Reads and checks the header of an open file.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// Returns length and JSON header of a file with these tensors in a row, and sets their begin and end. The
// metadata are {"format": "pt"}, which the Python package needs.
std::string make_safetensors_header(std::vector<SafetensorsTensor>& tensors);

}  // namespace dstrain
