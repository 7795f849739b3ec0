#include <vector>

#include "kernels/cpu/attention/portable.h"
#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::attention {
namespace {

TEST_CASE("mask rows hold the bits of the counter at every alignment, width and size of number") {
  const PhiloxKey key = stream_key(7, kDropoutStream + 3);
  const uint64_t sample = (uint64_t{5} << 32) + 11;
  for (uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 35) - 70}) {
    for (int64_t row_stride : {64, 97}) {
      for (int64_t columns : {1, 63, 64, 130, 256, int{kMaxMaskColumns}}) {
        for (uint32_t threshold : {1u, 6554u, 65535u}) {
          const int64_t rows = 9, stride = mask_words(columns) + 1;
          std::vector<uint64_t> bits(static_cast<size_t>(rows * stride), 0xabababababababab);
          fill_mask_rows(
              {key, sample, threshold, first, row_stride, rows, columns, bits.data(), stride});
          for (int64_t r = 0; r < rows; ++r) {
            const uint64_t* row = bits.data() + r * stride;
            int64_t wrong = 0;
            for (int64_t n = 0; n < columns; ++n) {
              const auto element = first + static_cast<uint64_t>(r * row_stride + n);
              const bool kept = dropout_bits(key, sample, element) >= threshold;
              wrong += ((row[n / 64] >> (n % 64)) & 1) != (kept ? 1u : 0u);
            }
            INFO("first " << first << " row " << r << " columns " << columns);
            REQUIRE(wrong == 0);
            REQUIRE(row[stride - 1] == 0xabababababababab);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dstrain::attention
