// The part of ModelState that makes the values with which a run begins.
#include <algorithm>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/storage/weights/packed_weights.h"

namespace dstrain {
namespace {

constexpr int64_t kMadeAtOnce = int64_t{1} << 18;  // elements
constexpr int64_t kLongRun = int64_t{1} << 14;

// Writes elements [begin, begin + n) of the memory of a tensor's part to `to`; padding is zero. `make` makes those of the
// whole tensor, whole rows of it where the part has short pieces of many.
void make_part(const TensorPart& part, const Shape& whole, int64_t begin, int64_t n,
               const MakeValues& make, float* to) {
  if (part.by == TensorPart::By::nothing) return make(begin, n, to);
  std::fill_n(to, n, 0.0f);
  std::vector<float> rows;
  int64_t made = 0, made_end = 0;  // the elements of the whole tensor in `rows`
  for_runs(part, whole, begin, n, [&](const PartRun& run) {
    float* const at = to + (run.held - begin);
    if (part.by == TensorPart::By::rows || run.count >= kLongRun)
      return make(run.whole, run.count, at);
    if (run.whole + run.count > made_end) {
      const int64_t left = (begin + n - run.held) * part.parts + whole[-1];
      made = run.whole;
      made_end =
          std::min(made + std::min(std::max(kMadeAtOnce, whole[-1]), left), whole.elements());
      rows.resize(static_cast<size_t>(made_end - made));
      make(made, made_end - made, rows.data());
    }
    std::copy_n(rows.begin() + (run.whole - made), run.count, at);
  });
}

}  // namespace

void ModelState::initialize(uint64_t seed, const Implementations& implementations,
                            const WantedWeight& wanted) const {
  for (const Parameter& p : plan_.program.parameters) {
    if (wanted && !wanted(p.name)) continue;
    const Piece held = master(p);
    const int64_t first = held.begin;
    const Tensor& t = held.values;
    if (!t) continue;
    const PhiloxKey key = stream_key(seed, hash_name(p.name));
    // Makes elements [begin, begin + n) of the whole tensor.
    const MakeValues make = [&](int64_t begin, int64_t n, float* v) {
      switch (p.init) {
        case Init::zeros:
          std::fill_n(v, n, 0.0f);
          break;
        case Init::ones:
          std::fill_n(v, n, 1.0f);
          break;
        case Init::normal:
          implementations.fill_normal(v, begin, n, p.init_scale, key, threads_);
          break;
        case Init::uniform:
          implementations.fill_uniform(v, begin, n, p.init_scale, key, threads_);
          break;
      }
    };
    const auto fill = [&](float* v, int64_t begin, int64_t n) {
      make_part(p.part, p.shape, begin, n, make, v);
    };
    if (p.blocks != BlockFormat::none) {
      StateEntry entry{.name = p.name, .begin = first, .local = t, .device = held.owner};
      as_elements(entry, p.shape, p.blocks);
      pack_entry(entry, make);
      continue;
    }
    on_host(held.owner, t, HostAccess::write, [&](int64_t at, const Tensor& values) {
      const int64_t n = values.elements();
      if (values.dtype == DType::f32) return fill(values.as<float>(), first + at, n);
      constexpr int64_t kPiece = int64_t{1} << 18;
      std::vector<float> wide(static_cast<size_t>(std::min(n, kPiece)));
      for (int64_t done = 0; done < n; done += kPiece) {
        const int64_t here = std::min(kPiece, n - done);
        fill(wide.data(), first + at + done, here);
        round(wide.data(),
              {values.as<std::byte>() + done * size_of(values.dtype), {here}, values.dtype});
      }
    });
  }
  for (const RegisteredBuffer& b : plan_.program.registered)
    if (b.values != kNone)
      on_host(arenas_.owner_of(plan_, b.values), arenas_.tensor(plan_, b.values), HostAccess::write,
              [&](int64_t, const Tensor& values) {
                std::fill_n(values.as<float>(), values.elements(),
                            b.init == Init::ones ? 1.0f : 0.0f);
              });
  publish_masters();
}

void ModelState::begin_codecs(const Implementations& implementations) const {
  for (const CodecState& state : plan_.program.codec_state) {
    if (state.init == Init::zeros) continue;  // memory begins with zeros
    const PhiloxKey key = stream_key(state.seed, hash_name(state.name + ":" + state.slot));
    on_host(arenas_.owner_of(plan_, state.values), arenas_.tensor(plan_, state.values),
            HostAccess::write, [&](int64_t at, const Tensor& values) {
              implementations.fill_normal(values.as<float>(), at, values.elements(), 1.0f, key,
                                          threads_);
            });
  }
}

}  // namespace dstrain
