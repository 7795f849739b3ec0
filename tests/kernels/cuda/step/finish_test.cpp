// finish_gradients on a device gives the same state as on the host, bit for bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_stream.h"

using namespace dstrain;

namespace {

Tensor view(std::vector<double>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}, DType::f64};
}

}  // namespace

TEST_CASE("sums in order, norm, clipping, skip and loss scale are the host's") {
  EmulatedStream stream;
  const auto library = make_emulated_library(stream);
  const FinishRule rule{
      .clip = 1.5, .loss_scale = {.dynamic = true, .initial = 8, .window = 2, .hysteresis = 1}};
  const auto finish = library->make_finish(rule);
  REQUIRE(finish);
  for (const int units : {1, 2, 129, 1000})
    for (const double bad : {0.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
      std::vector<double> sums(static_cast<size_t>(units)), loss{2.5}, all(6, 0.25);
      for (size_t u = 0; u < sums.size(); ++u) sums[u] = 1.0 / static_cast<double>(u + 3);
      sums.back() += bad;
      all[5] = 0;  // rank 1 has no request to stop
      StepState state;
      state.step = 7;
      state.loss_scale = state.next_loss_scale = 8;
      state.stop = 1;
      StepState expected = state;
      expected.grad_square_sum = 0;
      for (const double s : sums) expected.grad_square_sum += s;
      expected.grad_square_sum += 0.25;
      expected.mean_square_sum = expected.grad_square_sum;
      expected.loss_sum = 2.5 + 0.25;
      finish_step(expected, rule);

      std::vector<double> mine(3);
      finish->collect(view(sums), view(loss), &state, view(mine));
      stream.synchronize();
      std::copy(mine.begin(), mine.end(), all.begin());
      finish->finish({all.data(), {2, 3}, DType::f64}, &state);
      stream.synchronize();
      CHECK(state.skip == (bad == 0 ? 0 : 1));
      CHECK(state.stop == 1);
      CHECK(state.loss_sum == expected.loss_sum);
      if (bad == 0) {
        CHECK(state.grad_square_sum == expected.grad_square_sum);
        CHECK(state.grad_norm == expected.grad_norm);
      }
      CHECK(state.grad_scale == expected.grad_scale);
      CHECK(state.next_loss_scale == expected.next_loss_scale);
      CHECK(state.scaler_iteration == 1);
    }
}

TEST_CASE("groups of ranks clip by norms of their own, and skip together") {
  EmulatedStream stream;
  const auto library = make_emulated_library(stream);
  for (const double bad : {0.0, std::numeric_limits<double>::infinity()})
    for (const int64_t first : {0, 2}) {
      const auto finish = library->make_finish(
          {.clip = 1, .loss_scale = {}, .first_rank = first, .group_ranks = 2});
      // The norms of the two groups are 2 and 6.
      std::vector<double> all{1, 0.5, 0, 3, 0.5, 0, 20, 0.5, 0, 16 + bad, 0.5, 0};
      StepState state;
      finish->finish({all.data(), {4, 3}, DType::f64}, &state);
      stream.synchronize();
      CHECK(state.skip == (bad == 0 ? 0 : 1));
      if (bad != 0) continue;
      CHECK(state.loss_sum == 2);
      CHECK(state.grad_norm == Approx(std::sqrt(20.0)));
      CHECK(state.grad_scale == Approx(first == 0 ? 1.0 / 2 : 1.0 / 6).epsilon(1e-5));
    }
}
