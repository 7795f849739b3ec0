// Bytes of .npy and .safetensors files for tests, and a model that reads arrays.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/job.h"
#include "tests/support/zip_file.h"

namespace dstrain {

// Returns the bytes of the values, one after another.
template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) {
    char buffer[sizeof(T)];
    std::memcpy(buffer, &value, sizeof(T));
    bytes.append(buffer, sizeof(T));
  }
  return bytes;
}

// Returns a .npy file with this dictionary, as NumPy pads it.
inline std::string npy_with(std::string dictionary, std::string_view data, int version = 1) {
  const size_t width = version == 1 ? 2 : 4, begin = 8 + width;
  while ((begin + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  bytes += ZipFile::number(static_cast<int64_t>(dictionary.size()), static_cast<int>(width));
  return bytes + dictionary + std::string(data);
}

inline std::string npy(std::string_view descr, std::string_view shape, std::string_view data,
                       bool fortran = false, int version = 1) {
  return npy_with(fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr,
                              fortran ? "True" : "False", shape),
                  data, version);
}

struct TestTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string safetensors(const std::vector<TestTensor>& tensors) {
  std::string json = "{", data;
  for (const TestTensor& t : tensors) {
    json += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", t.name, t.dtype, fmt::join(t.shape, ","),
                        data.size(), data.size() + t.data.size());
    data += t.data;
  }
  json += "}";
  return ZipFile::number(static_cast<int64_t>(json.size()), 8) + json + data;
}

// A family of models that read these arrays. It builds nothing.
inline ModelFamily arrays_family(std::vector<ModelInput> inputs) {
  return {.type = "arrays",
          .title = "array model",
          .keys = {{{.key = "dstrain.model.size", .type = Type::integer, .fallback = "1"}}},
          .inputs = std::move(inputs),
          .layers_key = "size",
          .width_key = "size"};
}

// x: 3 by 2 floats; y: an integer.
inline const ModelFamily& two_arrays_family() {
  static const ModelFamily family =
      arrays_family({{"x", InputRole::array, DType::f32, {}, {}, {3, 2}},
                     {"y", InputRole::array, DType::i32, {}, {}, {}}});
  return family;
}

// Returns a job on these data, in their order, all of them for training.
inline Job array_job(std::vector<std::string> paths,
                     const ModelFamily& family = two_arrays_family()) {
  Job job;
  job.model = ModelConfig(family);
  job.data.paths = std::move(paths);
  job.data.format = DataFormat::arrays;
  job.data.random_order = false;
  job.data.val_fraction = 0;
  return job;
}

}  // namespace dstrain
