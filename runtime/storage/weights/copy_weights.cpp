#include "runtime/storage/weights/copy_weights.h"

#include <algorithm>
#include <vector>

namespace dstrain {

void copy_weights(const StateRegister& weights, const ReadWeight& read, WeightsWriter& writer) {
  std::vector<float> values;
  for (size_t w = 0; w < weights.size(); ++w) {
    const int64_t all = weights[w].global_shape.elements();
    for (int64_t begin = 0; begin < all; begin += kCopiedAtOnce) {
      const int64_t count = std::min(kCopiedAtOnce, all - begin);
      values.resize(std::max(values.size(), static_cast<size_t>(count)));
      read(w, begin, count, values.data());
      writer.write(weights[w].name, begin, {values.data(), {count}, DType::f32});
    }
  }
}

}  // namespace dstrain
