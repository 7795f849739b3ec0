#include "runtime/storage/weights/weights_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "runtime/core/convert_floats.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/storage/mismatches.h"
#include "runtime/storage/weights/fp8_blocks.h"

namespace dstrain {
namespace {

constexpr int64_t kWidenedAtOnce = 1 << 18;      // elements
constexpr int64_t kTogether = int64_t{1} << 18;  // elements
constexpr int64_t kLongRun = int64_t{1} << 14;   // elements that are worth a read of their own

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

int64_t elements_in(const SafetensorsTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  return elements;
}

// Returns what keeps a tensor of the files from being read as f32; empty: nothing does.
std::string type_problem(const WeightFiles& files, const std::string& name,
                         const SafetensorsTensor& t) {
  if (is_fp8(t)) return fp8_problem(name, t, files.find(name_of_scales(name)));
  if (t.type.name == "F32" || t.type.name == "F16" || t.type.name == "BF16") return "";
  return fmt::format("{} is {}, expected F32, F16 or BF16", name, t.type.name);
}

// Returns whether a file may have a tensor with fewer rows than are wanted, and with this shape.
bool is_grown(const FileTensor& wanted, const std::vector<int64_t>& shape,
              const ForeignNames::GrownTables& grown) {
  std::vector<int64_t> stored = dims_of(wanted.shape);
  if (stored.empty() || grown.rows == 0 || stored.front() < grown.rows) return false;
  stored.front() = grown.rows;
  return shape == stored && std::ranges::find(grown.tensors, wanted.name) != grown.tensors.end();
}

// Throws UserError unless the files have the tensors that are wanted, and no other ones.
void check_tensors(const WeightFiles& files, const std::vector<FileTensor>& want,
                   const ForeignNames& names) {
  const ForeignNames::GrownTables& grown = names.grown;
  std::vector<std::string> mismatches;
  std::unordered_set<std::string> known;
  for (const FileTensor& wanted : want) {
    known.insert(wanted.name);
    const std::optional<WeightFiles::Found> found = files.find(wanted.name);
    if (!found && std::ranges::find(names.fresh, wanted.name) != names.fresh.end()) continue;
    if (!found)
      mismatches.push_back(fmt::format("{} {} is missing", wanted.name, to_string(wanted.shape)));
    else if (const SafetensorsTensor& t = *found->tensor;
             t.shape != dims_of(wanted.shape) && !is_grown(wanted, t.shape, grown))
      mismatches.push_back(fmt::format("{} has shape ({}), expected {}", wanted.name,
                                       fmt::join(t.shape, ", "), to_string(wanted.shape)));
    else if (std::string problem = type_problem(files, wanted.name, t); !problem.empty())
      mismatches.push_back(std::move(problem));
    if (found && is_fp8(*found->tensor)) known.insert(name_of_scales(wanted.name));
  }
  files.for_each([&](const SafetensorsTensor& t, const std::string& name) {
    if (!known.contains(t.name) && !known.contains(name))
      mismatches.push_back(
          fmt::format("{} ({}) is not in the model", shown_name(t.name), fmt::join(t.shape, ", ")));
  });
  if (mismatches.empty()) return;
  fail_user(
      "the weights in {} do not fit the model (mismatches: {}); give a file of the same model, or "
      "change the model section:\n  {}",
      files.path(), mismatches.size(), listed(mismatches));
}

// Reads 16-bit elements from byte `at` and converts them to f32 in `to`.
void read_widened(const InputFile& file, bool is_bf16, int64_t at, float* to, int64_t count,
                  std::vector<uint16_t>& narrow) {
  narrow.resize(static_cast<size_t>(kWidenedAtOnce));
  for (int64_t done = 0; done < count; done += kWidenedAtOnce) {
    const int64_t n = std::min(kWidenedAtOnce, count - done);
    file.read_at(narrow.data(), 2 * n, at + 2 * done);
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t bits = narrow[static_cast<size_t>(i)];
      to[done + i] = is_bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
    }
  }
}

// Writes the elements of `columns`, which lie one after the other in `together`, to their places in the weight. All
// columns are worked through for a few rows at a time, so that whole cache lines are written.
void scatter(const float* together, std::span<const FileRun> columns, float* weight) {
  constexpr int64_t kRows = 16;
  int64_t most = 0;
  for (const FileRun& run : columns) most = std::max(most, run.count);
  for (int64_t first = 0; first < most; first += kRows) {
    const float* from = together;
    for (const FileRun& run : columns) {
      const int64_t last = std::min(first + kRows, run.count);
      for (int64_t i = first; i < last; ++i) weight[run.begin + i * run.stride] = from[i];
      from += run.count;
    }
  }
}

}  // namespace

WeightsReader::WeightsReader(const std::string& path, const StateRegister& weights,
                             const ForeignNames& names)
    : files_(path, names), layout_(weights) {
  check_tensors(files_, layout_.tensors(), names);
  for (const FileTensor& tensor : layout_.tensors()) {
    tensors_.push_back(files_.find(tensor.name).value_or(WeightFiles::Found{}));
    const SafetensorsTensor* const t = tensors_.back().tensor;
    scales_.push_back(t && is_fp8(*t) ? files_.find(name_of_scales(tensor.name)).value()
                                      : WeightFiles::Found{});
  }
  mean_rows_.resize(tensors_.size());
}

