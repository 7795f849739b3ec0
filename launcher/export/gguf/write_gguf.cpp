#include "launcher/export/gguf/write_gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "runtime/core/blocks/q8_0.h"
#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/convert_floats.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"

namespace dstrain {
namespace {

using models::GgufChange;

class Writer {
 public:
  Writer(const GgufPlan& plan, const ReadWeight& read)
      : plan_(plan), read_(read), file_(plan.path) {}

  void write() {
    const GgufLayout& layout = plan_.layout;
    file_.write_at(layout.header.data(), std::ssize(layout.header), 0);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const int64_t end = write_tensor(i);
      const int64_t next = i + 1 < plan_.tensors.size() ? layout.begins[i + 1] : layout.bytes;
      const std::vector<std::byte> zeros(static_cast<size_t>(next - end));
      file_.write_at(zeros.data(), std::ssize(zeros), end);
    }
    file_.commit();
  }

 private:
  // Returns the first byte behind the tensor.
  int64_t write_tensor(size_t i) {
    const GgufTensor& tensor = plan_.tensors[i];
    const GgufPlan::Source& source = plan_.sources[i];
    const int64_t all =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    const int64_t columns = tensor.shape.size() > 1 ? all / tensor.shape.front() : 1;
    int64_t step = std::max<int64_t>(1, kCopiedAtOnce / columns);
    if (source.change == GgufChange::heads_interleaved)
      step = std::max<int64_t>(1, step / plan_.head_size) * plan_.head_size;
    step *= columns;
    for (int64_t begin = 0; begin < all; begin += step) {
      take(source, all, begin, std::min(step, all - begin));
      if (source.change == GgufChange::plus_one)
        for (float& value : values_) value += 1;
      if (source.change == GgufChange::heads_interleaved)
        interleave_heads(plan_.head_size, columns, values_);
      encode(tensor);
      file_.write_at(bytes_.data(), std::ssize(bytes_),
                     plan_.layout.begins[i] + gguf_bytes(tensor.type, begin));
    }
    return plan_.layout.begins[i] + gguf_bytes(tensor.type, all);
  }

  // Reads whole groups, because those of weights in packed blocks are rounded together.
  void take(const GgufPlan::Source& source, int64_t all, int64_t begin, int64_t count) {
    if (source.weight == GgufPlan::kComputed) {
      values_.assign(source.values.begin() + begin, source.values.begin() + begin + count);
      return;
    }
    const int64_t from = begin / kWeightGroup * kWeightGroup,
                  to = std::min(all,
                                (begin + count + kWeightGroup - 1) / kWeightGroup * kWeightGroup);
    values_.resize(static_cast<size_t>(to - from));
    read_(source.weight, from, to - from, values_.data());
    values_.erase(values_.begin(), values_.begin() + (begin - from));
    values_.resize(static_cast<size_t>(count));
  }

  void encode(const GgufTensor& tensor) {
    const int64_t count = std::ssize(values_);
    bytes_.resize(static_cast<size_t>(gguf_bytes(tensor.type, count)));
    if (tensor.type == GgufType::q8_0) {
      if (!pack_q8_0(values_.data(), count, bytes_.data()))
        fail_user(
            "--dtype q8_0: {} has a value that is no number, or beyond what q8_0 holds: use "
            "fp32",
            tensor.name);
      return;
    }
    if (tensor.type == GgufType::f16) check_range(tensor.name);
    const DType dtype = tensor.type == GgufType::f32   ? DType::f32
                        : tensor.type == GgufType::f16 ? DType::f16
                                                       : DType::bf16;
    convert_floats({values_.data(), {count}, DType::f32}, {bytes_.data(), {count}, dtype});
  }

  void check_range(const std::string& name) const {
    constexpr float kBeyond = 65520;  // rounds to infinity
    for (const float value : values_)
      if (std::abs(value) >= kBeyond && std::isfinite(value))
        fail_user("{} has the value {}, and fp16 ends at 65504: use --dtype bf16 or fp32", name,
                  value);
  }

  const GgufPlan& plan_;
  const ReadWeight& read_;
  NewFile file_;
  std::vector<float> values_;  // of the tensor that is written
  std::vector<std::byte> bytes_;
};

}  // namespace

void interleave_heads(int64_t head_size, int64_t columns, std::vector<float>& values) {
  const std::vector<float> from = values;
  const int64_t rows = std::ssize(values) / columns, half = head_size / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_size * head_size, in_head = row - head;
    const int64_t source = head + in_head % 2 * half + in_head / 2;
    std::copy_n(from.begin() + source * columns, columns, values.begin() + row * columns);
  }
}

void write_gguf(const GgufPlan& plan, const ReadWeight& read) {
  Writer(plan, read).write();
}

}  // namespace dstrain
