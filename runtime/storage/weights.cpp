#include "runtime/storage/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "runtime/core/convert_floats.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/error.h"
#include "runtime/core/step_rules.h"
#include "runtime/core/threads/parts.h"
#include "runtime/storage/weights/packed_weights.h"
#include "runtime/storage/weights/weights_reader.h"

namespace dstrain {
namespace {

constexpr int64_t kAtOnce = 1 << 20;  // elements, which a thread checks while they are in its cache

// Throws UserError if one of an entry's values, from element `first` on, is not finite: the run would fail in its first
// step, with a misleading message.
void check_numbers(const float* values, int64_t count, int64_t first, const StateEntry& entry,
                   const std::string& path) {
  bool bad = false;
  for (int64_t i = 0; i < count; ++i) bad |= !is_number(static_cast<double>(values[i]));
  if (!bad) return;
  const float* const found =
      std::find_if(values, values + count, [](float x) { return !std::isfinite(x); });
  int64_t element = 0;  // of the whole tensor
  for_runs(entry.part, entry.global_shape, first + (found - values), 1,
           [&](const PartRun& run) { element = run.whole; });
  fail_user("the weights in {} are damaged: element {} of {} is {}", path, element, entry.name,
            std::isnan(*found) ? "not a number" : "infinite");
}

// Elements of an entry's slice that one thread reads.
struct Piece {
  size_t weight = 0;
  int64_t begin = 0, count = 0;  // within the slice
};

// Returns the pieces of all slices in the order of the files.
std::vector<Piece> pieces_of(const WeightsReader& weights, const StateRegister& want) {
  std::vector<Piece> pieces;
  for (const size_t weight : weights.in_file_order()) {
    const StateEntry& entry = want[weight];
    const int64_t count = entry.local.elements();
    const bool divides = entry.blocks == BlockFormat::none && !entry.device &&
                         weights.reads_in_pieces(weight, entry.part);
    const int64_t most = divides ? kAtOnce : std::max<int64_t>(count, 1);
    for (int64_t at = 0; at < count; at += most)
      pieces.push_back({weight, at, std::min(most, count - at)});
  }
  return pieces;
}

// Fills pieces of slices, by one thread.
class SliceLoader {
 public:
  SliceLoader(const std::string& path, const WeightsReader& weights)
      : path_(path), weights_(weights) {}

  void load(const StateEntry& entry, const Piece& piece) {
    if (entry.blocks != BlockFormat::none) {
      pack_entry(entry, [&](int64_t begin, int64_t count, float* to) {
        read(entry, piece, begin, count, to);
      });
      return;
    }
    const DType dtype = entry.local.dtype;
    check(is_convertible(dtype), "weights are loaded as floats, and {} asks for {}", entry.name,
          name_of(dtype));
    const int64_t end = entry.begin + entry.local.elements();
    check(entry.begin >= 0 && end <= elements_held(entry), "slice [{}, {}) of {} is outside of it",
          entry.begin, end, entry.name);
    const int64_t element = size_of(dtype);
    std::byte* const values = entry.local.as<std::byte>() + piece.begin * element;
    if (!entry.device) return fill(entry, piece, piece.begin, piece.count, values);
    for_host_pieces(*entry.device, values, piece.count * element, kAtOnce * element,
                    HostAccess::write, [&](int64_t at, std::byte* staged, int64_t bytes) {
                      fill(entry, piece, piece.begin + at / element, bytes / element, staged);
                    });
  }

 private:
  // Reads elements from `begin` of the tensor on.
  void read(const StateEntry& entry, const Piece& piece, int64_t begin, int64_t count, float* to) {
    weights_.read(piece.weight, begin, count, to, buffers_, entry.part);
    check_numbers(to, count, begin, entry, path_);
  }

  // Reads elements from `begin` of the slice on, as the entry's dtype.
  void fill(const StateEntry& entry, const Piece& piece, int64_t begin, int64_t count,
            std::byte* values) {
    const DType dtype = entry.local.dtype;
    const int64_t first = entry.begin + begin;
    if (dtype == DType::f32)
      return read(entry, piece, first, count, reinterpret_cast<float*>(values));
    wide_.resize(static_cast<size_t>(kAtOnce));
    for (int64_t done = 0; done < count; done += kAtOnce) {
      const int64_t here = std::min(kAtOnce, count - done);
      read(entry, piece, first + done, here, wide_.data());
      convert_floats({wide_.data(), {here}, DType::f32},
                     {values + done * size_of(dtype), {here}, dtype});
    }
  }

  const std::string& path_;
  const WeightsReader& weights_;
  WeightsReader::Buffers buffers_;
  std::vector<float> wide_;
};

}  // namespace

void load_weights(const std::string& path, const StateRegister& want, const ForeignNames& names) {
  const WeightsReader weights(path, want, names);
  const std::vector<Piece> pieces = pieces_of(weights, want);
  std::atomic<size_t> next{0};
  std::mutex owners;  // other owners of memory are given values by one thread at a time
  run_parts(std::min<int64_t>(thread_count(), std::ssize(pieces)), [&](int64_t) {
    SliceLoader loader(path, weights);
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        const StateEntry& entry = want[pieces[i].weight];
        std::unique_lock<std::mutex> lock;
        if (entry.device) lock = std::unique_lock(owners);
        loader.load(entry, pieces[i]);
      }
    } catch (...) {
      next = pieces.size();  // the others stop after the piece that they have
      throw;
    }
  });
}

void check_weights(const std::string& path, const StateRegister& want, const ForeignNames& names) {
  const WeightsReader checked(path, want, names);
}

}  // namespace dstrain