std::vector<size_t> WeightsReader::in_file_order() const {
  using Place =
      std::pair<const InputFile*, int64_t>;  // files lie in memory in the order of their names
  std::vector<std::pair<Place, size_t>> places;
  for (size_t weight = 0; weight < layout_.weights(); ++weight) {
    const std::vector<FileRun> runs = layout_.runs(weight, 0, 1);
    Place place{};
    if (!runs.empty()) {
      const auto& [file, tensor] = tensors_[runs.front().tensor];
      if (!tensor) continue;
      place = {file, tensor->begin};
    }
    places.emplace_back(place, weight);
  }
  std::ranges::sort(places);
  std::vector<size_t> order;
  for (const auto& [place, weight] : places) order.push_back(weight);
  return order;
}

void WeightsReader::read(size_t weight, int64_t begin, int64_t count, float* to, Buffers& buffers,
                         const TensorPart& part) const {
  const std::vector<FileRun> runs = layout_.runs(weight, begin, count, part);
  if (part.by != TensorPart::By::nothing) std::fill_n(to, count, 0.0f);
  std::vector<float>& together = buffers.together;
  for (size_t i = 0; i < runs.size();) {
    const FileRun& run = runs[i];
    if (run.stride == 1 && part.by == TensorPart::By::columns) {
      i += read_rows({runs.data() + i, runs.size() - i}, to - begin, buffers);
      continue;
    }
    if (run.stride == 1) {
      read_elements(run.tensor, run.at, run.count, to + (run.begin - begin), buffers);
      ++i;
      continue;
    }
    // Columns of the weight that follow each other in the file are read together.
    size_t end = i;
    int64_t elements = 0;
    while (end < runs.size() && runs[end].tensor == run.tensor && runs[end].stride == run.stride &&
           runs[end].at == run.at + elements && (end == i || elements < kTogether))
      elements += runs[end++].count;
    together.resize(static_cast<size_t>(elements));
    read_elements(run.tensor, run.at, elements, together.data(), buffers);
    scatter(together.data(), {runs.data() + i, end - i}, to - begin);
    i = end;
  }
}

bool WeightsReader::reads_in_pieces(size_t weight, const TensorPart& part) const {
  return part.by != TensorPart::By::columns && !layout_.is_transposed(weight);
}

size_t WeightsReader::read_rows(std::span<const FileRun> runs, float* weight,
                                Buffers& buffers) const {
  const FileRun& first = runs.front();
  const auto span_to = [&first](const FileRun& run) { return run.at + run.count - first.at; };
  size_t end = 1;
  while (first.count < kLongRun && end < runs.size() && runs[end].tensor == first.tensor &&
         runs[end].stride == 1 && runs[end].at > first.at && span_to(runs[end]) <= kTogether)
    ++end;
  if (end == 1) {
    read_elements(first.tensor, first.at, first.count, weight + first.begin, buffers);
    return 1;
  }
  const int64_t elements = span_to(runs[end - 1]);
  std::vector<float>& together = buffers.together;
  together.resize(static_cast<size_t>(elements));
  read_elements(first.tensor, first.at, elements, together.data(), buffers);
  for (const FileRun& run : runs.first(end))
    std::copy_n(together.begin() + (run.at - first.at), run.count, weight + run.begin);
  return end;
}

void WeightsReader::read_elements(size_t tensor, int64_t first, int64_t count, float* to,
                                  Buffers& buffers) const {
  const int64_t stored = elements_in(*tensors_[tensor].tensor);
  const int64_t in_file = std::clamp<int64_t>(stored - first, 0, count);
  if (in_file > 0) read_stored(tensor, first, in_file, to, buffers);
  if (in_file == count) return;
  const std::vector<float>& mean = mean_row(tensor);
  const auto width = std::ssize(mean);
  for (int64_t i = in_file; i < count; ++i) to[i] = mean[static_cast<size_t>((first + i) % width)];
}

const std::vector<float>& WeightsReader::mean_row(size_t tensor) const {
  const std::scoped_lock lock(making_mean_);
  std::vector<float>& mean = mean_rows_[tensor];
  if (!mean.empty()) return mean;
  const std::vector<int64_t>& shape = tensors_[tensor].tensor->shape;
  const int64_t rows = shape.front(), width = elements_in(*tensors_[tensor].tensor) / rows;
  const int64_t at_once = std::max<int64_t>(kTogether / width, 1);
  std::vector<double> sums(static_cast<size_t>(width));
  std::vector<float> values;
  Buffers buffers;
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row) * width;
    values.resize(static_cast<size_t>(count));
    read_stored(tensor, row * width, count, values.data(), buffers);
    for (int64_t i = 0; i < count; ++i)
      sums[static_cast<size_t>(i % width)] += values[static_cast<size_t>(i)];
  }
  for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  return mean;
}

void WeightsReader::read_stored(size_t tensor, int64_t first, int64_t count, float* to,
                                Buffers& buffers) const {
  const auto& [file, t] = tensors_[tensor];
  if (scales_[tensor].tensor)
    return read_fp8(tensors_[tensor], scales_[tensor], first, count, to, buffers.bytes);
  const int64_t at = t->begin + first * t->type.bytes;
  if (t->type.bytes == 4)
    file->read_at(to, 4 * count, at);
  else
    read_widened(*file, t->type.name == "BF16", at, to, count, buffers.narrow);
}

}  // namespace dstrain
