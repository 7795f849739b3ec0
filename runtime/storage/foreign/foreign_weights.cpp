#include "runtime/storage/foreign/foreign_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "runtime/config/text.h"
#include "runtime/core/dtype.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/storage/mismatches.h"

namespace dstrain {
namespace {

constexpr int64_t kWrittenAtOnce = int64_t{1} << 21;  // elements

template <class From>
void widen(const char* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    if constexpr (std::is_same_v<From, double>)
      to[i] = static_cast<float>(value);
    else
      to[i] = to_float(value);
  }
}

// Makes f32 of elements of another type.
void convert(std::string_view type, const char* from, int64_t count, float* to) {
  if (type == "F64") return widen<double>(from, count, to);
  if (type == "BF16") return widen<bf16>(from, count, to);
  check(type == "F16", "elements of type {} are no floats", type);
  widen<f16>(from, count, to);
}

// Writes the elements of tensors to one file, and has the file open that it reads.
class ElementCopy {
 public:
  ElementCopy(const ForeignWeights& weights, NewFile& to) : weights_(weights), to_(to) {}

  // Writes a piece as elements of `type` from byte `at` on. Returns the byte behind it.
  int64_t copy(const ForeignPiece& piece, const SafetensorsType& type, int64_t at) {
    if (!from_ || open_ != piece.file)
      from_ = std::make_unique<InputFile>(weights_.files[piece.file], "the file of PyTorch");
    open_ = piece.file;
    const TorchTensorReader reader(*from_, piece.tensor);
    const bool same = piece.tensor.type.name == type.name;
    for (int64_t done = 0; done < piece.count;) {
      const int64_t count = std::min(kWrittenAtOnce, piece.count - done);
      bytes_.resize(static_cast<size_t>(count * piece.tensor.type.bytes));
      reader.read(piece.begin + done, count, bytes_.data());
      if (!same) {
        floats_.resize(static_cast<size_t>(count));
        convert(piece.tensor.type.name, bytes_.data(), count, floats_.data());
      }
      const void* const written = same ? static_cast<const void*>(bytes_.data()) : floats_.data();
      to_.write_at(written, count * type.bytes, at);
      at += count * type.bytes;
      done += count;
    }
    return at;
  }

 private:
  const ForeignWeights& weights_;
  NewFile& to_;
  std::unique_ptr<InputFile> from_;
  size_t open_ = 0;
  std::string bytes_;
  std::vector<float> floats_;
};

int64_t elements_of(const ForeignTensor& tensor) {
  return std::accumulate(tensor.pieces.begin(), tensor.pieces.end(), int64_t{0},
                         [](int64_t sum, const ForeignPiece& piece) { return sum + piece.count; });
}

}  // namespace

TorchFile ForeignWeights::open(const std::string& path) {
  files.push_back(path);
  return TorchFile(path);
}

void ForeignWeights::add(const std::string& name, const TorchTensor& tensor) {
  const bool is_f64 = tensor.type.name == "F64";
  tensors.push_back({name,
                     is_f64 ? safetensors_type("F32") : tensor.type,
                     tensor.sizes,
                     {{files.size() - 1, tensor, 0, tensor.elements()}}});
}

void take_off_prefixes(ForeignWeights& weights, bool model) {
  std::string taken;
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view prefix : {"module.", "_orig_mod.", "model."}) {
      if (prefix == "model." && !model) continue;
      if (weights.tensors.empty() ||
          !std::ranges::all_of(weights.tensors, [prefix](const ForeignTensor& t) {
            return t.name.size() > prefix.size() && t.name.starts_with(prefix);
          }))
        continue;
      for (ForeignTensor& t : weights.tensors) t.name.erase(0, prefix.size());
      taken += prefix;
      more = true;
    }
  }
  if (!taken.empty())
    weights.notes.push_back(fmt::format(
        "all names begin with \"{}\", which is taken off (--keep_names keeps it)", taken));
}

void leave_out_second_names(ForeignWeights& weights) {
  // The file of a tensor's first piece, where its elements begin, and their order.
  using Place = std::tuple<size_t, int64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Place, std::string> first;
  std::vector<std::string> second;
  std::erase_if(weights.tensors, [&](const ForeignTensor& t) {
    if (elements_of(t) == 0) return false;
    const ForeignPiece& piece = t.pieces.front();
    const auto [other, fresh] =
        first.try_emplace(Place{piece.file, piece.tensor.storage, piece.tensor.offset + piece.begin,
                                t.sizes, piece.tensor.strides},
                          t.name);
    if (!fresh)
      second.push_back(fmt::format("{} is {}", shown_text(t.name), shown_text(other->second)));
    return !fresh;
  });
  if (!second.empty())
    weights.notes.push_back(
        fmt::format("weights of two names are written by the first (--keep_names writes both) "
                    "({}):\n  {}",
                    second.size(), listed(second)));
}

void check_names(const ForeignWeights& weights, const std::string& origin) {
  std::set<std::string_view> seen;
  for (const ForeignTensor& t : weights.tensors) {
    if (t.name.empty() || t.name == "__metadata__" ||
        first_invalid_utf8(t.name) != std::string::npos)
      fail_user("{}: a tensor has the name \"{}\", which a safetensors file cannot have", origin,
                shown_text(t.name));
    if (!seen.insert(t.name).second)
      fail_user("{}: several tensors have the name \"{}\"", origin, shown_text(t.name));
  }
}

int64_t bytes_of(const ForeignWeights& weights) {
  int64_t bytes = 0;
  for (const ForeignTensor& t : weights.tensors)
    if (__builtin_add_overflow(bytes, elements_of(t) * t.type.bytes, &bytes))
      fail_user("the bytes of the tensors overflow");
  return bytes;
}

void write_weights(const ForeignWeights& weights, NewFile& file) {
  // As the safetensors package orders them, so that each begins at a multiple of its element's bytes.
  std::vector<const ForeignTensor*> order;
  for (const ForeignTensor& t : weights.tensors) order.push_back(&t);
  std::ranges::sort(order, [](const ForeignTensor* a, const ForeignTensor* b) {
    return a->type.bytes != b->type.bytes ? a->type.bytes > b->type.bytes : a->name < b->name;
  });
  std::vector<SafetensorsTensor> written;
  for (const ForeignTensor* t : order)
    written.push_back({.name = t->name, .type = t->type, .shape = t->sizes});
  const std::string header = make_safetensors_header(written);
  file.write_at(header.data(), std::ssize(header), 0);
  ElementCopy elements(weights, file);
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t at = written[i].begin;
    for (const ForeignPiece& piece : order[i]->pieces)
      at = elements.copy(piece, order[i]->type, at);
    check(at == written[i].end, "\"{}\" has other elements than its sizes say", order[i]->name);
  }
  file.complete();
}

}  // namespace dstrain
