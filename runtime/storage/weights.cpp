#include "runtime/storage/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "runtime/core/convert_floats.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/step_rules.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/mismatches.h"

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

void check_header(const SafetensorsHeader& header, const std::vector<FileTensor>& want,
                  const std::string& path) {
  std::vector<std::string> mismatches;
  std::unordered_set<std::string_view> known;
  for (const FileTensor& wanted : want) {
    known.insert(wanted.name);
    const SafetensorsTensor* t = header.find(wanted.name);
    if (!t)
      mismatches.push_back(fmt::format("{} {} is missing", wanted.name, to_string(wanted.shape)));
    else if (t->shape != dims_of(wanted.shape))
      mismatches.push_back(fmt::format("{} has shape ({}), expected {}", wanted.name,
                                       fmt::join(t->shape, ", "), to_string(wanted.shape)));
    else if (!loadable(t->type.name))
      mismatches.push_back(
          fmt::format("{} is {}, expected F32, F16 or BF16", wanted.name, t->type.name));
  }
  for (const SafetensorsTensor& t : header.tensors)
    if (!known.contains(t.name))
      mismatches.push_back(fmt::format("{} ({}) is not in the model", t.name.substr(0, 120),
                                       fmt::join(t.shape, ", ")));
  if (mismatches.empty()) return;
  fail_user(
      "the weights in {} do not fit the model (mismatches: {}); give a file of the same model, or "
      "change the model section:\n  {}",
      path, mismatches.size(), listed(mismatches));
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

// Reads tensors of a weight file, which have been checked.
class TensorReader {
 public:
  TensorReader(const InputFile& file, const SafetensorsHeader& header, const WeightLayout& layout)
      : file_(file), layout_(layout) {
    for (const FileTensor& tensor : layout.tensors()) tensors_.push_back(header.find(tensor.name));
  }

  // Reads elements [begin, begin + count) of a weight to `to` as f32; `weight`: its index in the layout.
  void read(size_t weight, int64_t begin, int64_t count, float* to) {
    for (const FileRun& run : layout_.runs(weight, begin, count)) {
      float* const first = to + (run.begin - begin);
      if (run.stride == 1) {
        read_run(run, first);
        continue;
      }
      together_.resize(static_cast<size_t>(run.count));
      read_run(run, together_.data());
      for (int64_t i = 0; i < run.count; ++i)
        first[i * run.stride] = together_[static_cast<size_t>(i)];
    }
  }

 private:
  void read_run(const FileRun& run, float* to) {
    const SafetensorsTensor& t = *tensors_[run.tensor];
    const int64_t at = t.begin + run.at * t.type.bytes;
    if (t.type.bytes == 4)
      file_.read_at(to, 4 * run.count, at);
    else
      read_widened(file_, t.type.name == "BF16", at, to, run.count, scratch_);
  }

  const InputFile& file_;
  const WeightLayout& layout_;
  std::vector<const SafetensorsTensor*> tensors_;
  std::vector<uint16_t> scratch_;
  std::vector<float> together_;  // a run of elements that are apart in the weight
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

std::string weights_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_directory(path, none)) return path;
  const fs::path directory(path), file = directory / "model.safetensors";
  if (fs::exists(file, none)) return file.string();
  std::string_view advice = "name a file of weights, or the output directory of a finished run";
  if (fs::exists(directory / kManifestName, none))
    advice = "it is a checkpoint: --resume goes on from it";
  else if (fs::exists(directory / "model.safetensors.index.json", none))
    advice = "its weights are divided over several files: join them in one";
  fail_user("--init_weights {}: the directory holds no model.safetensors; {}", path, advice);
}

void load_weights(const std::string& path, const StateRegister& want) {
  const InputFile file(path, "the weights file");
  const SafetensorsHeader header = read_safetensors_header(file);
  const WeightLayout layout(want);
  check_header(header, layout.tensors(), path);
  TensorReader tensors(file, header, layout);
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
    if (!entry.device)
      read_piece(0, entry.local.as<std::byte>(), count * element);
    else
      for_host_pieces(*entry.device, entry.local.data, count * element, kSentAtOnce * element,
                      HostAccess::write, read_piece);
  }
}

void check_weights(const std::string& path, const StateRegister& want) {
  check_header(read_safetensors_header(InputFile(path, "the weights file")),
               WeightLayout(want).tensors(), path);
}

WeightsWriter::WeightsWriter(const std::string& path, const StateRegister& weights)
    : file_(path), layout_(weights) {
  for (const FileTensor& tensor : layout_.tensors())
    tensors_.push_back({.name = tensor.name, .type = {"F32", 4}, .shape = dims_of(tensor.shape)});
  for (size_t i = 0; i < weights.size(); ++i)
    slots_[weights[i].name] = {.index = i, .elements = weights[i].global_shape.elements()};
  const std::string head = make_safetensors_header(tensors_);
  file_.write_at(head.data(), static_cast<int64_t>(head.size()), 0);
}

void WeightsWriter::write(std::string_view name, int64_t begin, const Tensor& values) {
  const auto found = slots_.find(name);
  check(found != slots_.end(), "the weight file {} has no tensor {}", file_.path(), name);
  Slot& slot = found->second;
  const int64_t count = values.elements();
  check(values.dtype == DType::f32, "{} is written as {}, expected f32", name,
        name_of(values.dtype));
  check(begin >= 0 && begin + count <= slot.elements, "slice [{}, {}) of {} is outside of it",
        begin, begin + count, name);
  for (const FileRun& run : layout_.runs(slot.index, begin, count)) {
    const float* from = values.as<const float>() + (run.begin - begin);
    if (run.stride > 1) {
      together_.resize(static_cast<size_t>(run.count));
      for (int64_t i = 0; i < run.count; ++i)
        together_[static_cast<size_t>(i)] = from[i * run.stride];
      from = together_.data();
    }
    file_.write_at(from, 4 * run.count, tensors_[run.tensor].begin + 4 * run.at);
  }
  slot.written += count;
}

void WeightsWriter::finish() {
  for (const auto& [name, slot] : slots_)
    check(slot.written == slot.elements, "{} of {} elements of {} were written to {}", slot.written,
          slot.elements, name, file_.path());
  file_.commit();
}

}  // namespace dstrain
