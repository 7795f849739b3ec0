#include "runtime/storage/weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/core/convert_floats.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/core/error.h"
#include "runtime/core/step_rules.h"
#include "runtime/storage/weights/packed_weights.h"
#include "runtime/storage/weights/weights_reader.h"

namespace dstrain {
namespace {

constexpr int64_t kSentAtOnce = 1 << 20;  // elements

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

}  // namespace

void load_weights(const std::string& path, const StateRegister& want, const ForeignNames& names) {
  WeightsReader weights(path, want, names);
  std::vector<float> wide;
  for (const size_t weight : weights.in_file_order()) {
    const StateEntry& entry = want[weight];
    const int64_t count = entry.local.elements();
    const DType dtype = entry.local.dtype;
    const int64_t held = elements_held(entry);
    if (entry.blocks != BlockFormat::none) {
      pack_entry(entry, [&](int64_t begin, int64_t elements, float* to) {
        weights.read(weight, begin, elements, to);
        check_numbers(to, elements, begin, entry, path);
      });
      continue;
    }
    check(is_convertible(dtype), "weights are loaded as floats, and {} asks for {}", entry.name,
          name_of(dtype));
    check(entry.begin >= 0 && entry.begin + count <= held, "slice [{}, {}) of {} is outside of it",
          entry.begin, entry.begin + count, entry.name);
    const auto read = [&](int64_t from, int64_t elements, float* to) {
      weights.read(weight, entry.begin + from, elements, to, entry.part);
      check_numbers(to, elements, entry.begin + from, entry, path);
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
  const WeightsReader checked(path, want, names);
}

}  // namespace dstrain
