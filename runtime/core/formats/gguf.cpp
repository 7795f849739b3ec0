#include "runtime/core/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string_view>
#include <type_traits>

#include "runtime/core/blocks/q8_0.h"

namespace dstrain {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

constexpr int64_t kAlignment = 32;  // the format's, where no field says another one
constexpr uint32_t kVersion = 3;

// The types of values, by their numbers in the format.
enum class ValueType : uint32_t {
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9
};

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class HeaderText {
 public:
  void number(const auto& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void count(size_t value) { number(static_cast<uint64_t>(value)); }
  void string(std::string_view value) {
    count(value.size());
    text_.append(value);
  }
  void field(const GgufField& field) {
    string(field.key);
    std::visit([this](const auto& value) { any(value); }, field.value);
  }
  std::string take() { return std::move(text_); }
  void fill() { text_.resize(static_cast<size_t>(aligned(std::ssize(text_)))); }

 private:
  static ValueType type_of(uint32_t) { return ValueType::uint32; }
  static ValueType type_of(int32_t) { return ValueType::int32; }
  static ValueType type_of(float) { return ValueType::float32; }
  static ValueType type_of(bool) { return ValueType::boolean; }
  static ValueType type_of(const std::string&) { return ValueType::string; }

  template <class T>
  void bare(const T& value) {
    if constexpr (std::is_same_v<T, std::string>)
      string(value);
    else
      number(value);
  }
  template <class T>
  void any(const T& value) {
    number(type_of(value));
    bare(value);
  }
  template <class T>
  void any(const std::vector<T>& list) {
    number(ValueType::array);
    number(type_of(T{}));
    count(list.size());
    for (const T& value : list) bare(value);
  }

  std::string text_ = "GGUF";
};

}  // namespace

int64_t gguf_bytes(GgufType type, int64_t values) {
  switch (type) {
    case GgufType::f32:
      return 4 * values;
    case GgufType::f16:
    case GgufType::bf16:
      return 2 * values;
    case GgufType::q8_0:
      return q8_0_bytes(values);
  }
  return 0;
}

GgufLayout gguf_layout(const std::vector<GgufField>& fields,
                       const std::vector<GgufTensor>& tensors) {
  HeaderText text;
  text.number(kVersion);
  text.count(tensors.size());
  text.count(fields.size());
  for (const GgufField& field : fields) text.field(field);
  GgufLayout layout;
  int64_t bytes = 0;  // of the tensors, which offsets count from
  for (const GgufTensor& tensor : tensors) {
    text.string(tensor.name);
    text.number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      text.number(static_cast<uint64_t>(*size));
    text.number(tensor.type);
    text.number(static_cast<uint64_t>(bytes));
    layout.begins.push_back(bytes);
    const int64_t values =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    bytes += aligned(gguf_bytes(tensor.type, values));
  }
  text.fill();
  layout.header = text.take();
  for (int64_t& begin : layout.begins) begin += std::ssize(layout.header);
  layout.bytes = std::ssize(layout.header) + bytes;
  return layout;
}

}  // namespace dstrain
