// The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes. Stands on
// nlohmann_json and atomic_file.h. A file from anywhere may be hostile: nothing is allocated by a
// length that the file's size does not bear out, and a header that parses covers the whole file
// without holes and overlaps, every tensor as long as dtype and shape say. Errors are UserErrors
// that name the file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/storage/atomic_file.h"

namespace dstrain {

// The format's names of element types, with their bytes.
struct SafetensorsType {
  std::string_view name;  // "F32"
  int64_t bytes = 0;
};

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  const SafetensorsTensor* find(std::string_view name) const;  // null: no such tensor
  void index();  // called once, after the tensors are in place

 private:
  std::vector<size_t> by_name_;
};

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

// Bytes of the JSON header of a file of `file_bytes` that starts with `head` (its first eight bytes,
// fewer where the file is shorter).
int64_t safetensors_header_bytes(std::string_view head, int64_t file_bytes,
                                 const std::string& path);

// The header whose JSON text is `json`, checked as a whole.
SafetensorsHeader parse_safetensors(std::string_view json, int64_t file_bytes,
                                    const std::string& path);

// Reads and checks the header of an open file.
SafetensorsHeader read_safetensors_header(const File& file);

// Length and JSON header of a file that holds these tensors (their begin and end are set here) one
// after another, with {"format": "pt"}, which the Python package asks for.
std::string make_safetensors_header(std::vector<SafetensorsTensor>& tensors);

}  // namespace dstrain
