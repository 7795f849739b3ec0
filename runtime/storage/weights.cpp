#include "runtime/storage/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>

#include "runtime/core/convert_floats.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/step_rules.h"
#include "runtime/storage/mismatches.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kWidenedAtOnce = 1 << 18;  // elements
constexpr int64_t kSentAtOnce = 1 << 20;     // elements

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

bool loadable(std::string_view type) {
  return type == "F32" || type == "F16" || type == "BF16";
}

void check_tensors(const WeightFiles& files, const std::vector<FileTensor>& want) {
  std::vector<std::string> mismatches;
  std::unordered_set<std::string_view> known;
  for (const FileTensor& wanted : want) {
    known.insert(wanted.name);
    const std::optional<WeightFiles::Found> found = files.find(wanted.name);
    if (!found)
      mismatches.push_back(fmt::format("{} {} is missing", wanted.name, to_string(wanted.shape)));
    else if (const SafetensorsTensor& t = *found->tensor; t.shape != dims_of(wanted.shape))
      mismatches.push_back(fmt::format("{} has shape ({}), expected {}", wanted.name,
                                       fmt::join(t.shape, ", "), to_string(wanted.shape)));
    else if (!loadable(t.type.name))
      mismatches.push_back(
          fmt::format("{} is {}, expected F32, F16 or BF16", wanted.name, t.type.name));
  }
  files.for_each([&](const SafetensorsTensor& t, const std::string& name) {
    if (!known.contains(t.name) && !known.contains(name))
      mismatches.push_back(fmt::format("{} ({}) is not in the model", t.name.substr(0, 120),
                                       fmt::join(t.shape, ", ")));
  });
  if (mismatches.empty()) return;
  fail_user(
      "the weights in {} do not fit the model (mismatches: {}); give a file of the same model, or "
      "change the model section:\n  {}",
      files.path(), mismatches.size(), listed(mismatches));
}

// Reads 16-bit elements from byte `at` and converts them to f32 in `to`.
void read_widened(const InputFile& file, bool is_bf16, int64_t at, float* to, int64_t count,
                  std::vector<uint16_t>& scratch) {
  scratch.resize(static_cast<size_t>(kWidenedAtOnce));
  for (int64_t done = 0; done < count; done += kWidenedAtOnce) {
    const int64_t n = std::min(kWidenedAtOnce, count - done);
    file.read_at(scratch.data(), 2 * n, at + 2 * done);
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t bits = scratch[static_cast<size_t>(i)];
      to[done + i] = is_bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
    }
  }
}

// Reads tensors of weight files, which have been checked.
class TensorReader {
 public:
  TensorReader(const WeightFiles& files, const WeightLayout& layout) : layout_(layout) {
    for (const FileTensor& tensor : layout.tensors()) tensors_.push_back(*files.find(tensor.name));
  }

  // Reads elements [begin, begin + count) of a weight to `to` as f32; `weight`: its index in the layout.
  void read(size_t weight, int64_t begin, int64_t count, float* to) {
    const std::vector<FileRun> runs = layout_.runs(weight, begin, count);
    for (size_t i = 0; i < runs.size();) {
      const FileRun& run = runs[i];
      if (run.stride == 1) {
        read_elements(run.tensor, run.at, run.count, to + (run.begin - begin));
        ++i;
        continue;
      }
      // Columns of the weight that follow each other in the file are read together.
      size_t end = i;
      int64_t elements = 0;
      while (end < runs.size() && runs[end].tensor == run.tensor &&
             runs[end].stride == run.stride && runs[end].at == run.at + elements &&
             (end == i || elements < kTogether))
        elements += runs[end++].count;
      together_.resize(static_cast<size_t>(elements));
      read_elements(run.tensor, run.at, elements, together_.data());
      scatter({runs.data() + i, end - i}, to - begin);
      i = end;
    }
  }

 private:
  static constexpr int64_t kTogether = int64_t{1} << 18;  // elements

  // Writes together_, which has the elements of `columns` one after the other, to their places in the weight. It works
  // through all columns for a few rows at a time, so that it writes whole cache lines.
  void scatter(std::span<const FileRun> columns, float* weight) const {
    constexpr int64_t kRows = 16;
    int64_t most = 0;
    for (const FileRun& run : columns) most = std::max(most, run.count);
    for (int64_t first = 0; first < most; first += kRows) {
      const float* from = together_.data();
      for (const FileRun& run : columns) {
        const int64_t last = std::min(first + kRows, run.count);
        for (int64_t i = first; i < last; ++i) weight[run.begin + i * run.stride] = from[i];
        from += run.count;
      }
    }
  }

  void read_elements(size_t tensor, int64_t first, int64_t count, float* to) {
    const auto& [file, t] = tensors_[tensor];
    const int64_t at = t->begin + first * t->type.bytes;
    if (t->type.bytes == 4)
      file->read_at(to, 4 * count, at);
    else
      read_widened(*file, t->type.name == "BF16", at, to, count, scratch_);
  }

  const WeightLayout& layout_;
  std::vector<WeightFiles::Found> tensors_;
  std::vector<uint16_t> scratch_;
  std::vector<float> together_;  // elements that are apart in the weight
};

// Throws UserError if a weight is not finite: the run would fail in its first step, with a misleading message.
void check_numbers(const float* values, int64_t count, int64_t first, const std::string& name,
                   const std::string& path) {
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= !is_number(static_cast<double>(values[i]));
  if (!bad) return;
  const float* const found =
      std::find_if(values, values + count, [](float x) { return !std::isfinite(x); });
  fail_user("the weights in {} are damaged: element {} of {} is {}", path, first + (found - values),
            name, std::isnan(*found) ? "not a number" : "infinite");
}

}  // namespace

void load_weights(const std::string& path, const StateRegister& want, const ForeignNames& names) {
  const WeightFiles files(path, names);
  const WeightLayout layout(want);
  check_tensors(files, layout.tensors());
  TensorReader tensors(files, layout);
  std::vector<float> wide;
  for (size_t weight = 0; weight < want.size(); ++weight) {
    const StateEntry& entry = want[weight];
    const int64_t count = entry.local.elements();
    const DType dtype = entry.local.dtype;
    check(is_convertible(dtype), "weights are loaded as floats, and {} asks for {}", entry.name,
          name_of(dtype));
    check(entry.begin >= 0 && entry.begin + count <= entry.global_shape.elements(),
          "slice [{}, {}) of {} is outside of it", entry.begin, entry.begin + count, entry.name);
    const auto read = [&](int64_t from, int64_t elements, float* to) {
      tensors.read(weight, entry.begin + from, elements, to);
      check_numbers(to, elements, entry.begin + from, entry.name, path);
    };
    const int64_t element = size_of(dtype);
    const auto read_piece = [&](int64_t at, std::byte* values, int64_t bytes) {
      const int64_t from = at / element, n = bytes / element;
      if (dtype == DType::f32) return read(from, n, reinterpret_cast<float*>(values));
      wide.resize(static_cast<size_t>(std::min(n, kSentAtOnce)));
      for (int64_t done = 0; done < n; done += kSentAtOnce) {
        const int64_t here = std::min(kSentAtOnce, n - done);
        read(from + done, here, wide.data());
        convert_floats({wide.data(), {here}, DType::f32}, {values + done * element, {here}, dtype});
      }
    };
    if (count == 0) continue;
    if (!entry.device)
      read_piece(0, entry.local.as<std::byte>(), count * element);
    else
      for_host_pieces(*entry.device, entry.local.data, count * element, kSentAtOnce * element,
                      HostAccess::write, read_piece);
  }
}

void check_weights(const std::string& path, const StateRegister& want, const ForeignNames& names) {
  check_tensors(WeightFiles(path, names), WeightLayout(want).tensors());
}

}  // namespace dstrain
